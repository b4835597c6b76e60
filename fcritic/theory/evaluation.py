"""Algorithm 2: evaluation of a target policy from another policy's data, with a target that is held still.

The critic is linear, Q(s, a) = <phi^pi(s, a), xi>. An outer iteration fits r + gamma E_pi[Q_target(s', .)] by K
gradient steps on sampled transitions, then copies the weights to the target. The mean over the target policy's
actions is exact, so there is no importance ratio.
"""

import functools
from typing import NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fcritic.errors import UsageError, did_you_mean
from fcritic.theory.mdp import FiniteMDP, Transitions
from fcritic.theory.precision import float64
from fcritic.theory.problems import Problem
from fcritic.theory.trust import covariance, invert

SAMPLINGS = ("independent", "trajectory")
"""How transitions are drawn: s ~ d_mu afresh each time, or along one path of mu (Markovian)."""


class Task(NamedTuple):
    """What an evaluation reads. Only arrays, so one compiled program serves all policies of a size."""

    phi: Array
    """phi^pi[S, A, d], the features of the target policy."""
    r: Array
    """r[S, A]."""
    gamma: Array
    target: Array
    """pi[S, A]."""
    behaviour: Array
    """mu[S, A]."""
    P: Array
    """p(s'|s, a) as [S, A, S]."""
    states: Array
    """d_mu[S], the distribution of states in the data."""

    @property
    def pairs(self) -> Array:
        """The distribution of pairs in the data, [S, A]."""
        return self.states[:, None] * self.behaviour

    @property
    def mdp(self) -> FiniteMDP:
        """The MDP, with the data's states as the first ones."""
        return FiniteMDP(self.P, self.r, float(self.gamma), self.states)

    @property
    def target_pairs(self) -> np.ndarray:
        """The stationary distribution of pairs under the target policy, [S, A]."""
        return self.mdp.pairs(self.mdp.stationary(self.target), self.target)


def make_task(mdp: FiniteMDP, behaviour: ArrayLike, target: ArrayLike, phi: ArrayLike) -> Task:
    """The evaluation of `target` from the stationary data of `behaviour`, with features `phi[S, A, d]`."""
    mu, pi, phi = np.asarray(behaviour, float), np.asarray(target, float), np.asarray(phi, float)
    if phi.ndim != 3 or phi.shape[:2] != mdp.r.shape:
        raise UsageError(
            f"features must have the shape [S, A, d] = {list(mdp.r.shape)} and d, not {list(phi.shape)}"
        )
    mdp.policy(pi)
    return Task(phi, mdp.r, np.float64(mdp.gamma), pi, mu, mdp.P, mdp.stationary(mu))


def task_of(problem: Problem) -> Task:
    """The evaluation that a problem poses."""
    return make_task(problem.mdp, problem.behaviour, problem.target, problem.features(problem.target))


@float64
def evaluate(
    task: Task,
    keys: Array,
    *,
    outer: int,
    inner: int,
    step: ArrayLike,
    truncate: bool = True,
    reset: bool = True,
    sampling: str = "independent",
    first: ArrayLike | None = None,
) -> Array:
    """Algorithm 2 for each of several seeds: the targets' weights [seeds, outer + 1, d]; the last is the result.

    The defaults are as printed. `reset=False` starts the inner loop from the target instead of zero.

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
    first = jnp.zeros(task.phi.shape[-1]) if first is None else jnp.asarray(first, dtype=jnp.float64)
    return _evaluate(task, keys, jnp.asarray(step, jnp.float64), first, outer, inner, truncate, reset, sampling)


@functools.partial(jax.jit, static_argnames=("outer", "inner", "truncate", "reset", "sampling"))
def _evaluate(
    task: Task,
    keys: Array,
    step: Array,
    first: Array,
    outer: int,
    inner: int,
    truncate: bool,
    reset: bool,
    sampling: str,
) -> Array:
    def one_seed(key: Array) -> Array:
        def iterate(carry: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Array]:
            weights, state = carry
            state, pairs, following = sample(task, key, inner, sampling, state)
            start = jnp.zeros_like(weights) if reset else weights
            weights = _inner_loop(task, start, next_values(task, weights, truncate), pairs, following, step)
            return (weights, state), weights

        first_key, key = jax.random.split(key)
        state = jax.random.categorical(first_key, jnp.log(task.states)).astype(jnp.int32)
        targets = jax.lax.scan(iterate, (first, state), jax.random.split(key, outer))[1]
        return jnp.concatenate([first[None], targets])

    return jax.vmap(one_seed)(keys)


def _inner_loop(task: Task, weights: Array, values: Array, pairs: Array, following: Array, step: Array) -> Array:
    """K gradient steps on (phi' xi - y)^2 / 2 with y = r + gamma v(s'), the target's values v being fixed."""
    phi, rewards = _by_pair(task)
    targets = rewards[pairs] + task.gamma * values[following]

    def move(weights: Array, seen: tuple[Array, Array]) -> tuple[Array, None]:
        pair, target = seen
        features = phi[pair]
        return weights + step * (target - jnp.dot(features, weights)) * features, None

    return jax.lax.scan(move, weights, (pairs, targets), unroll=4)[0]


