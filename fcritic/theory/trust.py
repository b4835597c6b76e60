"""The two trust metrics: coverage C, eq. (5), and gradient generalisation Delta, eq. (9).

Everything is a plain array: policies ``pi[states, actions]``, functional features ``phi[states, actions, d]`` and
measures over pairs that sum to one. A policy is a function of its parameters theta, a vector. Algorithm 3 ends an
epoch when the actor's drift from the reference policy, by one of `TRIGGERS`, passes a threshold.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fcritic.theory.mdp import eigen, float64

RANK_TOLERANCE = 1e-10
"""Eigenvalues of a covariance below this share of the largest count as zero.

It is also the share of a vector's squared length that must lie outside the range to make its norm infinite. In
float64 rounding stays near 1e-16, and a covariance with a condition number of 1e10 has no usable inverse anyway.
"""

Theta = Float[Array, " parameters"]
States = Float[Array, " states"]
Pairs = Float[Array, "states actions"]
Phi = Float[Array, "states actions d"]
Weights = Float[Array, " d"]
Policy = Callable[[Theta], Pairs]
FeatureMap = Callable[[Pairs], Phi]


@float64
def covariance(phi: Phi, measure: Pairs) -> Float[Array, "d d"]:
    """Returns the second moment of features under a measure, A = E[phi phi']."""
    return jnp.einsum("sa,sai,saj->ij", measure, phi, phi)


class Inverse(NamedTuple):
    """The norm ||u||_{A^-1} of the paper: the limit of (A + lambda I)^-1, infinite outside the range of A."""

    root: Float[Array, "d d"]
    """The pseudo-inverse of the symmetric root of A."""
    null: Float[Array, "d d"]
    """The projection onto the null space of A."""
    tolerance: Float[Array, ""]
    """The share of a squared length outside the range that counts as rounding."""
    noise: Float[Array, ""]
    """The squared length that counts as rounding in any vector, so that zero lies in the range."""
    rank: Float[Array, ""]
    """The number of directions that A covers."""

    @float64
    def squared(self, vectors: Float[Array, "... d"]) -> Float[Array, "..."]:
        """Returns ||u||^2_{A^-1} for each vector."""
        return jnp.where(self.outside(vectors), jnp.inf, jnp.sum((vectors @ self.root) ** 2, axis=-1))

    @float64
    def outside(self, vectors: Float[Array, "... d"]) -> Bool[Array, "..."]:
        """Returns whether each vector leaves the range of A."""
        left_out = jnp.sum((vectors @ self.null) ** 2, axis=-1)
        return left_out > self.tolerance * jnp.sum(vectors**2, axis=-1) + self.noise

    @float64
    def norm(self, vectors: Float[Array, "... d"]) -> Float[Array, "..."]:
        """Returns ||u||_{A^-1} for each vector."""
        return jnp.sqrt(self.squared(vectors))


@float64
def invert(matrix: Float[Array, "d d"], tolerance: float = RANK_TOLERANCE) -> Inverse:
    """Prepares ||.||_{A^-1} for a positive semi-definite matrix A."""
    values, vectors = eigen(matrix)
    largest = jnp.maximum(jnp.max(values), 0.0)
    kept = values > tolerance * largest
    scale = jnp.where(kept, 1 / jnp.sqrt(jnp.where(kept, values, 1.0)), 0.0)
    root = (vectors * scale[None, :]) @ vectors.T
    null = (vectors * ~kept[None, :]) @ vectors.T
    noise = jnp.finfo(matrix.dtype).eps * tolerance * largest
    return Inverse(root, null, jnp.asarray(tolerance, matrix.dtype), noise, jnp.sum(kept).astype(matrix.dtype))


@float64
def expectation(measure: Float[Array, "..."], values: Float[Array, "..."]) -> Float[Array, ""]:
    """Returns the mean of values that may be infinite where the measure is zero."""
    return jnp.sum(measure * jnp.where(measure > 0, values, 0.0))


@float64
def coverage(phi: Phi, target: Pairs, behaviour: Pairs, tolerance: float = RANK_TOLERANCE) -> Float[Array, ""]:
    """Returns the evaluation trust metric C(pi, mu), eq. (5), which is small where behaviour mu covers pi well.

    It is E[ ||phi(s, a)||^2 ] over the target's pairs, in the norm of the inverse of the behaviour's covariance. It
    is infinite when a feature that pi visits leaves the range of that covariance.

    **Arguments:** `phi` are the features of the target policy; `target` and `behaviour` the stationary measures of
    the two policies over pairs.
    """
    return expectation(target, invert(covariance(phi, behaviour), tolerance).squared(phi))


@float64
def gradient_parts(
    policy: Policy, features: FeatureMap, rho: States, theta: Theta
) -> tuple[Float[Array, "d parameters"], Float[Array, "d parameters"]]:
    """Returns the two linear maps from weights xi to the two terms of the policy gradient, eq. (2).

    The gradient is (first + second)' xi. The first differentiates the action probabilities, the second the
    features. With xi - xi* in place of xi these are G_1 and G_2 of eq. (8).
    """

    def mean(acting: Theta, described: Theta) -> Weights:
        return jnp.einsum("s,sa,sad->d", rho, policy(acting), features(policy(described)))

    return jax.jacobian(mean, (0, 1))(theta, theta)


class Drift(NamedTuple):
    """Coefficients that bound the error of the policy gradient by the A_k-norm of the weights' error, eq. (9).

    All bound the largest component of the gradient's error except `euclidean`, which bounds its length.
    """

    first: Float[Array, ""]
    """C_1 with absolute values of grad pi: a bound on ||G_1||."""
    first_printed: Float[Array, ""]
    """C_1 as printed, with signed grad pi, which sums to zero over actions; it is not a bound."""
    first_exact: Float[Array, ""]
    """The largest ||G_1|| over weight errors of norm one."""
    second: Float[Array, ""]
    """C_2: a bound on ||G_2||."""
    second_exact: Float[Array, ""]
    """The largest ||G_2|| over weight errors of norm one."""
    exact: Float[Array, ""]
    """The largest ||G_1 + G_2|| over weight errors of norm one."""
    euclidean: Float[Array, ""]
    """The largest length of G_1 + G_2 over weight errors of norm one."""

    @float64
    def delta(self, first: str = "absolute") -> Float[Array, ""]:
        """Returns Delta = max(C_1, C_2) with C_1 `absolute`, `printed` or `exact`; `exact` is exact in C_2 too."""
        if first == "exact":
            return jnp.maximum(self.first_exact, self.second_exact)
        return jnp.maximum({"absolute": self.first, "printed": self.first_printed}[first], self.second)


@float64
def drift(policy: Policy, features: FeatureMap, rho: States, theta: Theta, anchor: Inverse) -> Drift:
    """Returns the coefficients of eq. (9) at parameters theta, for weights that were learned at an anchor.

    **Arguments:** `anchor` is the inverse of A_k, the covariance of the reference policy's features under its own
    measure.
    """
    pi = policy(theta)
    lengths = anchor.norm(features(pi))
    policy_slope = jax.jacobian(policy)(theta)
    feature_slope = jax.jacfwd(lambda at: features(policy(at)))(theta)
    slope_lengths = anchor.norm(jnp.moveaxis(feature_slope, -1, -2))
    weighted = rho[:, None, None] * policy_slope
    # A slope of zero times a feature out of range adds no error: the gradient does not use the weights there.
    signed = jnp.sum(jnp.where(weighted != 0, weighted * lengths[..., None], 0.0), axis=(0, 1))
    absolute = jnp.sum(jnp.where(weighted != 0, jnp.abs(weighted) * lengths[..., None], 0.0), axis=(0, 1))
    first, second = gradient_parts(policy, features, rho, theta)
    total = first + second
    return Drift(
        first=jnp.max(absolute),
        first_printed=jnp.max(jnp.abs(signed)),
        first_exact=jnp.max(anchor.norm(first.T)),
        second=expectation(rho[:, None] * pi, jnp.max(slope_lengths, axis=-1)),
        second_exact=jnp.max(anchor.norm(second.T)),
        exact=jnp.max(anchor.norm(total.T)),
        euclidean=_longest(anchor, total),
    )


def _longest(anchor: Inverse, parts: Float[Array, "d parameters"]) -> Float[Array, ""]:
    """Returns the largest length of parts' xi over weights with xi' A xi = 1."""
    seen = anchor.root @ parts
    inside = jnp.sqrt(jnp.max(eigen(seen @ seen.T)[0]))
    return jnp.where(jnp.any(anchor.outside(parts.T)), jnp.inf, inside)


TRIGGERS = {
    "delta": "Delta as printed: max(C_1, C_2) in the units of theta; the paper ends an epoch at 2",
    "delta-ratio": "Delta over its value at the reference, which has no units",
    "feature-distance": "the distance of the features from the reference's, over their length there",
    "feature-ratio": "the length of the features over their length at the reference",
    "kl": "the mean divergence KL(pi_t | reference)",
    "never": "no test: only its length ends an epoch",
}
"""Name and meaning of each measure of drift."""


class Anchor(NamedTuple):
    """The reference policy of an epoch and its quantities."""

    theta: Theta
    pi: Pairs
    phi: Phi
    """Its functional features."""
    pairs: Pairs
    """Its stationary measure over pairs."""
    inverse: Inverse
    """Of A_k, the covariance of `phi` under `pairs`."""
    delta: Float[Array, ""]
    """Delta at the reference itself, which `delta-ratio` divides by."""


@float64
def feature_distance(anchor: Anchor, phi: Phi) -> Float[Array, ""]:
    """Returns sqrt(E ||phi_t - phi_0||^2 / E ||phi_0||^2) in the A_k^-1 norm: 0 at the start."""
    moved = expectation(anchor.pairs, anchor.inverse.squared(phi - anchor.phi))
    return jnp.sqrt(moved / expectation(anchor.pairs, anchor.inverse.squared(anchor.phi)))


@float64
def feature_ratio(anchor: Anchor, phi: Phi) -> Float[Array, ""]:
    """Returns sqrt(E ||phi_t||^2 / E ||phi_0||^2) in the A_k^-1 norm: 1 at the start."""
    squares = [expectation(anchor.pairs, anchor.inverse.squared(each)) for each in (phi, anchor.phi)]
    return jnp.sqrt(squares[0] / squares[1])


@float64
def divergence(anchor: Anchor, pi: Pairs) -> Float[Array, ""]:
    """Returns KL(pi_t | reference) averaged over the reference's states."""
    terms = jax.scipy.special.rel_entr(pi, anchor.pi)
    return jnp.dot(jnp.sum(anchor.pairs, axis=1), jnp.sum(terms, axis=1))


@float64
def measure(
    trigger: str, first: str, policy: Policy, features: FeatureMap, rho: States, anchor: Anchor, theta: Theta
) -> Float[Array, ""]:
    """Returns the drift of parameters theta from the anchor, by one of `TRIGGERS`.

    **Arguments:** `first` is the reading of C_1 in Delta: `absolute`, `printed` or `exact`.
    """
    delta = lambda: drift(policy, features, rho, theta, anchor.inverse).delta(first)
    measures = {
        "delta": delta,
        "delta-ratio": lambda: delta() / anchor.delta,
        "feature-distance": lambda: feature_distance(anchor, features(policy(theta))),
        "feature-ratio": lambda: feature_ratio(anchor, features(policy(theta))),
        "kl": lambda: divergence(anchor, policy(theta)),
        "never": lambda: jnp.zeros(()),
    }
    return measures[trigger]()
