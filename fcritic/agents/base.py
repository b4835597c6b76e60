"""The interface of an algorithm to the training loop, its parameters, and the order of its updates."""

import abc
from collections.abc import Callable
import dataclasses
import math
from typing import Any, ClassVar, Generic, Literal, TypeVar

import equinox as eqx
import jax
from jax.experimental.layout import Layout, with_layout_constraint
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray
import numpy as np
import optax

from fcritic.errors import UsageError, require_at_least
from fcritic.kernels import packing
from fcritic.networks.precision import Precision, on_gpu
from fcritic.types import EnvSpec, Metrics, Transition

State = TypeVar("State")
Memory = Any
ActorBatch = Literal["own", "last"]
MOST_UNROLLED = 3
"""Critic updates that are written out one after the other; more would take long to compile."""


class Learner(eqx.Module):
    """Parameters that learn, and the state of their optimiser."""

    params: Any
    """As they are stored: a network, or on a GPU its numbers as vectors (`fcritic.kernels.packing`)."""
    opt_state: Any

    @property
    def net(self) -> Any:
        """The network itself."""
        return net(self.params)

    @property
    def updates(self) -> Int[Array | np.ndarray, "*axes"]:
        """Updates so far, as the optimiser counts them, wherever in its chain."""
        counts = optax.tree.get_all_with_path(self.opt_state, "count")
        if not counts:
            raise TypeError("this optimiser counts no updates; chain it with one that does, such as Adam")
        return counts[0][1]

    @property
    def moments(self) -> list[Any]:
        """What the links of the optimiser's chain remember, without those that remember nothing."""
        is_part = lambda node: hasattr(node, "_fields")
        return [part for part in jax.tree.leaves(self.opt_state, is_leaf=is_part) if jax.tree.leaves(part)]

    @staticmethod
    def start(params: Any, optimiser: optax.GradientTransformation) -> "Learner":
        """Returns parameters that have not been trained yet; the state of every optimiser here begins with zeros.

        They are made on the host: `optimiser.init` itself would compile a program for each shape of a parameter. It
        is asked once, with an empty array for the parameters: where that comes back, they have their moments, which
        are NumPy's until they are handed over with all else.
        """
        zeros = lambda leaf: np.zeros(leaf.shape, leaf.dtype)
        form = jax.eval_shape(optimiser.init, np.zeros(0, np.float32))
        moments = lambda leaf: jax.tree.map(zeros, params) if leaf.shape == (0,) else zeros(leaf)
        return Learner(params, jax.tree.map(moments, form))

    def apply(self, grads: Any, optimiser: optax.GradientTransformation) -> "Learner":
        """Returns the learner after one step of the optimiser, downhill."""
        grads = packing.pack_like(self.params, _row_major(grads))
        updates, opt_state = optimiser.update(grads, self.opt_state, self.params)
        return Learner(optax.apply_updates(self.params, updates), opt_state)


def net(stored: Any) -> Any:
    """Returns networks as such, from the form in which a state stores them."""
    return packing.unpack(stored)


def _row_major(grads: Any) -> Any:
    """Gradients in the order of memory that the parameters have.

    A GPU's compiler may choose another order for the gradient of a weight. Parameters, moments and targets would
    follow it inside the loop over critic updates, and be transposed and copied in each of them.
    """
    if not on_gpu():
        return grads
    return jax.tree.map(lambda leaf: with_layout_constraint(leaf, Layout(tuple(range(leaf.ndim)))), grads)


