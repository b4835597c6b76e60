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
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32
import numpy as np

from fcritic import ensembles, randomness, replay
from fcritic.agents.base import AbstractAgent, update
from fcritic.backend import small_operations_on_the_host
from fcritic.networks.fused_blocks import SEEDS
from fcritic.networks.precision import on_gpu
from fcritic.packed import pack_stack, unpack_stack
from fcritic.replay import Normalizer, Replay
from fcritic.types import EnvSpec, Metrics, Transition


class TrainState(eqx.Module):
    """Everything that training changes on the device; leading axis `seeds`."""

    agent: Any
    normalizer: Normalizer
    replay: Replay
    keys: UInt32[Array, "2"]
    """One random stream per seed, as bare key data. Iteration t uses fold_in(key, t): no position is needed."""
    tally: tuple[Metrics, Metrics]
    """Sums of the critic updates' and of the actor updates' metrics since they were last read."""
    tallied: Int[Array, "2"]
    """How many critic and how many actor updates these are."""


class Acting(eqx.Module):
    """The little that acting needs of the state: handing over less makes the call shorter."""

    policy: Any
    normalizer: Normalizer
    keys: UInt32[Array, "2"]


@dataclasses.dataclass(frozen=True)
class Flat:
    """A `TrainState` as a tuple of arrays: what the loop carries from iteration to iteration.

    JAX takes a tuple apart by itself. For a tree of modules it calls Python for every node, at each call and
    return, and small agents on fast devices would wait for that.
    """

    leaves: tuple[Array, ...]
    structure: Any
    acting: tuple[int, ...]
    """Places of the leaves of `Acting`."""
    acting_structure: Any
    ring: tuple[int, int]
    """Places of the replay's rows and of its cursor."""
    packed: bool
    """Whether networks are vectors."""

    @property
    def carried(self) -> TrainState:
        """The state as it is carried; to look at numbers, whatever their names."""
        return jax.tree.unflatten(self.structure, self.leaves)

    @property
    def tree(self) -> TrainState:
        """The state itself."""
        state = self.carried
        return eqx.tree_at(lambda s: s.agent, state, unpack_stack(state.agent)) if self.packed else state


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
        keys = [jax.random.split(randomness.stream(seed)) for seed in seeds]
        with small_operations_on_the_host():
            agents = [self.agent.init(self.spec, init_key) for init_key, _ in keys]
        agent = ensembles.stack_all(agents)
        normalizer = ensembles.stack_all([Normalizer.identity(self.spec.obs_dim) for _ in seeds])
        ring = replay.empty(self.spec, self.envs, self.capacity)
        rows = jnp.zeros((len(seeds), *ring.rows.shape))
        streams = jnp.stack([jax.random.key_data(stream_key) for _, stream_key in keys])
        reported = (self.agent.critic_metrics, self.agent.actor_metrics)
        tally = tuple({name: jnp.zeros(len(seeds)) for name in names} for names in reported)
        return TrainState(agent, normalizer, Replay(rows, ring.written), streams, tally, jnp.zeros(2, jnp.int32))

    def begin(self, state: TrainState) -> Any:
        """Memories for all environments, to be redrawn where an episode begins."""
        return _begin(self, state.keys)

    def flat(self, state: TrainState) -> Flat:
        """The state for `act`, `store` and `learn`; on a GPU with networks as vectors where the agent says so."""
        packed = on_gpu() and bool(self.agent.packed_kinds)
        if packed:
            state = eqx.tree_at(lambda s: s.agent, state, pack_stack(state.agent, self.agent.packed_kinds))
        leaves, structure = jax.tree.flatten(state)
        place = {id(leaf): index for index, leaf in enumerate(leaves)}
        acting = Acting(self.agent.rollout_policy(state.agent), state.normalizer, state.keys)
        places = tuple(place[id(leaf)] for leaf in jax.tree.leaves(acting))
        ring = (place[id(state.replay.rows)], place[id(state.replay.written)])
        return Flat(tuple(leaves), structure, places, jax.tree.structure(acting), ring, packed)

    def act(self, state: Flat, memory, obs, fresh, iteration: int, uniform: bool):
        """Actions for all environments and their memories after them."""
        leaves = tuple(state.leaves[place] for place in state.acting)
        return _act(self, state.acting_structure, leaves, memory, obs, fresh, np.uint32(iteration), uniform)

    def store(self, state: Flat, transition: Transition) -> Flat:
        """Adds one step of every environment to the replay without learning."""
        rows, written = (state.leaves[place] for place in state.ring)
        leaves = list(state.leaves)
        # Only the ring goes in and out: with all other arrays too the call took several times as long.
        for place, leaf in zip(state.ring, _store(rows, written, replay.pack(transition)), strict=True):
            leaves[place] = leaf
        return dataclasses.replace(state, leaves=tuple(leaves))

    def learn(self, state: Flat, transition: Transition, iteration: int) -> Flat:
        """Adds one step of every environment, then runs one iteration of the agent's updates."""
        row = replay.pack(transition)
        due = self.agent.actor_due(iteration)
        leaves = _learn(self, state.structure, due, state.leaves, row, np.uint32(iteration))
        return dataclasses.replace(state, leaves=leaves)

    def lowered(self, state: Flat, transition: Transition, iteration: int) -> jax.stages.Lowered:
        """The program that `learn` runs in this iteration, to be compiled and timed by itself."""
        row, due = replay.pack(transition), self.agent.actor_due(iteration)
        return _learn.lower(self, state.structure, due, state.leaves, row, np.uint32(iteration))


