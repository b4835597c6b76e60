"""Rivals of Algorithm 2, other evaluations from off-policy data, and of Algorithm 3, other actor-critics.

Rivals in evaluation run on the same tasks. All learn Q(s, a) = <phi(s, a), xi> from transitions of mu and take the
mean over the target policy's actions in s'. With x = phi(s, a) and x' = sum_a pi(a|s') phi(s', a), the TD error is
delta = r + gamma <x', xi> - <x, xi>. Rivals in control share the loop and the critic of Algorithm 3 and differ in
data, epochs and gradient.
"""

import abc
from collections.abc import Hashable
import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fcritic.errors import UsageError
from fcritic.theory.control import Settings, on_policy, two_timescale
from fcritic.theory.evaluation import Task, sample
from fcritic.theory.mdp import float64
from fcritic.theory.trust import RANK_TOLERANCE

# Rivals in evaluation


class Seen(NamedTuple):
    """A transition in features, the input of an update."""

    x: Array
    """phi(s, a), [d]."""
    reward: Array
    following: Array
    """x', [d]."""
    gamma: Array
    ratio: Array
    """rho = pi(a|s) / mu(a|s), the importance ratio."""


class AbstractRival(abc.ABC):
    """A learner with one update per transition: a frozen dataclass of numbers."""

    needs_ratio: ClassVar[bool] = False
    """Whether it uses importance ratios, which exist only where mu takes every action that pi takes."""

    def init(self, weights: Array) -> Any:
        """Returns the learner's memory at its first weights; the weights are its first element."""
        return (weights,)

    @abc.abstractmethod
    def update(self, memory: Any, seen: Seen) -> Any:
        """Returns the memory after one transition."""


def _learner(kind: type) -> type:
    """Returns a frozen dataclass whose numbers are data to JAX, so that all step sizes share a compiled program."""
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(kind))


@_learner
class SemiGradient(AbstractRival):
    """Semi-gradient TD, xi += alpha delta x, which may diverge on off-policy data."""

    step: float

    def update(self, memory: Any, seen: Seen) -> Any:
        """Adds alpha delta x."""
        (weights,) = memory
        return (weights + self.step * _td_error(weights, weights, seen) * seen.x,)


@_learner
class Corrected(AbstractRival):
    """TD with gradient corrections, TDRC: xi += alpha (delta x - gamma <h, x> x'), h follows the mean of delta x.

    h += alpha ((delta - <h, x>) x - ridge h). A ridge of zero makes it TDC with equal step sizes.
    """

    step: float
    ridge: float = 1.0

    def init(self, weights: Array) -> Any:
        """Returns the weights and h = 0."""
        return weights, jnp.zeros_like(weights)

    def update(self, memory: Any, seen: Seen) -> Any:
        """Updates both."""
        weights, helper = memory
        delta, expected = _td_error(weights, weights, seen), jnp.dot(helper, seen.x)
        moved = weights + self.step * (delta * seen.x - seen.gamma * expected * seen.following)
        return moved, helper + self.step * ((delta - expected) * seen.x - self.ridge * helper)


@_learner
class Emphatic(AbstractRival):
    """Emphatic TD(0) for pairs, xi += alpha F delta x with the follow-on trace F = 1 + gamma rho F.

    Its mean update is stable, but the trace's variance is large and can be infinite. It needs one trajectory.
    """

    step: float
    needs_ratio: ClassVar[bool] = True

    def init(self, weights: Array) -> Any:
        """Returns the weights and the trace before the first step."""
        return weights, jnp.zeros(())

    def update(self, memory: Any, seen: Seen) -> Any:
        """Updates the trace, then the weights."""
        weights, trace = memory
        trace = 1.0 + seen.gamma * seen.ratio * trace
        return weights + self.step * trace * _td_error(weights, weights, seen) * seen.x, trace


@_learner
class SoftTarget(AbstractRival):
    """TD with a slow target and a ridge on the weights: a large ridge makes it stable, and biased.

    xi += alpha (delta x - ridge xi) with the target's weights in x', then target += rate (xi - target).
    """

    step: float
    rate: float = 0.01
    ridge: float = 0.01

    def init(self, weights: Array) -> Any:
        """Returns the weights and an equal target."""
        return weights, weights

    def update(self, memory: Any, seen: Seen) -> Any:
        """Updates both."""
        weights, target = memory
        delta = _td_error(weights, target, seen)
        weights = weights + self.step * (delta * seen.x - self.ridge * weights)
        return weights, target + self.rate * (weights - target)


def _td_error(weights: Array, target: Array, seen: Seen) -> Array:
    return seen.reward + seen.gamma * jnp.dot(seen.following, target) - jnp.dot(seen.x, weights)


@float64
def learn(rival: AbstractRival, task: Task, keys: Array, **options: Any) -> Array:
    """Runs one rival with the options of `learn_all` and returns its weights [seeds, records + 1, d]."""
    return learn_all({"only": rival}, task, keys, **options)["only"]


