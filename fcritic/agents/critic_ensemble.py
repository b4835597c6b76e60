"""The common part of SAC and TD3: an ensemble of critics Q(s, a), one target, and one value for the actor."""

import abc
import dataclasses
from typing import Any, Literal, TypeVar

import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
import optax

from fcritic import ensembles
from fcritic.agents.base import AbstractAgent, ActorBatch, Learner
from fcritic.errors import UsageError, require_at_least
from fcritic.networks.critics import StateActionCritic
from fcritic.networks.precision import lower
from fcritic.types import EnvSpec, Metrics, Transition

State = TypeVar("State")
Subset = int | Literal["all"]
ActorValue = Literal["min", "mean", "first"]


def values(
    critics: StateActionCritic, obs: Float[Array, "batch obs"], act: Float[Array, "batch act"]
) -> Float[Array, "critics batch"]:
    """Returns Q_i(s_b, a_b) of every critic.

    Each critic gets a copy of the inputs: its products are then its own, and nothing is reordered between them.
    """
    copies = lambda leaf: jnp.broadcast_to(leaf, (ensembles.size(critics), *leaf.shape))
    return vmap(lambda critic, o, a: critic(o, a))(critics, copies(obs), copies(act))


def draw_subset(critics: StateActionCritic, subset: Subset, key: PRNGKeyArray) -> StateActionCritic:
    """Returns `subset` different critics, drawn anew at each update, or all of them."""
    count = ensembles.size(critics)
    if subset in ("all", count):
        return critics
    return ensembles.member(critics, jax.random.permutation(key, count)[:subset])


def for_actor(all_values: Float[Array, "critics batch"], kind: ActorValue) -> Float[Array, " batch"]:
    """Returns the value that the actor climbs, from those of all critics."""
    if kind == "first":
        return all_values[0]
    return all_values.min(axis=0) if kind == "min" else all_values.mean(axis=0)


def critic_loss(
    critics: StateActionCritic, goal: Float[Array, " batch"], batch: Transition
) -> tuple[Float[Array, ""], Metrics]:
    """Returns the sum over critics of the mean squared distance to one common target, without a factor 1/2."""
    value = values(critics, batch.obs, batch.act)
    losses = jnp.mean((value - goal[None]) ** 2, axis=1)
    metrics = {
        "critic_loss": losses.mean(),
        "critic_value": value.mean(),
        "target_value": goal.mean(),
        "critic_spread": value.mean(axis=1).std(),
    }
    return losses.sum(), metrics


@dataclasses.dataclass(frozen=True)
class CriticEnsembleAgent(AbstractAgent[State]):
    """An actor and several critics that regress on the same target."""

    critic_steps: int = 1
    """Critic updates per cycle, G (SAC, TD3: 1; SAC+, TD3+: 10, the paper's ratio for SAC+)."""
    actor_batch: ActorBatch = "last"
    """Batch of the actor update: the last critic update's, as in published SAC and TD3, or its own."""
    critics: int = 2
    """Critics and targets (Haarnoja 2018, Fujimoto 2018: 2; paper's SAC+ and TD3+: 10)."""
    subset: Subset = "all"
    """Target critics whose minimum is the target: `all`, or this many, drawn at each update (SAC+, TD3+: 1;
    REDQ: 2)."""
    actor_value: ActorValue = "min"
    """Value that the actor climbs: minimum, mean or first of the critics (SAC: min; SAC+, TD3+: mean; Fujimoto's
    TD3: first)."""
    layer_norm: bool = False
    """Layer norm in the critics between linear and ReLU (paper's SAC+ and TD3+: on)."""
    learning_rate: float = 3e-4
    """Learning rate of Adam for actor and critics (Table 1)."""
    tau: float = 0.005
    """Target update rate (Table 1)."""
    actor_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the actor (Table 1)."""
    critic_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of a critic (Table 1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, critics=self.critics)
        for name in ("actor_hidden", "critic_hidden"):
            require_at_least(1, **{name: min(getattr(self, name), default=1)})
        require_at_least(0, learning_rate=self.learning_rate)
        if not 0 <= self.tau <= 1:
            raise UsageError(f"--tau must be in [0, 1], not {self.tau:g}")
        if self.subset != "all" and not 1 <= self.subset <= self.critics:
            raise UsageError(f"--subset must be `all` or 1 to {self.critics}, the critics, not {self.subset}")

    @abc.abstractmethod
    def next_value(self, state: State, batch: Transition, key: PRNGKeyArray) -> Float[Array, " batch"]:
        """Returns the value of the next state, by the target critics."""

    def critic_target(self, state: State, batch: Transition, key: PRNGKeyArray) -> Float[Array, " batch"]:
        """Returns y = r + gamma d v(s'), where d is 0 at the end of a task."""
        future = self.next_value(state, batch, key)
        return jax.lax.stop_gradient(batch.reward + self.discount * batch.discount * future)

    def train_critics(self, state: Any, batch: Transition, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        """Returns the critics after one step toward the common target, and its metrics."""
        goal = self.critic_target(state, batch, key)
        loss = lambda critics: critic_loss(lower(critics, self.compute_dtype), goal, batch)
        grads, metrics = jax.grad(loss, has_aux=True)(state.critics.net)
        return state.critics.apply(grads, self.optimiser()), metrics

    def smallest(
        self, targets: StateActionCritic, obs: Float[Array, "batch obs"], act: Float[Array, "batch act"], key
    ) -> Float[Array, " batch"]:
        """Returns the minimum over the drawn subset of target critics."""
        return values(lower(draw_subset(targets, self.subset, key), self.compute_dtype), obs, act).min(axis=0)

    def begin_critics(self, spec: EnvSpec, key: PRNGKeyArray) -> Learner:
        """Returns critics before any training; their targets begin as copies."""
        make = lambda k: StateActionCritic(
            spec.obs_dim, spec.act_dim, self.critic_hidden, layer_norm=self.layer_norm, key=k
        )
        return Learner.start(ensembles.stack(make, self.critics, key), self.optimiser())

    def optimiser(self) -> optax.GradientTransformation:
        """Returns Adam for actor and critics."""
        return optax.adam(self.learning_rate)

    def rollout_policy(self, state: Any) -> Any:
        """Returns the one actor."""
        return state.actor.params

    def evaluation_policies(self, state: Any) -> Any:
        """Returns the one actor as a stack of one; called without noise it is deterministic."""
        return jax.tree.map(lambda leaf: leaf[None], state.actor.net)

    def disagreement(self, state: Any, obs: Float[Array, "batch obs"]) -> Float[Array, " 1"]:
        """Returns the critics' standard deviation at the action that the one actor takes without noise."""
        found = values(state.critics.net, obs, vmap(state.actor.net)(obs))
        return found.std(axis=0).mean(keepdims=True)
