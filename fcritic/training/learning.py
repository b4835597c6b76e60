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

from fcritic import ensembles, randomness
from fcritic.agents.base import AbstractAgent, update
from fcritic.kernels.packing import pack_stack
from fcritic.networks.initial import zeros
from fcritic.networks.precision import on_gpu
from fcritic.startup import programs as kept_programs
from fcritic.startup.backend import small_operations_on_the_host
from fcritic.training import replay
from fcritic.training.replay import Normalizer
from fcritic.training.train_state import Acting, Flat, TrainState, bound, over_seeds
from fcritic.types import EnvSpec, Transition

_NEVER = np.uint32(2**32 - 1)  # no training has so many iterations


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
        keys = [randomness.apart(randomness.stream(seed)) for seed in seeds]
        with small_operations_on_the_host():
            agents = [self.agent.init(self.spec, init_key) for init_key, _ in keys]
            normalizer = Normalizer.identity(self.spec.obs_dim)
            streams = [jax.random.key_data(stream_key) for _, stream_key in keys]
        reported = (self.agent.critic_metrics, self.agent.actor_metrics)
        tally = tuple({name: zeros(len(seeds)) for name in names} for names in reported)
        return TrainState(
            ensembles.stack_all(agents),
            ensembles.stack_all([normalizer] * len(seeds)),
            replay.empty(self.spec, self.envs, self.capacity, len(seeds)),
            ensembles.stack_all(streams),
            tally,
            jax.device_put(np.zeros(2, np.int32)),
        )

    def begin(self, state: TrainState) -> Any:
        """Placeholders for what environments remember: in the first iteration all are fresh and redrawn."""
        like = jax.eval_shape(partial(_remember, self), _per_env(self, len(state.keys), 2, kind=np.uint32))
        return bound(jax.tree.map(lambda leaf: jax.device_put(np.zeros(leaf.shape, leaf.dtype)), like))

    def remember(self, keys: UInt32[np.ndarray, "seeds envs 2"]) -> Any:
        """What the environments remember of episodes that began with these keys."""
        return bound(_remember(self, keys))

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
        return Flat(bound(tuple(leaves)), structure, places, jax.tree.structure(acting), ring, packed)

    def act(self, state: Flat, memory, obs, fresh, iteration: int):
        """Actions for all environments and their memories after them."""
        leaves = tuple(state.leaves[place] for place in state.acting)
        return _act(self, state.acting_structure, leaves, memory, obs, fresh, np.uint32(iteration))

    def store(self, state: Flat, transition: Transition) -> Flat:
        """Adds one step of every environment to the replay without learning."""
        return self.store_block(state, replay.pack(transition)[:, None], 1)

    def store_block(self, state: Flat, block: Float[np.ndarray, "seeds steps envs width"], used: int) -> Flat:
        """Adds the first `used` steps of a block to the replay, which must have room for all of the block."""
        rows, written = (state.leaves[place] for place in state.ring)
        leaves = list(state.leaves)
        # Only the ring goes in and out: with all other arrays too the call took several times as long.
        for place, leaf in zip(state.ring, _store(rows, written, block, np.int32(used)), strict=True):
            leaves[place] = leaf
        return dataclasses.replace(state, leaves=tuple(leaves))

    def learn(self, state: Flat, transition: Transition, iteration: int) -> Flat:
        """Adds one step of every environment, then runs one iteration of the agent's updates."""
        row = replay.pack(transition)
        due = self.agent.actor_due(iteration)
        leaves = _learn(self, state.structure, due, state.leaves, row, np.uint32(iteration))
        return dataclasses.replace(state, leaves=leaves)

    def lowered_acting(self, state: Flat) -> tuple[jax.stages.Lowered, ...]:
        """The programs of `remember` and `act`, as `lowered` is that of `learn`."""
        each = partial(_per_env, self, state.leaves[state.ring[0]].shape[0])
        remember = _remember.lower(self, each(2, kind=np.uint32))
        leaves = tuple(state.leaves[place] for place in state.acting)
        where = leaves[0].sharding
        memory = jax.tree.map(
            lambda own: jax.ShapeDtypeStruct(own.shape, own.dtype, sharding=where), remember.out_info
        )
        seen = (each(self.spec.obs_dim, kind=np.float32), each(kind=np.bool_), jax.ShapeDtypeStruct((), np.uint32))
        return remember, _act.lower(self, state.acting_structure, leaves, memory, *seen)

    def lowered(self, state: Flat, iteration: int) -> jax.stages.Lowered:
        """The program that `learn` runs in this iteration, to be compiled by itself; a state of shapes will do."""
        seeds, _, *row = state.leaves[state.ring[0]].shape
        shapes = (jax.ShapeDtypeStruct((seeds, *row), np.float32), jax.ShapeDtypeStruct((), np.uint32))
        return _learn.lower(self, state.structure, self.agent.actor_due(iteration), state.leaves, *shapes)


def _per_env(learning: Learning, seeds: int, *rest: int, kind: type) -> jax.ShapeDtypeStruct:
    """The shape of what all environments have."""
    return jax.ShapeDtypeStruct((seeds, learning.envs, *rest), kind)


