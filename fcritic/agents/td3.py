"""Twin delayed deterministic policy gradient (Fujimoto 2018); TD3+ is a recipe of it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fcritic import ensembles
from fcritic.agents.base import Learner, remembered_noise, with_noise
from fcritic.agents.critic_ensemble import CriticEnsembleAgent, for_actor, values
from fcritic.errors import UsageError, require_at_least
from fcritic.networks.critics import StateActionCritic
from fcritic.networks.policies import DeterministicPolicy
from fcritic.networks.precision import lower
from fcritic.randomness import apart
from fcritic.types import EnvSpec, Metrics, Transition


class TD3State(eqx.Module):
    """The learned part of the agent."""

    actor: Learner
    """The policy pi, a `DeterministicPolicy`."""
    critics: Learner
    """The critics Q_i, with a leading axis."""
    target_actor: DeterministicPolicy
    targets: StateActionCritic
    """The delayed critics."""


@dataclasses.dataclass(frozen=True)
class TD3(CriticEnsembleAgent[TD3State]):
    """One deterministic actor that explores by noise, and critics on smoothed targets."""

    actor_delay: int = 2
    """Cycles per actor update, d (Fujimoto 2018: 2; TD3+: 1, after its 10 critic updates)."""
    targets_with_actor: bool = True
    """Move targets with the actor's updates only (Fujimoto 2018); TD3+ moves them after every critic update."""
    smoothing_scale: float = 0.2
    """Standard deviation of the noise on the target's action, sigma~ (Fujimoto 2018)."""
    smoothing_clip: float = 0.5
    """Largest such noise, c (Fujimoto 2018)."""
    noise_scale: float = 0.2
    """Standard deviation of the exploration noise added at each step (Fujimoto's TD3: 0.1, without memory)."""
    noise_memory: float = 0.85
    """Share m of the noise that persists: x <- m x + scale N(0, 1), reset each episode; 0: white noise."""
    actor_last_scale: float = 0.003
    """Initial weights of the actor's last layer are uniform in +- this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        scales = ("smoothing_scale", "smoothing_clip", "noise_scale", "actor_last_scale")
        require_at_least(0, **{name: getattr(self, name) for name in scales})
        if not 0 <= self.noise_memory < 1:
            raise UsageError(f"--noise-memory must be in [0, 1), not {self.noise_memory:g}")

    def init(self, spec: EnvSpec, key: PRNGKeyArray) -> TD3State:
        """Returns actor, critics, and a target of each."""
        actor_key, critic_key = apart(key)
        policy = DeterministicPolicy(
            spec.obs_dim, self.actor_hidden, spec.act_dim, key=actor_key, last_scale=self.actor_last_scale
        )
        critics = self.begin_critics(spec, critic_key)
        return TD3State(Learner.start(policy, self.optimiser()), critics, policy, critics.params)

    def begin_episode(self, spec: EnvSpec, key: PRNGKeyArray) -> Float[Array, " act"]:
        """Returns no noise yet."""
        return jnp.zeros(spec.act_dim)

    def act(
        self,
        policy: DeterministicPolicy,
        memory: Float[Array, " act"],
        obs: Float[Array, " obs"],
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, " act"], Float[Array, " act"]]:
        """Returns the actor's action with noise that remembers itself, within the bounds."""
        noise = remembered_noise(memory, self.noise_scale, self.noise_memory, key)
        return with_noise(policy(obs), noise), noise

    def next_value(self, state: TD3State, batch: Transition, key: PRNGKeyArray) -> Float[Array, " batch"]:
        """Returns min_i Q_i(s', a'), where a' is the target actor's action with clipped noise."""
        noise_key, subset_key = jax.random.split(key)
        act = state.target_actor(batch.next_obs)
        noise = smoothing_noise(act.shape, self.smoothing_scale, self.smoothing_clip, noise_key)
        return self.smallest(state.targets, batch.next_obs, jnp.clip(act + noise, -1.0, 1.0), subset_key)

    def critic_step(self, state: TD3State, batch: Transition, key: PRNGKeyArray) -> tuple[TD3State, Metrics]:
        """Moves critics toward the smoothed target."""
        critics, metrics = self.train_critics(state, batch, key)
        state = eqx.tree_at(lambda s: s.critics, state, critics)
        return state if self.targets_with_actor else self._move_targets(state), metrics

    def actor_step(self, state: TD3State, batch: Transition, key: PRNGKeyArray) -> tuple[TD3State, Metrics]:
        """One ascent step of the actor on Q(s, pi(s))."""

        def loss(policy: DeterministicPolicy) -> Float[Array, ""]:
            critics = lower(state.critics.net, self.compute_dtype)
            all_values = values(critics, batch.obs, policy(batch.obs))
            return -for_actor(all_values, self.actor_value).mean()

        value, grads = jax.value_and_grad(loss)(state.actor.net)
        state = eqx.tree_at(lambda s: s.actor, state, state.actor.apply(grads, self.optimiser()))
        metrics = {"actor_value": -value}
        return self._move_targets(state) if self.targets_with_actor else state, metrics

    def _move_targets(self, state: TD3State) -> TD3State:
        actor = ensembles.polyak(state.target_actor, state.actor.params, self.tau)
        critics = ensembles.polyak(state.targets, state.critics.params, self.tau)
        return TD3State(state.actor, state.critics, actor, critics)


def smoothing_noise(
    shape: tuple[int, ...], scale: float, clip: float, key: PRNGKeyArray
) -> Float[Array, "batch act"]:
    """Returns clip(N(0, scale^2), -clip, clip)."""
    return jnp.clip(scale * jax.random.normal(key, shape), -clip, clip)
