"""How far the actor has moved from the reference policy of its epoch: the measures that can end an epoch.

Each is a number that grows with the drift. Algorithm 3 starts a new epoch when it passes a threshold.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.theory.precision import float64
from fcritic.theory.trust import FeatureMap, Inverse, Policy, drift, expectation

TRIGGERS = {
    "delta": "Delta as printed: max(C_1, C_2) in the units of theta; the paper ends an epoch at 2",
    "delta-ratio": "Delta over its value at the reference, which has no units",
    "feature-distance": "how far the features have moved from the reference's, over their length there",
    "feature-ratio": "the length of the features over their length at the reference",
    "kl": "the mean divergence KL(pi_t | reference)",
    "never": "no test: an epoch ends by its length alone",
}
"""Name and meaning of each measure."""


class Anchor(NamedTuple):
    """What an epoch remembers of its reference policy."""

    theta: Float[Array, " parameters"]
    pi: Float[Array, "states actions"]
    phi: Float[Array, "states actions d"]
    """Its functional features."""
    pairs: Float[Array, "states actions"]
    """Its stationary measure over pairs."""
    inverse: Inverse
    """Of A_k, the covariance of `phi` under `pairs`."""
    delta: Float[Array, ""]
    """Delta at the reference itself, which `delta-ratio` divides by."""


@float64
def feature_distance(anchor: Anchor, phi: Float[Array, "states actions d"]) -> Float[Array, ""]:
    """sqrt(E ||phi_t - phi_0||^2 / E ||phi_0||^2), A_k^-1 norm, over the reference's pairs: 0 at the start."""
    moved = expectation(anchor.pairs, anchor.inverse.squared(phi - anchor.phi))
    return jnp.sqrt(moved / expectation(anchor.pairs, anchor.inverse.squared(anchor.phi)))


@float64
def feature_ratio(anchor: Anchor, phi: Float[Array, "states actions d"]) -> Float[Array, ""]:
    """sqrt(E ||phi_t||^2 / E ||phi_0||^2), A_k^-1 norm, over the reference's pairs: 1 at the start."""
    squares = [expectation(anchor.pairs, anchor.inverse.squared(each)) for each in (phi, anchor.phi)]
    return jnp.sqrt(squares[0] / squares[1])


@float64
def divergence(anchor: Anchor, pi: Float[Array, "states actions"]) -> Float[Array, ""]:
    """KL(pi_t | reference) averaged over the reference's states."""
    terms = jax.scipy.special.rel_entr(pi, anchor.pi)
    return jnp.dot(jnp.sum(anchor.pairs, axis=1), jnp.sum(terms, axis=1))


@float64
def measure(
    trigger: str,
    first: str,
    policy: Policy,
    features: FeatureMap,
    rho: Float[Array, " states"],
    anchor: Anchor,
    theta: Float[Array, " parameters"],
) -> Float[Array, ""]:
    """The drift of parameters theta from the anchor, by one of `TRIGGERS`.

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
