"""The functional agent with soft actors: n tanh-Gaussian policies with a temperature each, and functional critics.

What functional critics do is `fac`'s, what soft actors do is `sac`'s; here is what they are together.
"""

import dataclasses
from functools import partial
from typing import Any, ClassVar

import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray
import optax

from fcritic.agents.base import AbstractAgent, Learner, net
from fcritic.agents.choice import RolloutMemory, led
from fcritic.agents.cloud import Drawn
from fcritic.agents.fac import FAC, FACState
from fcritic.agents.losses import Pairing, encode_all, seen_as
from fcritic.agents.sac import require_soft, sampled, temperature_loss
from fcritic.errors import UsageError
from fcritic.networks.actor_encoder import ActorEncoder, ProbedBehaviour
from fcritic.networks.critics import ValueHead, values
from fcritic.networks.policies import GaussianPolicy
from fcritic.networks.precision import lower
from fcritic.types import EnvSpec, Metrics, Transition


class FSACState(FACState):
    """The learned part of the agent."""

    log_temperatures: Any = None
    """A learner of log alpha_j, one number for each actor."""


@dataclasses.dataclass(frozen=True)
class FSAC(FAC):
    """n soft actors that climb the mean of all functional critics; one of them plays each episode."""

    actor_metrics: ClassVar[tuple[str, ...]] = ("actor_value", "actor_grad_norm", "entropy", "temperature")
    packed_kinds: ClassVar[tuple[type, ...]] = (GaussianPolicy, ActorEncoder, ProbedBehaviour, ValueHead)
    unrolled_on_gpu: ClassVar[bool] = False

    pairing: Pairing = "mean"
    """Critic whose value an actor ascends: the mean of all."""
    subset: int = 1
    """Target critics whose minimum is the target of all critics, drawn at each update (as `sac+`: 1)."""
    entropy_per_dimension: float = -1.0
    """Target entropy, H, per dimension of the action (Haarnoja 2018: -1)."""
    initial_temperature: float = 1.0
    """Temperature alpha of each actor at the start."""
    temperature_learning_rate: float | None = None
    """Learning rate of Adam for log alpha (default: `--learning-rate`)."""
    log_std_range: tuple[float, float] = (-20.0, 2.0)
    """Bounds of the log standard deviation of an actor (pytorch_sac: -5, 2)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pairing != "mean":
            raise UsageError("soft actors climb the mean of all critics; leave --pairing at mean")
        if self.explore.noise or self.actor_reach is not None:
            raise UsageError("soft actors explore by themselves; leave out --explore.noise and --actor-reach")
        if not 1 <= self.subset <= self.critic_count:
            raise UsageError(f"--subset must be 1 to {self.critic_count}, the critics, not {self.subset}")
        require_soft(self.initial_temperature, self._temperature_rate, self.log_std_range)

    def init(self, spec: EnvSpec, key: PRNGKeyArray) -> FSACState:
        """Returns actors, critics, targets and temperatures."""
        temperatures = jnp.full(self.members, jnp.log(jnp.float32(self.initial_temperature)))
        learner = Learner.start(temperatures, optax.adam(self._temperature_rate))
        return FSACState(**vars(super().init(spec, key)), log_temperatures=learner)

    def act(
        self, policy: Any, memory: RolloutMemory, obs: Float[Array, " obs"], key: PRNGKeyArray
    ) -> tuple[Float[Array, " act"], RolloutMemory]:
        """Returns an action drawn from the episode's actor."""
        draw_key, actor_key = jax.random.split(key)
        policy, actor = led(policy, memory, partial(self._choose, obs))
        index = self._draw_actor(actor_key) if self.explore.per_step else actor
        policies = net(policy)
        noise = jax.random.normal(draw_key, (policies.act_dim,))
        return vmap(lambda one: one.sample(obs, noise)[0])(policies)[index], actor

    def critic_updates(
        self, state: FACState, batches: Transition, keys: Key[Array, " updates"]
    ) -> tuple[FACState, Metrics]:
        """G critic updates, each with actions drawn anew."""
        return AbstractAgent.critic_updates(self, state, batches, keys)

    def critic_step(self, state: Any, batch: Transition, key: PRNGKeyArray) -> tuple[FACState, Metrics]:
        """Trains every critic on the product of policies and batch, with one soft target for all."""
        act_key, subset_key, cloud_key = jax.random.split(key, 3)
        alphas = jnp.exp(state.log_temperatures.net)
        act_keys = jax.random.split(act_key, self.members)
        next_act, log_prob = vmap(sampled, in_axes=(0, None, 0))(state.actors.net, batch.next_obs, act_keys)
        subset = jax.random.permutation(subset_key, self.critic_count)[: self.subset]
        cloud = self._draw_cloud(state, batch, cloud_key) if self.cloud.policies else ()
        soft = {"bonus": -alphas[:, None] * log_prob, "subset": subset}
        return self._critic_update(state, batch, next_act, *cloud, **soft)

    def _cloud_actions(
        self, state: Any, drawn: Drawn, key: PRNGKeyArray
    ) -> tuple[Float[Array, "policies rows act"], Float[Array, "policies rows"]]:
        """Drawn actions, and their bonus at the mean temperature: policies of the cloud have none of their own."""
        shape = (*drawn.rows.reward.shape, drawn.rows.act.shape[-1])
        noise = jax.random.normal(key, shape)
        act, log_prob = vmap(lambda one, s, e: one.sample(s, e))(drawn.policies, drawn.rows.next_obs, noise)
        return act, -jnp.exp(state.log_temperatures.net).mean() * log_prob

    def _actor_update(self, state: Any, batch: Transition, key: PRNGKeyArray) -> tuple[FACState, Metrics]:
        """One ascent step of every actor on its soft value, and of its temperature toward the target entropy."""
        critics, alphas = lower(state.valued_by, self.compute_dtype), jnp.exp(state.log_temperatures.net)
        keys = jax.random.split(key, self.members)

        def loss(policies: GaussianPolicy) -> tuple[Float[Array, ""], tuple]:
            act, log_prob = vmap(sampled, in_axes=(0, None, 0))(policies, batch.obs, keys)
            codes = encode_all(critics, seen_as(policies, state.known_by, self.second_term))
            each = vmap(values, in_axes=(0, 0, None, None))(critics.head, codes, batch.obs, act)
            value = each.mean(axis=0)
            # Losses have nothing in common: in the gradient of their sum each actor gets that of its own.
            found = jnp.mean(alphas[:, None] * log_prob - value, axis=1).sum()
            return found, (value.mean(), log_prob.mean(axis=1))

        grads, (value, log_prob) = jax.grad(loss, has_aux=True)(state.actors.net)
        actors, steering = self._stepped(state, grads)
        slope = vmap(jax.grad(temperature_loss), in_axes=(0, 0, None))
        slopes = slope(state.log_temperatures.net, log_prob, self.entropy_per_dimension * batch.act.shape[-1])
        learned = state.log_temperatures.apply(slopes, optax.adam(self._temperature_rate))
        if steering is not None:
            learned = steering.shortened(state.log_temperatures, learned)  # or it would rise through a rest
        metrics = {
            "actor_value": value,
            "actor_grad_norm": vmap(optax.tree.norm)(grads).mean(),
            "entropy": -log_prob.mean(),
            "temperature": alphas.mean(),
        }
        actors, kept = self._kept(state, actors, batch)
        changed = {"actors": actors, "log_temperatures": learned, "bank": kept, "steering": steering}
        return dataclasses.replace(state, **changed), metrics

    @property
    def _temperature_rate(self) -> float:
        rate = self.temperature_learning_rate
        return self.learning_rate if rate is None else rate

    def _actor(self, spec: EnvSpec, key: PRNGKeyArray) -> GaussianPolicy:
        make = partial(GaussianPolicy, spec.obs_dim, self.actor_hidden, spec.act_dim)
        return make(key=key, log_std_range=self.log_std_range)
