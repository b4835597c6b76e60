"""Soft actor-critic with a learned temperature (Haarnoja 2018, version 2); SAC+ is a recipe of it."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
import optax

from fcritic import ensembles
from fcritic.agents.base import Learner
from fcritic.agents.critic_ensemble import CriticEnsembleAgent, for_actor, values
from fcritic.errors import UsageError, require_at_least
from fcritic.networks.critics import StateActionCritic
from fcritic.networks.policies import GaussianPolicy
from fcritic.networks.precision import lower
from fcritic.randomness import apart
from fcritic.types import EnvSpec, Metrics, Transition


class SACState(eqx.Module):
    """The learned part of the agent."""

    actor: Learner
    """The policy pi, a `GaussianPolicy`."""
    critics: Learner
    """The critics Q_i, with a leading axis."""
    targets: StateActionCritic
    """The delayed critics."""
    log_temperature: Learner
    """log alpha, one number."""


@dataclasses.dataclass(frozen=True)
class SAC(CriticEnsembleAgent[SACState]):
    """One stochastic actor that is paid for entropy, and critics on the minimum of their targets."""

    actor_metrics: ClassVar[tuple[str, ...]] = ("actor_value", "entropy", "temperature")

    entropy_per_dimension: float = -1.0
    """Target entropy, H, per dimension of the action (Haarnoja 2018: -1; RLPD: -0.5)."""
    initial_temperature: float = 1.0
    """Temperature alpha at the start (RLPD: 1; pytorch_sac: 0.1)."""
    learn_temperature: bool = True
    """Learn alpha; a fixed 0.2 learns next to nothing on cheetah-run in published curves."""
    temperature_learning_rate: float | None = None
    """Learning rate of Adam for log alpha (default: `--learning-rate`; pytorch_sac: 1e-4)."""
    log_std_range: tuple[float, float] = (-20.0, 2.0)
    """Bounds of the log standard deviation of the actor (pytorch_sac: -5, 2)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_soft(self.initial_temperature, self._temperature_rate, self.log_std_range)

    def init(self, spec: EnvSpec, key: PRNGKeyArray) -> SACState:
        """Returns actor, critics, targets and temperature."""
        actor_key, critic_key = apart(key)
        policy = GaussianPolicy(
            spec.obs_dim, self.actor_hidden, spec.act_dim, key=actor_key, log_std_range=self.log_std_range
        )
        critics = self.begin_critics(spec, critic_key)
        log_temperature = jnp.log(jnp.float32(self.initial_temperature))
        return SACState(
            Learner.start(policy, self.optimiser()),
            critics,
            critics.params,
            Learner.start(log_temperature, self._temperature_optimiser()),
        )

    def begin_episode(self, spec: EnvSpec, key: PRNGKeyArray) -> None:
        """Returns nothing: every action is drawn anew."""

    def act(
        self, policy: GaussianPolicy, memory: None, obs: Float[Array, " obs"], key: PRNGKeyArray
    ) -> tuple[Float[Array, " act"], None]:
        """Returns an action drawn from the policy."""
        return policy.sample(obs, jax.random.normal(key, (policy.act_dim,)))[0], None

    def next_value(self, state: SACState, batch: Transition, key: PRNGKeyArray) -> Float[Array, " batch"]:
        """Returns the soft value min_i Q_i(s', a') - alpha log pi(a'|s') of a drawn action a'."""
        noise_key, subset_key = jax.random.split(key)
        act, log_prob = sampled(state.actor.net, batch.next_obs, noise_key)
        value = self.smallest(state.targets, batch.next_obs, act, subset_key)
        return value - jnp.exp(state.log_temperature.net) * log_prob

    def critic_step(self, state: SACState, batch: Transition, key: PRNGKeyArray) -> tuple[SACState, Metrics]:
        """Moves critics toward the soft target; their targets follow."""
        critics, metrics = self.train_critics(state, batch, key)
        targets = ensembles.polyak(state.targets, critics.params, self.tau)
        return SACState(state.actor, critics, targets, state.log_temperature), metrics

    def actor_step(self, state: SACState, batch: Transition, key: PRNGKeyArray) -> tuple[SACState, Metrics]:
        """One ascent step of the actor on its soft value, and one of the temperature toward the target entropy."""
        temperature = jnp.exp(state.log_temperature.net)

        def loss(policy: GaussianPolicy) -> tuple[Float[Array, ""], tuple]:
            act, log_prob = sampled(policy, batch.obs, key)
            all_values = values(lower(state.critics.net, self.compute_dtype), batch.obs, act)
            value = for_actor(all_values, self.actor_value)
            return jnp.mean(temperature * log_prob - value), (value.mean(), log_prob.mean())

        grads, (value, log_prob) = jax.grad(loss, has_aux=True)(state.actor.net)
        actor = state.actor.apply(grads, self.optimiser())
        learned = state.log_temperature
        if self.learn_temperature:
            target = self.entropy_per_dimension * batch.act.shape[-1]
            slope = jax.grad(temperature_loss)(learned.net, log_prob, target)
            learned = learned.apply(slope, self._temperature_optimiser())
        metrics = {
            "actor_value": value,
            "entropy": -log_prob,
            "temperature": temperature,
        }
        return SACState(actor, state.critics, state.targets, learned), metrics

    @property
    def _temperature_rate(self) -> float:
        rate = self.temperature_learning_rate
        return self.learning_rate if rate is None else rate

    def _temperature_optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self._temperature_rate)


def temperature_loss(
    log_temperature: Float[Array, ""], log_prob: Float[Array, ""], target_entropy: float
) -> Float[Array, ""]:
    """Returns log alpha (-log pi - H): falls where the policy has less entropy than H, so that alpha rises.

    The published loss has alpha in place of log alpha; it has the same sign and zero, and Adam's steps are alike.
    """
    return log_temperature * jax.lax.stop_gradient(-log_prob - target_entropy)


def require_soft(temperature: float, rate: float, log_std_range: tuple[float, float]) -> None:
    """Refuses what no soft actor can have."""
    if temperature <= 0:
        raise UsageError(f"--initial-temperature must be above 0, not {temperature:g}")
    require_at_least(0, temperature_learning_rate=rate)
    low, high = log_std_range
    if not low < high:
        raise UsageError(f"--log-std-range must be two numbers in rising order, not {low:g} {high:g}")


def sampled(
    policy: GaussianPolicy, obs: Float[Array, "batch obs"], key: PRNGKeyArray
) -> tuple[Float[Array, "batch act"], Float[Array, " batch"]]:
    """Returns an action of the policy for each observation, and their log-densities."""
    noise = jax.random.normal(key, (obs.shape[0], policy.act_dim))
    return policy.sample(obs, noise)
