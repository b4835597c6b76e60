"""What every algorithm offers to the training loop, and the order of its updates."""

import abc
import dataclasses
import math
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray
import optax

from fcritic.errors import UsageError, require_at_least
from fcritic.types import EnvSpec, Metrics, Transition

State = TypeVar("State")
Memory = Any


class Learner(eqx.Module):
    """Parameters and the state of their optimiser."""

    params: Any
    opt_state: Any

    @staticmethod
    def start(params: Any, optimiser: optax.GradientTransformation) -> "Learner":
        """Parameters that have not been trained yet."""
        return Learner(params, optimiser.init(params))

    def apply(self, grads: Any, optimiser: optax.GradientTransformation) -> "Learner":
        """One step of the optimiser, downhill."""
        updates, opt_state = optimiser.update(grads, self.opt_state, self.params)
        return Learner(optax.apply_updates(self.params, updates), opt_state)


@dataclasses.dataclass(frozen=True)
class AbstractAgent(abc.ABC, Generic[State]):
    """An algorithm for one seed: numbers only. What it learns lives in its `State`, a pytree of arrays.

    Each field's docstring gives its meaning, the paper's symbol and where the default comes from.
    """

    batch_size: int = 256
    """Transitions per update, m (Table `tab:hyperparams`)."""
    discount: float = 0.99
    """Discount factor, gamma (Table `tab:hyperparams`)."""
    critic_steps: int = 3
    """Critic updates before each actor update, G (text: fixed at 3; 2 or 3 suffice, 1 is unstable)."""
    cycles: int = 1
    """Rounds of `critic_steps` + 1 updates per iteration (paper: 1; a public fork of its code base: 3)."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"--{field.name.replace('_', '-')} must be a finite number, not {value}")
        require_at_least(1, batch_size=self.batch_size, critic_steps=self.critic_steps, cycles=self.cycles)
        if not 0 <= self.discount < 1:
            raise UsageError(f"--discount must be in [0, 1), not {self.discount:g}")

    @abc.abstractmethod
    def init(self, spec: EnvSpec, key: PRNGKeyArray) -> State:
        """The state before any training."""

    @abc.abstractmethod
    def begin_episode(self, key: PRNGKeyArray) -> Memory:
        """What one environment remembers for an episode, drawn at its start."""

    @abc.abstractmethod
    def act(
        self, state: State, memory: Memory, obs: Float[Array, " obs"], key: PRNGKeyArray
    ) -> Float[Array, " act"]:
        """The action in one environment during training."""

    @abc.abstractmethod
    def critic_step(self, state: State, batch: Transition, key: PRNGKeyArray) -> tuple[State, Metrics]:
        """One update of the critics and their targets."""

    @abc.abstractmethod
    def actor_step(self, state: State, batch: Transition, key: PRNGKeyArray) -> tuple[State, Metrics]:
        """One update of the actors."""

    @abc.abstractmethod
    def evaluation_policies(self, state: State) -> Any:
        """The policies to evaluate, stacked along a leading axis `actors`."""

    @abc.abstractmethod
    def describe(self, spec: EnvSpec) -> dict[str, Any]:
        """The sizes and numbers that a paper's table would list, under plain names."""

    @abc.abstractmethod
    def parts(self, state: State) -> dict[str, Any]:
        """The parameters, part by part, one member of each ensemble beside the whole."""

    def cheaper(self) -> "dict[str, AbstractAgent]":
        """Variants that cost less, by the options that make them."""
        return {}

    @property
    def batches_per_iteration(self) -> int:
        """How many batches one `update` uses."""
        return self.cycles * (self.critic_steps + 1)


def update(
    agent: AbstractAgent[State], state: State, batches: Transition, key: PRNGKeyArray
) -> tuple[State, Metrics]:
    """One iteration of learning: G critic updates and one actor update, `cycles` times (lines 10-22).

    `batches` has a leading axis of `agent.batches_per_iteration`: every update has a batch of its own.
    """
    grouped = jax.tree.map(lambda leaf: leaf.reshape(agent.cycles, -1, *leaf.shape[1:]), batches)

    def critic_step(state: State, inputs: tuple[Transition, PRNGKeyArray]) -> tuple[State, Metrics]:
        return agent.critic_step(state, *inputs)

    def cycle(state: State, inputs: tuple[Transition, PRNGKeyArray]) -> tuple[State, Metrics]:
        group, cycle_key = inputs
        critic_key, actor_key = jax.random.split(cycle_key)
        critic_batches, actor_batch = (
            jax.tree.map(lambda leaf: leaf[:-1], group),
            jax.tree.map(lambda leaf: leaf[-1], group),
        )
        critic_keys = jax.random.split(critic_key, agent.critic_steps)
        state, critic_metrics = jax.lax.scan(critic_step, state, (critic_batches, critic_keys))
        state, actor_metrics = agent.actor_step(state, actor_batch, actor_key)
        return state, jax.tree.map(lambda leaf: leaf.mean(axis=0), critic_metrics) | actor_metrics

    state, metrics = jax.lax.scan(cycle, state, (grouped, jax.random.split(key, agent.cycles)))
    return state, jax.tree.map(lambda leaf: leaf.mean(axis=0), metrics)
