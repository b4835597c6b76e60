"""Whether data can judge a policy: the paper's two trust metrics, estimated from samples in float32.

`fcritic.theory.trust` has both in closed form, for finite MDPs. Here features are rows, one for each pair (s, a) of
a sample, and measures are the weights of these rows. The features of a network are its last hidden layer, in which
the value is linear. On all pairs of a finite MDP, weighted by their probabilities, the estimates are exact.
"""

from collections.abc import Callable
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

RANGE = 1e-4
"""Directions with less than this share of the largest second moment are outside of the data. Moments in float32
tell shares far above 1e-7."""

OUTSIDE = 1e-2
"""Features with more than this share of their squares in directions outside of the data are outside themselves."""

Rows = Float[Array, "rows d"]
Weights = Float[Array, " rows"]


class Norm(NamedTuple):
    """The norm ||u||_{A^-1} of Definition 1 within the range of A, and how much lies outside of it."""

    whitening: Float[Array, "d d"]
    """A map after which features have the second moment 1 in each covered direction, and none elsewhere."""
    null: Float[Array, "d d"]
    """A map to what lies outside the range, where Definition 1 is infinite."""
    rank: Float[Array, ""]
    """The number of directions that A covers."""
    outside: float
    """The share of a vector's square outside of the range from which on its length is infinite."""

    def squared(self, vectors: Float[Array, "*axes d"]) -> Float[Array, "*axes"]:
        """Returns ||u||^2_{A^-1} of each vector."""
        within = jnp.sum((vectors @ self.whitening) ** 2, axis=-1)
        if self.outside == math.inf:
            return within
        left_out, whole = (jnp.sum(each**2, axis=-1) for each in (vectors @ self.null, vectors))
        return jnp.where(left_out > self.outside * whole, jnp.inf, within)

    def share_outside(self, vectors: Rows, weights: Weights | None = None) -> Float[Array, ""]:
        """Returns the share of the mean squared length that lies outside the range of A."""
        left_out, whole = (
            jnp.average(jnp.sum(each**2, axis=-1), weights=weights) for each in (vectors @ self.null, vectors)
        )
        return left_out / jnp.maximum(whole, jnp.finfo(left_out.dtype).tiny)

    def length(self, vectors: Float[Array, "*axes d"]) -> Float[Array, "*axes"]:
        """Returns ||u||_{A^-1} of each vector, whose slope at zero is zero."""
        squared = self.squared(vectors)
        return jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1.0)), 0.0)


def norm(features: Rows, weights: Weights | None = None, outside: float = math.inf, least: float = RANGE) -> Norm:
    """Returns the norm of the features' second moment.

    **Arguments:** with `outside` = `OUTSIDE` lengths are those of Definition 1, infinite outside the range. Without
    it a vector has the length of what lies within, since a network's features always leave the range a little, and
    the share outside is told apart. `least` is `RANGE` for moments in float32.
    """
    values, directions = jnp.linalg.eigh(second_moment(features, weights))
    kept = values > least * values.max()
    scale = jnp.where(kept, 1 / jnp.sqrt(jnp.where(kept, values, 1.0)), 0.0)
    return Norm(directions * scale[None], directions * ~kept[None], kept.sum().astype(values.dtype), outside)


def coverage(logged: Norm, own: Rows, weights: Weights | None = None) -> Float[Array, ""]:
    """Returns the evaluation trust metric C(pi, mu), eq. (5): E ||phi^pi(s, a)||^2 over the policy's own pairs.

    **Arguments:** `logged` is the norm of the second moment of phi^pi over the data's pairs; `own` are the features
    of pairs as the policy meets them. It is the rank of `logged` where these are the data's pairs.
    """
    return mean(logged.squared(own), weights)


def mean(values: Float[Array, " rows"], weights: Weights | None = None) -> Float[Array, ""]:
    """Returns the weighted mean of values that may be infinite where the weight is zero."""
    return values.mean() if weights is None else jnp.average(jnp.where(weights > 0, values, 0.0), weights=weights)


def second_moment(features: Rows, weights: Weights | None = None) -> Float[Array, "d d"]:
    """Returns A = sum of weights phi phi'; without weights the mean."""
    scale = jnp.full(len(features), 1 / len(features)) if weights is None else weights
    return features.T @ (scale[:, None] * features)


def coverage_with(
    logged: Float[Array, "d d"],
    added: Float[Array, "d d"],
    own: Float[Array, "d d"],
    share: float,
    ridge: Array | float,
) -> Float[Array, ""]:
    """Returns C(pi, mu) where a share of mu is another policy's, from second moments: who should act next?"""
    mixed = (1 - share) * logged + share * added + ridge * jnp.eye(len(own))
    return jnp.trace(jnp.linalg.solve(mixed, own))


# Delta, eq. (9)


class SampledDrift(NamedTuple):
    """Coefficients that bound the error of the policy gradient by the A-norm of the weights' error, eq. (9)."""

    first: Float[Array, ""]
    """C_1 with absolute values, a bound on the first term's error."""
    first_printed: Float[Array, ""]
    """C_1 as printed: slopes of opposite signs cancel, so that it is no bound."""
    second: Float[Array, ""]
    """C_2, a bound on the error of the term through the policy input."""

    @property
    def delta(self) -> Float[Array, ""]:
        """Delta = max(C_1, C_2)."""
        return jnp.maximum(self.first, self.second)

    @property
    def delta_printed(self) -> Float[Array, ""]:
        """Delta with C_1 as printed."""
        return jnp.maximum(self.first_printed, self.second)


