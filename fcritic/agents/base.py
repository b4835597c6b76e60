"""What every algorithm offers to the training loop, and the order of its updates."""

import abc
from collections.abc import Callable
import dataclasses
import math
from typing import Any, ClassVar, Generic, Literal, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from fcritic.errors import UsageError, require_at_least
from fcritic.networks.precision import Precision, on_gpu
from fcritic.types import EnvSpec, Metrics, Transition

State = TypeVar("State")
Memory = Any
ActorBatch = Literal["own", "last"]
MOST_UNROLLED = 3
"""Critic updates that are written out one after the other; more would take long to compile."""


@dataclasses.dataclass(frozen=True)
class AbstractAgent(abc.ABC, Generic[State]):
    """An algorithm for one seed: numbers only. What it learns lives in its `State`, a pytree of arrays.

    Each field's docstring gives its meaning, the paper's symbol and where the default comes from.
    """

    auto_on_gpu: ClassVar[Precision] = "float32"
    """The precision that `auto` stands for on a GPU."""
    critic_metrics: ClassVar[tuple[str, ...]] = ("critic_loss", "critic_value", "target_value", "critic_spread")
    """The names of what `critic_step` reports."""
    actor_metrics: ClassVar[tuple[str, ...]] = ("actor_value",)
    """The names of what `actor_step` reports."""
    packed_kinds: ClassVar[tuple[type, ...]] = ()
    """The networks that are one vector each on a GPU; see `fcritic.kernels.packing`."""
    unrolled_on_gpu: ClassVar[bool] = False
    """Whether few critic updates are no loop there: what one needs is begun before the last has come to its end."""

    batch_size: int = 256
    """Transitions per update, m (Table `tab:hyperparams`)."""
    discount: float = 0.99
    """Discount factor, gamma (Table `tab:hyperparams`)."""
    critic_steps: int = 3
    """Critic updates before each actor update, G (text: fixed at 3; 2 or 3 suffice, 1 is unstable)."""
    cycles: int = 1
    """Rounds of `critic_steps` + 1 updates per iteration (paper: 1; a public fork of its code base: 3)."""
    actor_delay: int = 1
    """Cycles per actor update (paper: 1; TD3's delayed actor: 2)."""
    actor_batch: ActorBatch = "own"
    """Batch of the actor update: its own (line 18), or the last critic update's (published SAC and TD3)."""

    precision: Precision = "auto"
    """In what the critics of an update compute: `float32`, `bfloat16` (parameters, sums and values in float32), or
    `auto`: bfloat16 for functional critics on a GPU, float32 otherwise."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"--{field.name.replace('_', '-')} must be a finite number, not {value}")
        counts = ("batch_size", "critic_steps", "cycles", "actor_delay")
        require_at_least(1, **{name: getattr(self, name) for name in counts})
        if not 0 <= self.discount < 1:
            raise UsageError(f"--discount must be in [0, 1), not {self.discount:g}")

    @abc.abstractmethod
    def init(self, spec: EnvSpec, key: PRNGKeyArray) -> State:
        """The state before any training."""

    @abc.abstractmethod
    def begin_episode(self, spec: EnvSpec, key: PRNGKeyArray) -> Memory:
        """What one environment remembers for an episode, drawn at its start."""

    @abc.abstractmethod
    def rollout_policy(self, state: State) -> Any:
        """The part of the state that `act` needs, so that a call does not carry the rest."""

    @abc.abstractmethod
    def act(
        self, policy: Any, memory: Memory, obs: Float[Array, " obs"], key: PRNGKeyArray
    ) -> tuple[Float[Array, " act"], Memory]:
        """The action in one environment during training, and what the environment remembers after it."""

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
    def disagreement(self, state: State, obs: Float[Array, "batch obs"]) -> Float[Array, " actors"]:
        """How far the critics differ about each policy that is evaluated.

        The deviation over critics of Q(pi, s, pi(s)), averaged over states, which are as the networks see them.
        """

    @abc.abstractmethod
    def describe(self, spec: EnvSpec) -> dict[str, Any]:
        """The sizes and numbers that a paper's table would list, under plain names."""

    @abc.abstractmethod
    def parts(self, state: State) -> dict[str, Any]:
        """The parameters, part by part, one member of each ensemble beside the whole."""

    def cheaper(self) -> "dict[str, AbstractAgent]":
        """Variants that cost less, by the options that make them."""
        return {}

    def foresee(self, state: State, batches: Transition, keys: Key[Array, " updates"]) -> Transition:
        """What can be computed for the batches of all critic updates at once, since these do not change it.

        `keys` are those of the updates.
        """
        return batches

    @property
    def numbered(self) -> bool:
        """Whether `critic_step` needs to know which transition is which."""
        return False

    @property
    def batches_per_iteration(self) -> int:
        """How many batches one `update` uses."""
        return self.cycles * (self.critic_steps + (self.actor_batch == "own"))

    @property
    def compute_dtype(self) -> jnp.dtype:
        """What `precision` means here and now."""
        auto = self.auto_on_gpu if on_gpu() else "float32"
        return jnp.dtype(auto if self.precision == "auto" else self.precision)

    @property
    def written_out(self) -> bool:
        """Whether the critic updates of a cycle are written out here and now."""
        return self.unrolled_on_gpu and on_gpu() and self.cycles * self.critic_steps <= MOST_UNROLLED

    def actor_due(self, iteration: int) -> tuple[bool, ...]:
        """In which cycles of an iteration the actors are updated: the last of every `actor_delay`."""
        numbers = range(iteration * self.cycles, (iteration + 1) * self.cycles)
        return tuple(number % self.actor_delay == self.actor_delay - 1 for number in numbers)

    def actor_updates_before(self, iteration: int) -> int:
        """Actor updates in iterations 0 to `iteration` - 1, if all of them learned."""
        return iteration * self.cycles // self.actor_delay