SEED_AXES = TrainState(0, 0, Replay(0, None), 0, 0, None)
"""Where a `TrainState` has its seeds: ring cursor and tally count are common to all."""


def over_seeds(function):
    """vmap over the seeds of a `TrainState`, which the function changes."""
    mapped = partial(vmap, function, out_axes=SEED_AXES, axis_name=SEEDS)
    return lambda state, *rest: mapped(in_axes=(SEED_AXES, *[0] * len(rest)))(state, *rest)


@partial(jax.jit, static_argnums=0)
def _begin(learning: Learning, keys: UInt32[Array, "seeds 2"]) -> Any:
    """Placeholders of the right shape: every environment is fresh at first, so all are redrawn."""
    begin = partial(learning.agent.begin_episode, learning.spec)
    return vmap(lambda key: vmap(begin)(jax.random.split(randomness.wrap(key), learning.envs)))(keys)


@partial(jax.jit, static_argnums=(0, 1, 7))
def _act(
    learning: Learning,
    structure: Any,
    leaves: tuple[Array, ...],
    memory: Any,
    obs: Float[Array, "seeds envs obs"],
    fresh: Bool[Array, "seeds envs"],
    iteration: UInt32[Array, ""],
    uniform: bool,
) -> tuple[Float[Array, "seeds envs act"], Any]:
    agent = learning.agent

    def one_env(acting: Acting, memory, obs, fresh, key):
        episode_key, act_key = jax.random.split(key)
        begun = agent.begin_episode(learning.spec, episode_key)
        memory = jax.tree.map(partial(jnp.where, fresh), begun, memory)
        if uniform:
            return jax.random.uniform(act_key, (learning.spec.act_dim,), minval=-1.0), memory
        obs = acting.normalizer(obs) if learning.normalize else obs
        return agent.act(acting.policy, memory, obs, act_key)

    def one_seed(acting: Acting, memory, obs, fresh):
        keys = jax.random.split(_iteration_keys(acting.keys, iteration)[0], learning.envs)
        return vmap(one_env, in_axes=(None, 0, 0, 0, 0))(acting, memory, obs, fresh, keys)

    return vmap(one_seed)(jax.tree.unflatten(structure, leaves), memory, obs, fresh)


@partial(jax.jit, donate_argnums=(0, 1))
def _store(
    rows: Float[Array, "seeds capacity envs width"], written: Int[Array, ""], row: Float[Array, "seeds envs width"]
) -> tuple[Array, Array]:
    ring = vmap(replay.add, in_axes=(Replay(0, None), 0), out_axes=Replay(0, None))(Replay(rows, written), row)
    return ring.rows, ring.written


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=3)
def _learn(
    learning: Learning,
    structure: Any,
    actor_due: tuple[bool, ...],
    leaves: tuple[Array, ...],
    row: Float[Array, "seeds envs width"],
    iteration: UInt32[Array, ""],
) -> tuple[Array, ...]:
    agent = learning.agent

    def one(state: TrainState, row: Float[Array, "envs width"]) -> TrainState:
        sample_key, update_key = jax.random.split(_iteration_keys(state.keys, iteration)[1])
        ring = replay.add(state.replay, row)
        shape = (agent.batches_per_iteration, agent.batch_size)
        batches = replay.sample(ring, learning.spec, shape, sample_key, agent.numbered)
        normalizer = state.normalizer
        if learning.normalize:
            normalizer = normalizer.update(batches.obs, learning.recency)
            batches = eqx.tree_at(
                lambda b: (b.obs, b.next_obs),
                batches,
                (normalizer(batches.obs), normalizer(batches.next_obs)),
            )
        agent_state, metrics = update(agent, state.agent, batches, update_key, actor_due)
        tally = jax.tree.map(jnp.add, state.tally, metrics)
        updates = jnp.array([agent.cycles * agent.critic_steps, sum(actor_due)], jnp.int32)
        return TrainState(agent_state, normalizer, ring, state.keys, tally, state.tallied + updates)

    return tuple(jax.tree.leaves(over_seeds(one)(jax.tree.unflatten(structure, leaves), row)))


def mean_metrics(state: TrainState) -> dict[str, np.ndarray]:
    """The mean of each metric over the updates since the tally was cleared, one entry per seed."""
    sums, counts = jax.device_get((state.tally, state.tallied))
    return {
        name: total / count
        for kind, count in zip(sums, counts, strict=True)
        for name, total in kind.items()
        if count
    }


def _iteration_keys(key: UInt32[Array, "2"], iteration: UInt32[Array, ""]) -> PRNGKeyArray:
    """The key for acting and the key for learning of one iteration."""
    return jax.random.split(jax.random.fold_in(randomness.wrap(key), iteration))
