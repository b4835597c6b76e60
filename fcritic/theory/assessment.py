"""What the steps of Algorithm 3 were worth: true values, gradients and errors along a trace."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.theory.actor_critic import Trace, anchor_at
from fcritic.theory.policy_gradients import Control, first_term
from fcritic.theory.precision import float64
from fcritic.theory.trust import Drift, covariance, drift


class Assessment(NamedTuple):
    """Exact figures before each improvement step; leading axes are seeds and steps."""

    objective: Float[Array, "seeds steps"]
    """J_rho of the policy."""
    squared_gradient: Float[Array, "seeds steps"]
    """||grad J_rho||^2."""
    error_largest: Float[Array, "seeds steps"]
    """The largest component of the step's gradient minus the true one."""
    error_length: Float[Array, "seeds steps"]
    """Its length."""
    weight_error: Float[Array, "seeds steps"]
    """||xi - xi*||_{A_k}; not a number where the features have no xi*."""
    value_size: Float[Array, "seeds steps"]
    """||xi*||_{A_k}, the root mean square of the reference's values; not a number where there is no xi*."""
    first_largest: Float[Array, "seeds steps"]
    """The largest component of G_1, the part of the error in the first term of eq. (2)."""


@float64
@jax.jit
def assess(problem: Control, trace: Trace) -> Assessment:
    """The true figures along a trace."""

    def one(row: Trace) -> Assessment:
        exact = jax.grad(problem.objective)(row.theta)
        error = row.slope - exact
        return Assessment(
            objective=problem.objective(row.theta),
            squared_gradient=jnp.sum(exact**2),
            error_largest=jnp.max(jnp.abs(error)),
            error_length=jnp.sqrt(jnp.sum(error**2)),
            weight_error=_length(problem, row, row.weights),
            value_size=_length(problem, row, jnp.zeros_like(row.weights)),
            first_largest=_first_error(problem, row),
        )

    return jax.vmap(jax.vmap(one))(trace)


def _length(problem: Control, row: Trace, weights: Float[Array, " d"]) -> Float[Array, ""]:
    """||weights - xi*||_{A_k}."""
    truth = getattr(problem.features, "weights", None)
    if truth is None:
        return jnp.array(jnp.nan)
    pi = problem.policy(row.reference)
    matrix = covariance(problem.features(pi), problem.pairs(pi))
    error = weights - truth
    return jnp.sqrt(jnp.maximum(error @ matrix @ error, 0.0))


def _first_error(problem: Control, row: Trace) -> Float[Array, ""]:
    truth = getattr(problem.features, "weights", None)
    if truth is None:
        return jnp.array(jnp.nan)
    return jnp.max(jnp.abs(first_term(problem, row.theta, row.weights - truth, problem.rho)))


@float64
@jax.jit
def coefficients(problem: Control, trace: Trace) -> Drift:
    """All coefficients of eq. (9) along a trace, each step against the reference of its epoch."""

    def one(row: Trace) -> Drift:
        anchor = anchor_at(problem, row.reference, None)
        return drift(problem.policy, problem.features, problem.rho, row.theta, anchor.inverse)

    return jax.vmap(lambda rows: jax.lax.map(one, rows))(trace)