def update(
    agent: AbstractAgent[State],
    state: State,
    batches: Transition,
    key: PRNGKeyArray,
    actor_due: tuple[bool, ...],
    once: Int[Array, ""] | int = 1,
) -> tuple[State, tuple[Metrics, Metrics]]:
    """One iteration of learning: G critic updates and one actor update, `cycles` times (lines 10-22).

    `batches` has a leading axis of `agent.batches_per_iteration`; `actor_due` says in which cycles the actors are
    updated. Returns the sums of the critic updates' metrics and of the actor updates' metrics. `once` is 1, which
    a GPU's compiler must not know, or it would take a loop of one round apart.
    """
    groups = jax.tree.map(lambda leaf: leaf.reshape(agent.cycles, -1, *leaf.shape[1:]), batches)
    keys = jax.random.split(key, agent.cycles)
    if len(actor_due) > 1 and len(set(actor_due)) == 1:
        one = lambda state, inputs: _cycle(agent, state, *inputs, actor_due[0])
        state, metrics = jax.lax.scan(one, state, (groups, keys))
        return state, _sum_first_axis(metrics)
    each = []
    for number, due in enumerate(actor_due):
        group = jax.tree.map(lambda leaf, number=number: leaf[number], groups)
        cycle = lambda state, group=group, number=number, due=due: _cycle(agent, state, group, keys[number], due)
        state, metrics = _in_a_loop(agent, cycle, state, once) if agent.written_out else cycle(state)
        each.append(metrics)
    return state, jax.tree.map(lambda *parts: sum(parts), *each)


def _in_a_loop(
    agent: AbstractAgent, cycle: Callable[[State], tuple[State, Any]], state: State, once: Int[Array, ""] | int
) -> tuple[State, tuple[Metrics, Metrics]]:
    """A cycle in a loop of one round.

    In the body of a loop what cuDNN fills with zeros is filled by kernels. Elsewhere the driver does it by itself,
    and all that follows waits for several microseconds, eight times in an update of attention.
    """
    none = tuple({name: jnp.zeros(()) for name in names} for names in (agent.critic_metrics, agent.actor_metrics))
    return jax.lax.fori_loop(0, once, lambda _, carried: cycle(carried[0]), (state, none))


def _cycle(
    agent: AbstractAgent[State], state: State, batches: Transition, key: PRNGKeyArray, actor_due: bool
) -> tuple[State, tuple[Metrics, Metrics]]:
    """G critic updates, then one of the actors if it is due; metrics of zero if not."""
    critic_key, actor_key = jax.random.split(key)
    critic_keys = jax.random.split(critic_key, agent.critic_steps)
    critic_batches = jax.tree.map(lambda leaf: leaf[: agent.critic_steps], batches)
    critic_batches = agent.foresee(state, critic_batches, critic_keys)
    actor_batch = jax.tree.map(lambda leaf: leaf[-1], batches)

    def critic_step(state: State, inputs: tuple[Transition, PRNGKeyArray]) -> tuple[State, Array]:
        state, metrics = agent.critic_step(state, *inputs)
        return state, jnp.stack([metrics[name] for name in agent.critic_metrics])  # one array: one kernel writes it

    state, reported = jax.lax.scan(critic_step, state, (critic_batches, critic_keys), unroll=agent.written_out)
    critic_metrics = dict(zip(agent.critic_metrics, reported.sum(axis=0), strict=True))
    if actor_due:
        state, actor_metrics = agent.actor_step(state, actor_batch, actor_key)
    else:
        actor_metrics = {name: jnp.zeros(()) for name in agent.actor_metrics}
    return state, (critic_metrics, actor_metrics)


def _sum_first_axis(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.sum(axis=0), tree)
