"""The device's half of training: act, store, learn, for all seeds at once. It mentions no algorithm.

Agents are written for one seed. Here every seed is one more entry of a leading axis `seeds`, with its own
parameters, replay rows, normaliser and random stream; nothing is shared but the cursor of the ring.
"""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fcritic import ensembles, replay
from fcritic.agents.base import AbstractAgent, update
from fcritic.replay import Normalizer, Replay
from fcritic.types import EnvSpec, Metrics, Transition


class TrainState(eqx.Module):
    """Everything that training changes on the device; leading axis `seeds`."""

    agent: Any
    normalizer: Normalizer
    replay: Replay
    keys: PRNGKeyArray
    """One random stream per seed. Iteration t uses fold_in(key, t), so a stream needs no position."""
    tally: Metrics
    """Sums of the metrics since they were last read."""
    tallied: Int[Array, ""]


class Acting(eqx.Module):
    """The little that acting needs of the state, so that a call does not carry the rest."""

    agent: Any
    normalizer: Normalizer
    keys: PRNGKeyArray


@dataclasses.dataclass(frozen=True)
class Learning:
    """The compiled programs of one training; hashable, so that JAX compiles each of them once."""

    agent: AbstractAgent
    spec: EnvSpec
    envs: int
    capacity: int
    """Steps per environment that the replay holds."""
    normalize: bool
    recency: float
    """See `Normalizer.update`."""

    def start(self, seeds: list[int]) -> TrainState:
        """A state for these seed numbers; a seed is the same whatever others run beside it."""
        keys = [jax.random.split(jax.random.key(seed)) for seed in seeds]
        agent = ensembles.stack_all([self.agent.init(self.spec, init_key) for init_key, _ in keys])
        normalizer = ensembles.stack_all([Normalizer.identity(self.spec.obs_dim) for _ in seeds])
        ring = replay.empty(self.spec, self.envs, self.capacity)
        rows = jax.tree.map(lambda leaf: jnp.zeros((len(seeds), *leaf.shape), leaf.dtype), ring.rows)
        streams = jnp.stack([stream_key for _, stream_key in keys])
        tally = {name: jnp.zeros(len(seeds)) for name in self._metric_names()}
        return TrainState(agent, normalizer, Replay(rows, ring.written), streams, tally, jnp.zeros((), jnp.int32))

    def _metric_names(self) -> list[str]:
        """What an update reports, found out without running one."""

        def one_update() -> Metrics:
            key = jax.random.key(0)
            ring = replay.empty(self.spec, 1, 1)
            shape = (self.agent.batches_per_iteration, self.agent.batch_size)
            state = self.agent.init(self.spec, key)
            return update(self.agent, state, replay.sample(ring, shape, key), key)[1]

        return list(jax.eval_shape(one_update))

    def begin(self, state: TrainState) -> Any:
        """Memories for all environments, to be redrawn where an episode begins."""
        return _begin(self, state.keys)

    def act(self, state: TrainState, memory, obs, fresh, iteration: int, uniform: bool):
        """Actions for all environments and the memories they were taken with."""
        acting = Acting(state.agent, state.normalizer, state.keys)
        return _act(self, acting, memory, obs, fresh, jnp.uint32(iteration), uniform)

    def store(self, state: TrainState, transition: Transition) -> TrainState:
        """Adds one step of every environment to the replay without learning."""
        return _store(self, state, transition)

    def learn(self, state: TrainState, transition: Transition, iteration: int) -> TrainState:
        """Adds one step of every environment, then runs one iteration of the agent's updates."""
        return _learn(self, state, transition, jnp.uint32(iteration))


def over_seeds(function):
    """vmap over the seeds of a `TrainState`, whose ring cursor and tally count are common to all."""
    axes = TrainState(0, 0, Replay(0, None), 0, 0, None)
    return lambda state, *rest: vmap(function, in_axes=(axes, *[0] * len(rest)), out_axes=axes)(state, *rest)


@partial(jax.jit, static_argnums=0)
def _begin(learning: Learning, keys: PRNGKeyArray) -> Any:
    """Placeholders of the right shape: every environment is fresh at first, so all are redrawn."""
    return vmap(lambda key: vmap(learning.agent.begin_episode)(jax.random.split(key, learning.envs)))(keys)


@partial(jax.jit, static_argnums=(0, 6))
def _act(
    learning: Learning,
    acting: Acting,
    memory: Any,
    obs: Float[Array, "seeds envs obs"],
    fresh: Bool[Array, "seeds envs"],
    iteration: Int[Array, ""],
    uniform: bool,
) -> tuple[Float[Array, "seeds envs act"], Any]:
    agent = learning.agent

    def one_env(acting: Acting, memory, obs, fresh, key):
        episode_key, act_key = jax.random.split(key)
        begun = agent.begin_episode(episode_key)
        memory = jax.tree.map(partial(jnp.where, fresh), begun, memory)
        if uniform:
            return jax.random.uniform(act_key, (learning.spec.act_dim,), minval=-1.0), memory
        obs = acting.normalizer(obs) if learning.normalize else obs
        return agent.act(acting.agent, memory, obs, act_key), memory

    def one_seed(acting: Acting, memory, obs, fresh):
        keys = jax.random.split(_iteration_keys(acting.keys, iteration)[0], learning.envs)
        return vmap(one_env, in_axes=(None, 0, 0, 0, 0))(acting, memory, obs, fresh, keys)

    return vmap(one_seed)(acting, memory, obs, fresh)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _store(learning: Learning, state: TrainState, transition: Transition) -> TrainState:
    def one(state: TrainState, transition: Transition) -> TrainState:
        return eqx.tree_at(lambda s: s.replay, state, replay.add(state.replay, transition))

    return over_seeds(one)(state, transition)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _learn(learning: Learning, state: TrainState, transition: Transition, iteration: Int[Array, ""]) -> TrainState:
    agent = learning.agent

    def one(state: TrainState, transition: Transition) -> TrainState:
        sample_key, update_key = jax.random.split(_iteration_keys(state.keys, iteration)[1])
        ring = replay.add(state.replay, transition)
        batches = replay.sample(ring, (agent.batches_per_iteration, agent.batch_size), sample_key)
        normalizer = state.normalizer
        if learning.normalize:
            normalizer = normalizer.update(batches.obs, learning.recency)
            batches = eqx.tree_at(
                lambda b: (b.obs, b.next_obs),
                batches,
                (normalizer(batches.obs), normalizer(batches.next_obs)),
            )
        agent_state, metrics = update(agent, state.agent, batches, update_key)
        tally = jax.tree.map(jnp.add, state.tally, metrics)
        return TrainState(agent_state, normalizer, ring, state.keys, tally, state.tallied + 1)

    return over_seeds(one)(state, transition)


def _iteration_keys(key: PRNGKeyArray, iteration: Int[Array, ""]) -> PRNGKeyArray:
    """The key for acting and the key for learning of one iteration."""
    return jax.random.split(jax.random.fold_in(key, iteration))