def drift_of_choices(
    probabilities: Float[Array, "states actions"],
    probability_slopes: Float[Array, "states actions parameters"],
    features: Float[Array, "states actions d"],
    feature_slopes: Float[Array, "states actions d parameters"],
    reference: Norm,
    weights: Float[Array, " states"],
) -> SampledDrift:
    """Returns Delta of a policy that draws one of some actions, from its slopes in its parameters."""
    lengths = reference.length(features)[..., None]
    weighted = weights[:, None, None] * probability_slopes
    # A slope of zero times a feature out of range adds no error: the gradient does not use the weights there.
    terms = jnp.where(weighted != 0, weighted * lengths, 0.0)
    steepest = reference.length(jnp.moveaxis(feature_slopes, -1, -2)).max(axis=-1)
    return SampledDrift(
        first=jnp.abs(terms).sum(axis=(0, 1)).max(),
        first_printed=jnp.abs(terms.sum(axis=(0, 1))).max(),
        second=mean(steepest.ravel(), (weights[:, None] * probabilities).ravel()),
    )


def drift_of_actions(
    act: Callable[[Array], Float[Array, "states act"]],
    code: Callable[[Array], Float[Array, " code"]],
    features: Callable[[Array, Float[Array, " code"], Float[Array, " act"]], Float[Array, " d"]],
    obs: Float[Array, "states obs"],
    theta: Float[Array, " parameters"],
    reference: Norm,
) -> SampledDrift:
    """Returns Delta of a policy whose action is a function of the state, as a network's is.

    The sum over actions of |slope of pi(a|s)| ||phi(s, a)|| becomes the length of the feature's slope through the
    action, and the signed sum the slope of the mean length. Parameters act through few numbers, the actions and the
    code: no slope of all features in all parameters is ever stored.

    **Arguments:** `act` and `code` are functions of the parameters, `features` one of state, code and action.
    """
    actions, described = act(theta), code(theta)
    act_slopes = jax.jacrev(act)(theta)
    code_slopes = jax.jacrev(code)(theta) if described.size else jnp.zeros((0, theta.size))

    def at(row: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        state, action, slopes = row
        by_code, by_action = jax.jacfwd(features, (1, 2))(state, described, action)
        signed = jax.grad(lambda chosen: reference.length(features(state, described, chosen)))(action) @ slopes
        return _lengths(reference, by_action, slopes), signed, _lengths(reference, by_code, code_slopes).max()

    lengths, signed, steepest = jax.lax.map(at, (obs, actions, act_slopes))
    return SampledDrift(lengths.mean(axis=0).max(), jnp.abs(signed.mean(axis=0)).max(), steepest.mean())


def _lengths(
    reference: Norm, outer: Float[Array, "d inner"], inner: Float[Array, "inner parameters"]
) -> Float[Array, " parameters"]:
    """The length of each column of outer inner, without the columns themselves."""
    if not inner.shape[0]:
        return jnp.zeros(inner.shape[1])
    squared = lambda part: jnp.sum(inner * ((part @ part.T) @ inner), axis=0).clip(0.0)
    within = jnp.sqrt(squared(outer.T @ reference.whitening))
    if reference.outside == math.inf:
        return within
    return jnp.where(squared(outer.T @ reference.null) > reference.outside * squared(outer.T), jnp.inf, within)


# Where a policy goes, as far as the data tell


def visits(
    logged: Norm,
    features: Rows,
    after: Rows,
    first: Float[Array, "starts d"],
    discount: Weights,
    weights: Weights | None = None,
) -> Float[Array, " rows"]:
    """Returns how often the policy meets each logged pair, over how often the data do, d_pi / d_mu; 1 on average.

    It is phi(s, a)' u, where u carries the starts along the data's transitions: the dual of LSTD, with
    E_mu[(phi(s, a) - gamma phi(s', pi(s'))) phi(s, a)'] u = E phi(s_0, pi(s_0)). d_pi discounts from the starts.

    **Arguments:** `features` of the logged pairs, whose norm `logged` is; `after` of the next states and the
    policy's actions there; `first` of the starts; `discount` is gamma, or 0 where a task has ended.
    """
    here, there, begun = (rows @ logged.whitening for rows in (features, after, first))
    scale = jnp.full(len(here), 1 / len(here)) if weights is None else weights / weights.sum()
    moved = jnp.einsum("n,ni,nj->ij", scale, here - discount[:, None] * there, here)
    empty = (jnp.abs(logged.whitening).sum(axis=0) == 0).astype(moved.dtype)
    found = here @ jnp.linalg.solve(moved + jnp.diag(empty), begun.mean(axis=0))
    return found / jnp.sum(scale * found)


def concentrability(visited: Float[Array, " rows"], weights: Weights | None = None) -> Float[Array, ""]:
    """Returns E_mu[w^2] for `visits` w: 1 where the data are the policy's own.

    Of n logged rows only n / E_mu[w^2] count for the policy. It is at most C(pi, mu) where features are complete.
    """
    return jnp.average(visited**2, weights=weights)


def nearest(
    pairs: Float[Array, "pairs axes"], logged: Float[Array, "rows axes"], itself: Int[Array, " pairs"] | None = None
) -> Float[Array, " pairs"]:
    """Returns how far each pair (s, a) is from the nearest logged one, other than the row `itself`.

    Coverage is about directions of features. A network has few of them where it has seen one action only, and goes
    on in a straight line: a pair can be covered and far from all that was logged.
    """
    squares = jnp.sum(pairs**2, axis=1)[:, None] - 2 * pairs @ logged.T + jnp.sum(logged**2, axis=1)[None]
    if itself is not None:
        squares = squares.at[jnp.arange(len(pairs)), itself].set(jnp.inf)
    return jnp.sqrt(squares.min(axis=1).clip(0.0))