@partial(jax.jit, static_argnums=0)
def _remember(learning: Learning, keys: UInt32[Array, "seeds envs 2"]) -> Any:
    return vmap(vmap(lambda key: learning.agent.begin_episode(learning.spec, randomness.wrap(key))))(keys)


@partial(jax.jit, static_argnums=(0, 1))
def _act(
    learning: Learning,
    structure: Any,
    leaves: tuple[Array, ...],
    memory: Any,
    obs: Float[Array, "seeds envs obs"],
    fresh: Bool[Array, "seeds envs"],
    iteration: UInt32[Array, ""],
) -> tuple[Float[Array, "seeds envs act"], Any]:
    held, remembered = jax.tree.flatten(memory)
    decides = (learning, structure, remembered)
    given = (leaves, tuple(held), obs, fresh, iteration)
    actions, *held = kept_programs.call(partial(_acted, *decides), ("act", *decides), *given)
    return actions, jax.tree.unflatten(remembered, held)


def _acted(
    learning: Learning,
    structure: Any,
    remembered: Any,
    leaves: tuple[Array, ...],
    held: tuple[Array, ...],
    obs: Float[Array, "seeds envs obs"],
    fresh: Bool[Array, "seeds envs"],
    iteration: UInt32[Array, ""],
) -> tuple[Array, ...]:
    agent = learning.agent

    def one_env(acting: Acting, memory, obs, fresh, key):
        episode_key, act_key = jax.random.split(key)
        begun = agent.begin_episode(learning.spec, episode_key)
        memory = jax.tree.map(partial(jnp.where, fresh), begun, memory)
        obs = acting.normalizer(obs) if learning.normalize else obs
        return agent.act(acting.policy, memory, obs, act_key)

    def one_seed(acting: Acting, memory, obs, fresh):
        keys = jax.random.split(_iteration_keys(acting.keys, iteration)[0], learning.envs)
        return vmap(one_env, in_axes=(None, 0, 0, 0, 0))(acting, memory, obs, fresh, keys)

    acting, memory = jax.tree.unflatten(structure, leaves), jax.tree.unflatten(remembered, held)
    actions, memory = vmap(one_seed)(acting, memory, obs, fresh)
    return actions, *jax.tree.leaves(memory)


@partial(jax.jit, donate_argnums=(0, 1))
def _store(
    rows: Float[Array, "seeds capacity envs width"],
    written: Int[Array, ""],
    block: Float[Array, "seeds steps envs width"],
    used: Int[Array, ""],
) -> tuple[Array, Array]:
    capacity, number = rows.shape[1], jnp.arange(block.shape[1])
    # What lies beyond the ring is not written: one program serves blocks that are not full, too.
    place = jnp.where(number < used, (written + number) % capacity, capacity + number)
    return rows.at[:, place].set(block, mode="drop", unique_indices=True), written + used


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=3)
def _learn(learning: Learning, structure: Any, actor_due: tuple[bool, ...], *arrays: Any) -> tuple[Array, ...]:
    """`_learned`, as a program that is kept; the state, the first of the arrays, is given away."""
    decides = (learning, structure, actor_due)
    return kept_programs.call(partial(_learned, *decides), ("learn", *decides), *arrays)


def _learned(
    learning: Learning,
    structure: Any,
    actor_due: tuple[bool, ...],
    leaves: tuple[Array, ...],
    row: Float[Array, "seeds envs width"],
    iteration: UInt32[Array, ""],
) -> tuple[Array, ...]:
    agent, once = learning.agent, jnp.where(iteration < _NEVER, 1, 2)  # the compiler cannot know that it is 1

    def one(state: TrainState, row: Float[Array, "envs width"]) -> TrainState:
        sample_key, update_key = jax.random.split(_iteration_keys(state.keys, iteration)[1])
        ring = replay.add(state.replay, row)
        shape = (agent.batches_per_iteration, agent.batch_size)
        batches = replay.sample(ring, learning.spec, shape, sample_key)
        normalizer = state.normalizer
        if learning.normalize:
            normalizer = normalizer.update(batches.obs, learning.recency)
            batches = eqx.tree_at(
                lambda b: (b.obs, b.next_obs),
                batches,
                (normalizer(batches.obs), normalizer(batches.next_obs)),
            )
        agent_state, metrics = update(agent, state.agent, batches, update_key, actor_due, once)
        tally = jax.tree.map(jnp.add, state.tally, metrics)
        updates = jnp.array([agent.cycles * agent.critic_steps, sum(actor_due)], jnp.int32)
        return TrainState(agent_state, normalizer, ring, state.keys, tally, state.tallied + updates)

    return tuple(jax.tree.leaves(over_seeds(one)(jax.tree.unflatten(structure, leaves), row)))


def _iteration_keys(key: UInt32[Array, "2"], iteration: UInt32[Array, ""]) -> PRNGKeyArray:
    """The key for acting and the key for learning of one iteration."""
    return jax.random.split(jax.random.fold_in(randomness.wrap(key), iteration))