def next_values(task: Task, weights: Array, truncate: bool) -> Array:
    """v(s) = sum_a pi(a|s) of the target's value, cut to [0, 1 / (1 - gamma)] where `truncate`; [S]."""
    values = jnp.einsum("sad,d->sa", task.phi, weights)
    if truncate:
        values = jnp.clip(values, 0.0, 1 / (1 - task.gamma))
    return jnp.einsum("sa,sa->s", task.target, values)


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

    state, drawn = jax.lax.scan(move, state, uniforms, unroll=4)
    return state, drawn // states, drawn % states


@float64
def evaluate_exact(task: Task, *, outer: int, truncate: bool = True, first: ArrayLike | None = None) -> Array:
    """Algorithm 2 with an exact inner loop (K = infinity): the targets' weights [outer + 1, d].

    xi_{t+1} = A~^+ E_mu[phi (r + gamma v_t(s'))], the least-squares fit of least length. Gradient steps from zero
    lead there, also where A~ is singular, because they never leave its range.
    """
    first = jnp.zeros(task.phi.shape[-1]) if first is None else jnp.asarray(first, dtype=jnp.float64)
    return _evaluate_exact(task, first, outer, truncate)


@functools.partial(jax.jit, static_argnames=("outer", "truncate"))
def _evaluate_exact(task: Task, first: Array, outer: int, truncate: bool) -> Array:
    fit = projection(task)

    def iterate(weights: Array, _: None) -> tuple[Array, Array]:
        backup = task.r + task.gamma * jnp.einsum("sax,x->sa", task.P, next_values(task, weights, truncate))
        weights = fit @ backup.ravel()
        return weights, weights

    return jnp.concatenate([first[None], jax.lax.scan(iterate, first, None, length=outer)[1]])


def projection(task: Task) -> Array:
    """[d, S A], the weights of the least-squares fit in the data's distribution: A~^+ Phi' D."""
    root = jnp.asarray(invert(covariance(task.phi, task.pairs)).root)
    phi, _ = _by_pair(task)
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


def empirical(task: Task, transitions: Transitions) -> Task:
    """The same task on a data set: its frequencies stand for d_mu, mu and p. Pairs never seen weigh nothing."""
    counts = np.zeros(np.shape(task.P))
    np.add.at(counts, (transitions.state, transitions.action, transitions.next_state), 1.0)
    pairs = counts.sum(-1)
    states = pairs.sum(-1)
    return task._replace(
        P=counts / np.maximum(pairs, 1)[:, :, None],
        behaviour=pairs / np.maximum(states, 1)[:, None],
        states=states / states.sum(),
    )


def value_errors(task: Task, weights: ArrayLike) -> np.ndarray:
    """||Q - Q^pi|| in L2(d_pi), the root of the mean squared error, for weights [..., d]."""
    error = np.einsum("sad,...d->...sa", task.phi, weights) - task.mdp.q(task.target)
    with np.errstate(over="ignore", invalid="ignore"):  # weights that ran away
        return np.sqrt(np.einsum("...sa,sa->...", error**2, task.target_pairs))


def _by_pair(task: Task) -> tuple[Array, Array]:
    """Features and rewards with one row per pair, in the order s A + a."""
    return jnp.reshape(task.phi, (-1, task.phi.shape[-1])), jnp.ravel(task.r)