@dataclasses.dataclass(frozen=True)
class AbstractAgent(abc.ABC, Generic[State]):
    """An algorithm for one seed: numbers only. The learned part is its `State`, a pytree of arrays.

    Each field's docstring gives its meaning, the paper's symbol and where the default comes from.
    """

    auto_on_gpu: ClassVar[Precision] = "float32"
    """The precision that `auto` stands for on a GPU."""
    critic_metrics: ClassVar[tuple[str, ...]] = ("critic_loss", "critic_value", "target_value", "critic_spread")
    """The names of the metrics of `critic_step`."""
    actor_metrics: ClassVar[tuple[str, ...]] = ("actor_value",)
    """The names of the metrics of `actor_step`."""
    packed_kinds: ClassVar[tuple[type, ...]] = ()
    """The networks that are one vector each on a GPU; see `fcritic.kernels.packing`."""
    unrolled_on_gpu: ClassVar[bool] = False
    """Whether few critic updates are written out there: the next begins before the last has come to its end."""

    batch_size: int = 256
    """Transitions per update, m (Table 1)."""
    discount: float = 0.99
    """Discount factor, gamma (Table 1)."""
    critic_steps: int = 3
    """Critic updates before each actor update, G (text: fixed at 3; 2 or 3 suffice, 1 is unstable)."""
    cycles: int = 1
    """Rounds of `critic_steps` + 1 updates per iteration (paper: 1)."""
    actor_delay: int = 1
    """Cycles per actor update (paper: 1; TD3's delayed actor: 2)."""
    actor_batch: ActorBatch = "own"
    """Batch of the actor update: its own (Algorithm 5, line 18), or the last critic update's."""

    precision: Precision = "auto"
    """Precision of the critics in an update: `float32`, `bfloat16` (parameters, sums and values in float32), or
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
        """Returns the state before any training."""

    @abc.abstractmethod
    def begin_episode(self, spec: EnvSpec, key: PRNGKeyArray) -> Memory:
        """Returns the memory of one environment for an episode, drawn at its start."""

    @abc.abstractmethod
    def rollout_policy(self, state: State) -> Any:
        """Returns the part of the state that `act` needs, so that a call does not carry the rest."""

    @abc.abstractmethod
    def act(
        self, policy: Any, memory: Memory, obs: Float[Array, " obs"], key: PRNGKeyArray
    ) -> tuple[Float[Array, " act"], Memory]:
        """Returns the action in one environment during training, and the environment's memory after it."""

    @abc.abstractmethod
    def critic_step(self, state: State, batch: Transition, key: PRNGKeyArray) -> tuple[State, Metrics]:
        """Returns the state after one update of the critics and their targets, and its metrics."""

    @abc.abstractmethod
    def actor_step(self, state: State, batch: Transition, key: PRNGKeyArray) -> tuple[State, Metrics]:
        """Returns the state after one update of the actors, and its metrics."""

    @abc.abstractmethod
    def evaluation_policies(self, state: State) -> Any:
        """Returns the policies to evaluate, stacked along a leading axis `actors`."""

    @abc.abstractmethod
    def disagreement(self, state: State, obs: Float[Array, "batch obs"]) -> Float[Array, " actors"]:
        """Returns how far the critics differ about each policy that is evaluated.

        The standard deviation over critics of Q(pi, s, pi(s)), averaged over states as the networks see them.
        """

    @property
    def keeps_past(self) -> bool:
        """Whether the state holds past actors, which the three methods below need."""
        return False

    def has_past(self, state: State) -> Bool[Array, ""] | bool:
        """Returns whether there are past actors yet."""
        return False

    def asked(self, state: State, count: int, key: PRNGKeyArray) -> dict[str, Any]:
        """Returns so many policies of each kind, about which critics can be asked: past actors and what is near."""
        raise UsageError(f"{type(self).__name__} keeps no past actors")

    def predicted(
        self, state: State, policies: Any, obs: Float[Array, "policies obs"]
    ) -> Float[Array, " policies"]:
        """Returns the critics' mean value of each policy at a state of its own, as the networks see it."""
        raise UsageError(f"the critics of {type(self).__name__} do not see the policy")

    def equations(
        self, state: State, policies: Any, obs: Float[Array, "policies starts obs"], logged: Transition
    ) -> Any:
        """Returns what logged rows say about policies in each critic's features (`fcritic.agents.bellman`)."""
        raise UsageError(f"the critics of {type(self).__name__} do not see the policy")

    @property
    def steers(self) -> tuple[int, int] | None:
        """Returns after how many iterations `steer` is called, and with how many rows; None: never."""
        return None

    def steer(self, state: State, logged: Transition, recent: Transition) -> State:
        """Returns the state after a look at rows drawn from all of the replay and from its newest part."""
        return state

    def cheaper(self) -> "dict[str, AbstractAgent]":
        """Returns variants that cost less, by the options that make them."""
        return {}

    def critic_updates(
        self, state: State, batches: Transition, keys: Key[Array, " updates"]
    ) -> tuple[State, Metrics]:
        """Returns the state after one critic update per batch, and the sums of their metrics."""
        return self.in_turn(self.critic_step, state, batches, keys)

    def in_turn(
        self, step: Callable[..., tuple[State, Metrics]], state: State, *inputs: Any
    ) -> tuple[State, Metrics]:
        """Returns the state after a step with each of the inputs, and the sums of the critics' metrics."""

        def one(state: State, inputs: tuple) -> tuple[State, Array]:
            state, metrics = step(state, *inputs)
            return state, jnp.stack([metrics[name] for name in self.critic_metrics])  # one array: one kernel writes

        state, reported = jax.lax.scan(one, state, inputs, unroll=self.written_out)
        return state, dict(zip(self.critic_metrics, reported.sum(axis=0), strict=True))

    def describe(self, spec: EnvSpec) -> dict[str, Any]:
        """Returns the number behind every option, by its name, and the choices that all agents of ours share.

        One of another optimiser says so in its own `describe`.
        """
        return {"optimizer": "adam", "activation": "relu"} | options_of(self)

    def parts(self, state: State) -> dict[str, Any]:
        """Returns the networks of a state by the names of its fields, those of several parts also part by part."""
        found = {}
        for name, stored in _fields(state).items():
            found[name] = whole = stored.net if isinstance(stored, Learner) else net(stored)
            parts = {part: tree for part, tree in _fields(whole).items() if isinstance(tree, eqx.Module)}
            found |= {f"{name}.{part}": tree for part, tree in parts.items() if len(parts) > 1}
        return {name: tree for name, tree in found.items() if jax.tree.leaves(tree)}

    @property
    def batches_per_iteration(self) -> int:
        """How many batches one `update` uses."""
        return self.cycles * (self.critic_steps + (self.actor_batch == "own"))

    @property
    def compute_dtype(self) -> jnp.dtype:
        """The type that `precision` stands for on this device."""
        auto = self.auto_on_gpu if on_gpu() else "float32"
        return jnp.dtype(auto if self.precision == "auto" else self.precision)

    @property
    def written_out(self) -> bool:
        """Whether the critic updates of a cycle are written out on this device."""
        return self.unrolled_on_gpu and on_gpu() and self.cycles * self.critic_steps <= MOST_UNROLLED

    def actor_due(self, iteration: int) -> tuple[bool, ...]:
        """Returns in which cycles of an iteration the actors are updated: the last of every `actor_delay`."""
        numbers = range(iteration * self.cycles, (iteration + 1) * self.cycles)
        return tuple(number % self.actor_delay == self.actor_delay - 1 for number in numbers)

    def actor_updates_before(self, iteration: int) -> int:
        """Returns the number of actor updates in iterations 0 to `iteration` - 1, if all of them learned."""
        return iteration * self.cycles // self.actor_delay


