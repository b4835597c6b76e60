"""Algorithm 2: evaluation of a target policy from another policy's data, with a target that is held still.

The critic is linear, Q(s, a) = <phi^pi(s, a), xi>. An outer iteration fits r + gamma E_pi[Q_target(s', .)] by K
gradient steps on sampled transitions, then copies the weights to the target. The mean over the target policy's
actions is exact, so there is no importance ratio.
"""

import functools

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fcritic.errors import UsageError, did_you_mean
from fcritic.theory.precision import float64
from fcritic.theory.tasks import Task
from fcritic.theory.trust import covariance, invert

SAMPLINGS = ("independent", "trajectory")
"""How transitions are drawn: s ~ d_mu afresh each time, or along one path of mu (Markovian)."""
BLOCK = 1000
"""Transitions that are drawn at once. Inner lengths that are multiples of it need no new compilation."""


@float64
def evaluate(
    task: Task,
    keys: Array,
    *,
    outer: int,
    inner: int,
    step: ArrayLike,
    truncate: ArrayLike = True,
    reset: ArrayLike = True,
    sampling: str = "independent",
    first: ArrayLike | None = None,
) -> Array:
    """Algorithm 2 for each of several seeds: the targets' weights [seeds, outer + 1, d]; the last is the result.

    The defaults are as printed. `reset=False` starts the inner loop from the target instead of zero. To compare
    step sizes or variants, `vmap` over `step`, `truncate` and `reset`.

    **Arguments:**

    - `keys`: one key per seed.
    - `outer`, `inner`, `step`: T, K and alpha.
    - `truncate`: cut the target's values to [0, 1 / (1 - gamma)].
    - `sampling`: `independent` or `trajectory`.
    - `first`: the first target's weights [d]; zero where None.
    """
    if sampling not in SAMPLINGS:
        hint = did_you_mean(sampling, SAMPLINGS) or f"; known are {', '.join(SAMPLINGS)}"
        raise UsageError(f"unknown sampling '{sampling}'{hint}")
    if outer < 1 or inner < 1:
        raise UsageError(f"outer and inner iterations must be at least 1, not {outer} and {inner}")
    numbers = (jnp.asarray(step, jnp.float64), _limits(task, truncate), jnp.where(reset, 0.0, 1.0))
    block = BLOCK if inner % BLOCK == 0 else inner
    return _evaluate(task, keys, numbers, inner // block, _first(task, first), outer, block, sampling)


@functools.partial(jax.jit, static_argnames=("outer", "block", "sampling"))
def _evaluate(
    task: Task,
    keys: Array,
    numbers: tuple[Array, Array, Array],
    blocks: Array,
    first: Array,
    outer: int,
    block: int,
    sampling: str,
) -> Array:
    step, limits, kept = numbers  # arrays, like the number of blocks, so that variants share a compiled program

    def one_seed(key: Array) -> Array:
        def iterate(carry: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Array]:
            weights, state = carry
            values = next_values(task, weights, limits)

            def learn(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
                weights, state = carry
                state, pairs, following = sample(task, jax.random.fold_in(key, index), block, sampling, state)
                return _inner_loop(task, weights, values, pairs, following, step), state

            carry = jax.lax.fori_loop(0, blocks, learn, (kept * weights, state))
            return carry, carry[0]

        first_key, key = jax.random.split(key)
        state = jax.random.categorical(first_key, jnp.log(task.states)).astype(jnp.int32)
        targets = jax.lax.scan(iterate, (first, state), jax.random.split(key, outer))[1]
        return jnp.concatenate([first[None], targets])

    return jax.vmap(one_seed)(keys)


def _inner_loop(task: Task, weights: Array, values: Array, pairs: Array, following: Array, step: Array) -> Array:
    """Gradient steps on (phi' xi - y)^2 / 2 with y = r + gamma v(s'), the target's values v being fixed."""
    phi, rewards = task.rows
    targets = rewards[pairs] + task.gamma * values[following]

    def move(weights: Array, seen: tuple[Array, Array]) -> tuple[Array, None]:
        pair, target = seen
        features = phi[pair]
        return weights + step * (target - jnp.dot(features, weights)) * features, None

    return jax.lax.scan(move, weights, (pairs, targets))[0]


def next_values(task: Task, weights: Array, limits: Array) -> Array:
    """v(s) = sum_a pi(a|s) of the target's value, cut to the limits; [S]."""
    values = jnp.einsum("sad,d->sa", task.phi, weights)
    return jnp.einsum("sa,sa->s", task.target, jnp.clip(values, limits[0], limits[1]))


def _limits(task: Task, truncate: ArrayLike) -> Array:
    return jnp.where(truncate, jnp.array([0.0, 1 / (1 - task.gamma)]), jnp.array([-jnp.inf, jnp.inf]))


def _first(task: Task, first: ArrayLike | None) -> Array:
    return jnp.zeros(task.phi.shape[-1]) if first is None else jnp.asarray(first, dtype=jnp.float64)


def sample(task: Task, key: Array, count: int, sampling: str, state: Array) -> tuple[Array, Array, Array]:
    """Draws `count` transitions: the last state, the pairs s A + a, the next states.

    The whole step is drawn by one uniform number, from the joint distribution of what follows.
    """
    states, actions = task.r.shape
    uniforms = jax.random.uniform(key, (count,), dtype=jnp.float64)
    moves = task.behaviour[:, :, None] * task.P
    if sampling == "independent":
        cumulative = jnp.cumsum((task.states[:, None, None] * moves).ravel())
        drawn = jnp.searchsorted(cumulative, uniforms * cumulative[-1], side="right")
        drawn = jnp.minimum(drawn, cumulative.size - 1)
        return state, drawn // states, drawn % states
    cumulative = jnp.cumsum(moves.reshape(states, -1), axis=1)

    def move(state: Array, uniform: Array) -> tuple[Array, Array]:
        row = cumulative[state]
        drawn = jnp.sum(row <= uniform * row[-1]).astype(jnp.int32)
        drawn = jnp.minimum(drawn, row.size - 1)
        return drawn % states, state * actions * states + drawn

    state, drawn = jax.lax.scan(move, state, uniforms)
    return state, drawn // states, drawn % states


@float64
def evaluate_exact(task: Task, *, outer: int, truncate: ArrayLike = True, first: ArrayLike | None = None) -> Array:
    """Algorithm 2 with an exact inner loop (K = infinity): the targets' weights [outer + 1, d].

    xi_{t+1} = A~^+ E_mu[phi (r + gamma v_t(s'))], the least-squares fit of least length. Gradient steps from zero
    lead there, also where A~ is singular, because they never leave its range.
    """
    return _evaluate_exact(task, projection(task), _limits(task, truncate), _first(task, first), outer)


@functools.partial(jax.jit, static_argnames=("outer",))
def _evaluate_exact(task: Task, fit: Array, limits: Array, first: Array, outer: int) -> Array:
    def iterate(weights: Array, _: None) -> tuple[Array, Array]:
        backup = task.r + task.gamma * jnp.einsum("sax,x->sa", task.P, next_values(task, weights, limits))
        weights = fit @ backup.ravel()
        return weights, weights

    return jnp.concatenate([first[None], jax.lax.scan(iterate, first, None, length=outer)[1]])


@float64
def projection(task: Task) -> Array:
    """[d, S A], the weights of the least-squares fit in the data's distribution: A~^+ Phi' D."""
    root = jnp.asarray(invert(covariance(task.phi, task.pairs)).root)
    phi, _ = task.rows
    return root @ root @ (phi * task.pairs.ravel()[:, None]).T


@float64
def fixed_point(task: Task, truncate: bool = True, limit: int = 100_000, tolerance: float = 1e-12) -> Array:
    """The weights [d] at which the exact Algorithm 2 comes to rest, from zero; NaN where it does not in `limit`."""
    weights, block = np.zeros(task.phi.shape[-1]), 100
    for _ in range(-(-limit // block)):
        path = evaluate_exact(task, outer=block, truncate=truncate, first=weights)
        weights = path[-1]
        if not np.isfinite(weights).all():
            break
        if np.abs(path[-1] - path[-2]).max() <= tolerance * max(1.0, np.abs(weights).max()):
            return weights
    return np.full_like(weights, np.nan)
