"""Slopes of functional critics, which their actors climb, compared with the exact gradient.

A member's data define a model; pairs without data keep the critic's present values. In this model V^pi is known
for every pi, and with it the exact gradient of sum_s rho(s) V^pi(s). A standard critic also gives its first term.
The second term requires values of policies on which the critic was not trained.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fcritic.envs.exact import Task
from fcritic.exploration.ensembles import Counts, Critic, Ensemble, State, Variant
from fcritic.exploration.learning import Rules, run, slope, sweep

Table = Float[Array, "layers states"]


class Slopes(eqx.Module):
    """Gradients of one member at its actor, in the logit of each state."""

    first: Table
    """The first term, in which critic and model agree up to the critic's error at its own policy."""
    second: Table
    """The critic's second term."""
    exact: Table
    """The exact second term in the member's model."""


def slopes_of(
    ensemble: Ensemble,
    rules: Rules,
    prior_weight: Float[Array, ""],
    share: Table,
    critic: Critic,
    logits: Table,
    counts: Counts,
) -> Slopes:
    """Returns the slopes of one member; `counts` are its own, `share` is the share of visits to each state."""
    own = jax.tree.map(lambda each: each[None], counts)
    policy = jax.nn.sigmoid(logits)
    start, prior = critic(policy)[None, None], critic.prior(policy)[None, None]

    def returned(logits: Table, fixed: bool) -> Float[Array, ""]:
        policy = jax.nn.sigmoid(logits)
        inner = (jax.lax.stop_gradient(policy) if fixed else policy)[None, None]
        q = start
        for _ in range(len(policy)):  # after so many sweeps the last layer has reached the first
            q = sweep(ensemble.kind, rules, own, prior_weight, prior, inner, q)
        q = q[0, 0]
        return jnp.sum(share * (q[..., 0] + policy * (q[..., 1] - q[..., 0])))

    whole, first = (jax.grad(returned)(logits, fixed) for fixed in (False, True))
    second = slope(critic, logits, share, True) - slope(critic, logits, share, False)
    return Slopes(first, second, whole - first)


def knowledge(
    task: Task, ensemble: Ensemble, options: Variant, episodes: int, seeds: int
) -> dict[str, Float[Array, " seeds members"]]:
    """Trains for some episodes and returns the accuracy of slopes for each seed and member.

    `cosine` is that of the second term with the exact one; `length` its length relative to the exact one, `weight`
    its length relative to the first term. `agreement` is the share of visited states in which the actor's gradient
    has the sign of the exact one, and `first_agreement` the same for the first term alone.
    """
    rules = Rules(task.shifts, task.gamma, task.ends)
    _, states = run(task, ensemble, options, episodes, seeds)
    return jax.jit(jax.vmap(functools.partial(_figures, ensemble, rules, options.prior_weight)))(states)


def _figures(
    ensemble: Ensemble, rules: Rules, prior_weight: Float[Array, ""], state: State
) -> dict[str, Float[Array, " members"]]:
    share = state.visits / jnp.maximum(state.visits.sum(), 1)
    found = jax.vmap(functools.partial(slopes_of, ensemble, rules, prior_weight, share))(
        state.critics, state.logits, state.counts
    )
    size = jax.vmap(jnp.linalg.norm)
    first, second, exact = size(found.first), size(found.second), size(found.exact)
    visited = state.visits > 0
    return {
        "cosine": jnp.sum(found.second * found.exact, axis=(1, 2)) / jnp.maximum(second * exact, 1e-30),
        "length": second / jnp.maximum(exact, 1e-30),
        "weight": second / jnp.maximum(first, 1e-30),
        "agreement": _same_sign(found.first + found.second, found.first + found.exact, visited),
        "first_agreement": _same_sign(found.first, found.first + found.exact, visited),
    }


def _same_sign(
    one: Float[Array, "members layers states"],
    other: Float[Array, "members layers states"],
    visited: Bool[Array, "layers states"],
) -> Float[Array, " members"]:
    return jnp.sum((one * other > 0) & visited[None], axis=(1, 2)) / jnp.sum(visited)