def update(
    agent: AbstractAgent[State],
    state: State,
    batches: Transition,
    key: PRNGKeyArray,
    actor_due: tuple[bool, ...],
    once: Int[Array, ""] | int = 1,
) -> tuple[State, tuple[Metrics, Metrics]]:
    """Returns the state after one iteration of learning: G critic updates and one of the actors, `cycles` times.

    Lines 10-22 of the paper's algorithm. `batches` has a leading axis of `agent.batches_per_iteration`; `actor_due`
    says in which cycles the actors are updated. The metrics are sums over the critic updates and over the actor
    updates. `once` is 1, hidden from a GPU's compiler, which would take a loop of one round apart.
    """
    groups = jax.tree.map(lambda leaf: leaf.reshape(agent.cycles, -1, *leaf.shape[1:]), batches)
    keys = jax.random.split(key, agent.cycles)
    if len(actor_due) > 1 and len(set(actor_due)) == 1:
        one = lambda state, inputs: _cycle(agent, state, *inputs, actor_due[0])
        state, metrics = jax.lax.scan(one, state, (groups, keys))
        return state, jax.tree.map(lambda leaf: leaf.sum(axis=0), metrics)
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

    In the body of a loop kernels fill cuDNN's arrays with zeros. Elsewhere the driver does it, and everything that
    follows waits for several microseconds, eight times in an update of attention.
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
    actor_batch = jax.tree.map(lambda leaf: leaf[-1], batches)
    state, critic_metrics = agent.critic_updates(state, critic_batches, critic_keys)
    if actor_due:
        state, actor_metrics = agent.actor_step(state, actor_batch, actor_key)
    else:
        actor_metrics = {name: jnp.zeros(()) for name in agent.actor_metrics}
    return state, (critic_metrics, actor_metrics)


def options_of(group: Any, prefix: str = "") -> dict[str, Any]:
    """Returns every field by the name of its option, those of groups too: `encoder.probes`."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(group):
        value = getattr(group, field.name)
        nested = dataclasses.is_dataclass(value)
        found |= options_of(value, f"{prefix}{field.name}.") if nested else {prefix + field.name: value}
    return found


def _fields(value: Any) -> dict[str, Any]:
    return vars(value) if isinstance(value, eqx.Module) else {}


def with_noise(act: Float[Array, "*axes act"], noise: Float[Array, "*axes act"]) -> Float[Array, "*axes act"]:
    """Returns actions with noise, within their bounds [-1, 1]."""
    return jnp.clip(act + noise, -1.0, 1.0)


def remembered_noise(
    noise: Float[Array, "*axes act"], scale: float, memory: float, key: PRNGKeyArray
) -> Float[Array, "*axes act"]:
    """Returns x <- memory x + scale N(0, 1): noise that remembers itself."""
    return memory * noise + scale * jax.random.normal(key, noise.shape)