@float64
def learn_all(
    rivals: dict[Hashable, AbstractRival],
    task: Task,
    keys: Array,
    *,
    records: int,
    every: int,
    sampling: str = "trajectory",
    first: ArrayLike | None = None,
) -> dict[Hashable, Array]:
    """Runs rivals side by side on the same `records * every` transitions per seed.

    Returns the weights [seeds, records + 1, d] of each.
    """
    needed = any(rival.needs_ratio for rival in rivals.values())
    ratios = jnp.asarray(_ratios(task) if needed else np.ones(np.shape(task.r)))
    first = jnp.zeros(task.phi.shape[-1]) if first is None else jnp.asarray(first, dtype=jnp.float64)
    rivals = jax.tree.map(lambda number: jnp.asarray(number, jnp.float64), rivals)
    return _learn_all(rivals, task, ratios, keys, first, records, every, sampling)


def _ratios(task: Task) -> np.ndarray:
    """Returns pi(a|s) / mu(a|s) [S, A]; rejects a behaviour for which they do not exist."""
    target, behaviour = np.asarray(task.target), np.asarray(task.behaviour)
    visited = np.asarray(task.states)[:, None] > 0
    if (visited & (target > 0) & (behaviour == 0)).any():
        raise UsageError("importance ratios do not exist: behaviour never takes some action of the target")
    return np.divide(target, behaviour, out=np.zeros_like(target), where=behaviour > 0)


@functools.partial(jax.jit, static_argnames=("records", "every", "sampling"))
def _learn_all(
    rivals: dict[Hashable, AbstractRival],
    task: Task,
    ratios: Array,
    keys: Array,
    first: Array,
    records: int,
    every: int,
    sampling: str,
) -> dict[Hashable, Array]:
    phi, rewards = task.rows
    mean_next = jnp.einsum("sa,sad->sd", task.target, task.phi)

    def one_step(memories: dict[Hashable, Any], drawn: tuple[Array, Array]) -> tuple[dict[Hashable, Any], None]:
        pair, following = drawn
        seen = Seen(phi[pair], rewards[pair], mean_next[following], task.gamma, jnp.ravel(ratios)[pair])
        return {name: rival.update(memories[name], seen) for name, rival in rivals.items()}, None

    def one_record(carry: tuple[dict[Hashable, Any], Array], key: Array) -> tuple[Any, dict[Hashable, Array]]:
        memories, state = carry
        state, pairs, following = sample(task, key, every, sampling, state)
        memories = jax.lax.scan(one_step, memories, (pairs, following))[0]
        return (memories, state), {name: memory[0] for name, memory in memories.items()}

    def one_seed(key: Array) -> dict[Hashable, Array]:
        first_key, key = jax.random.split(key)
        state = jax.random.categorical(first_key, jnp.log(task.states)).astype(jnp.int32)
        start = {name: rival.init(first) for name, rival in rivals.items()}
        kept = jax.lax.scan(one_record, (start, state), jax.random.split(key, records))[1]
        return {name: jnp.concatenate([first[None], each]) for name, each in kept.items()}

    return jax.vmap(one_seed)(keys)


def lstd(task: Task) -> np.ndarray:
    """Returns the weights [d] of LSTD-Q, the fixed point of TD with E_mu[delta x] = 0, by the pseudo-inverse.

    On the true task this is an oracle, as is fitted-Q, `fcritic.theory.evaluation.evaluate_exact`.
    """
    size = task.phi.shape[-1]
    phi = np.reshape(task.phi, (-1, size))
    following = np.einsum("sax,xb,xbd->sad", task.P, task.target, task.phi).reshape(-1, size)
    weighted = phi * np.ravel(task.pairs)[:, None]
    matrix = weighted.T @ (phi - task.gamma * following)
    return np.linalg.pinv(matrix, rcond=RANK_TOLERANCE) @ (weighted.T @ np.ravel(task.r))


# Rivals in control


def on_policy_actor_critic(settings: Settings) -> Settings:
    """Returns the settings of the classic actor-critic: on-policy data, visits and evaluation before every step."""
    return dataclasses.replace(refresh_every_step(settings), gradient="on-policy")


def off_pac(settings: Settings) -> Settings:
    """Returns the settings of Off-PAC: a fixed behaviour, an evaluation before every step, no second term."""
    return dataclasses.replace(two_timescale(never_refresh(settings)), gradient="first")


def emphatic_actor_critic(settings: Settings) -> Settings:
    """Returns the settings of Off-PAC with states weighted by their exact emphasis, such a method's best case."""
    return dataclasses.replace(off_pac(settings), gradient="emphatic")


def never_refresh(settings: Settings) -> Settings:
    """Returns the settings of Algorithm 3 without its coverage test: the first behaviour policy stays."""
    return dataclasses.replace(settings, kappa=math.inf)


def refresh_every_step(settings: Settings) -> Settings:
    """Returns the settings of Algorithm 3 without trust: new data and evaluation before every step, both terms."""
    return on_policy(two_timescale(settings))


def exact_gradient(settings: Settings) -> Settings:
    """Returns the settings of ascent along the exact gradient, without a critic or samples."""
    return dataclasses.replace(settings, gradient="exact", threshold=math.inf, kappa=math.inf)


RIVALS = {
    "on-policy actor-critic": on_policy_actor_critic,
    "Off-PAC": off_pac,
    "emphatic actor-critic": emphatic_actor_critic,
    "never refreshing": never_refresh,
    "refreshing every step": refresh_every_step,
    "exact policy gradient": exact_gradient,
}
"""Functions from the settings of Algorithm 3 to those of a rival."""
