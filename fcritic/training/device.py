"""The device's half of training: its state and its compiled programs, which act, store and learn for all seeds.

Agents are written for one seed. Here every seed is one more entry of a leading axis `seeds`, with its own
parameters, replay rows, normaliser and random stream; nothing is shared but the cursor of the ring.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
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
from fcritic.kernels import SEEDS
from fcritic.kernels.packing import pack_stack, unpack_stack
from fcritic.networks.initial import zeros
from fcritic.networks.precision import on_gpu
from fcritic.startup import programs as kept_programs
from fcritic.startup.backend import small_operations_on_the_host
from fcritic.training import replay
from fcritic.training.replay import Normalizer, Replay
from fcritic.types import EnvSpec, Metrics, Transition

BLOCK = 128
"""Steps without learning that the host collects before it stores them together."""

_NEVER = np.uint32(2**32 - 1)  # no training has so many iterations


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


SEED_AXES = TrainState(0, 0, Replay(0, None), 0, 0, None)
"""Where a `TrainState` has its seeds: ring cursor and tally count are common to all."""


class Acting(eqx.Module):
    """The part of the state that acting needs; a call with fewer arrays is faster."""

    policy: Any
    normalizer: Normalizer
    keys: UInt32[Array, "2"]


@dataclasses.dataclass(frozen=True)
class Learning:
    """Everything that determines the programs of a training; hashable, as JAX and the kept programs require."""

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

    def begin(self, seeds: int) -> Any:
        """Placeholders for the memories of environments: in the first iteration all are fresh and redrawn."""
        like = jax.eval_shape(partial(_remember, self), _per_env(self, seeds, 2, kind=np.uint32))
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)


class Device:
    """The state of one training on the device, the memories of its environments, and the programs that change both.

    The state is carried as a tuple of arrays, on a GPU with networks as vectors where the agent says so. JAX takes
    a tuple apart by itself; for a tree of modules it calls Python for every node, at each call and return, and
    small agents on fast devices would wait for that.
    """

    def __init__(self, learning: Learning, state: TrainState, memory: Any = None):
        self.learning = learning
        self._programs: dict[Any, Future[jax.stages.Compiled]] = {}
        self.put(state, learning.begin(len(state.keys)) if memory is None else memory)

    def put(self, state: TrainState, memory: Any) -> None:
        """Continues from another state of the same shapes; drops steps that `store` has kept."""
        self._packed = on_gpu() and bool(self.learning.agent.packed_kinds)
        if self._packed:
            state = eqx.tree_at(lambda s: s.agent, state, pack_stack(state.agent, self.learning.agent.packed_kinds))
        leaves, self._structure = jax.tree.flatten(state)
        place = {id(leaf): index for index, leaf in enumerate(leaves)}
        acting = Acting(self.learning.agent.rollout_policy(state.agent), state.normalizer, state.keys)
        self._acting = tuple(place[id(leaf)] for leaf in jax.tree.leaves(acting))
        self._acting_structure = jax.tree.structure(acting)
        self._ring = (place[id(state.replay.rows)], place[id(state.replay.written)])
        self.leaves = _bound(tuple(leaves))
        self.memory = _bound(memory)
        self._shapes = tuple(
            jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding) for leaf in self.leaves
        )
        self._block, self._used = self._empty_block(), 0

    @property
    def state(self) -> TrainState:
        """The state as a tree. Call `flush` first where `store` has kept steps."""
        if self._used:
            raise RuntimeError(f"{self._used} steps are not in the replay yet; call flush() first")
        state = self.carried
        return eqx.tree_at(lambda s: s.agent, state, unpack_stack(state.agent)) if self._packed else state

    @property
    def carried(self) -> TrainState:
        """The state with its networks in the form the device carries."""
        return jax.tree.unflatten(self._structure, self.leaves)

    def act(
        self, obs: Float[np.ndarray, "seeds envs obs"], fresh: Bool[np.ndarray, "seeds envs"], iteration: int
    ) -> Float[Array, "seeds envs act"]:
        """Actions of the policies for all environments; draws the actor of each fresh episode."""
        leaves = tuple(self.leaves[place] for place in self._acting)
        program = self._program("act")
        actions, self.memory = program(leaves, self.memory, obs, fresh, np.uint32(iteration))
        return actions

    def remember(self, keys: UInt32[np.ndarray, "seeds envs 2"]) -> None:
        """Sets the memories of the environments to those of episodes that began with these keys."""
        self.memory = self._program("remember")(keys)

    def store(self, step: Transition) -> None:
        """Keeps a step of all environments on the host; passes a full block to the replay."""
        self._block[:, self._used] = replay.pack(step)
        self._used += 1
        if self._used == self._block.shape[1]:
            self.flush()

    def flush(self) -> None:
        """Passes the kept steps to the replay."""
        if not self._used:
            return
        full, used = self._block, np.int32(self._used)
        self._block, self._used = self._empty_block(), 0  # the device may read the old one for a while
        # Only the ring goes in and out: with all other arrays too the call took several times as long.
        ring = _store(*(self.leaves[place] for place in self._ring), full, used)
        leaves = list(self.leaves)
        for place, leaf in zip(self._ring, ring, strict=True):
            leaves[place] = leaf
        self.leaves = tuple(leaves)

    def _empty_block(self) -> Float[np.ndarray, "seeds steps envs width"]:
        seeds, capacity, *row = self._shapes[self._ring[0]].shape
        return np.zeros((seeds, min(BLOCK, capacity), *row), np.float32)

    def learn(self, step: Transition, iteration: int) -> None:
        """Stores one step of all environments and runs one iteration of the agent's updates, all on the device."""
        self.flush()
        program = self._program(self.learning.agent.actor_due(iteration))
        self.leaves = program(self.leaves, replay.pack(step), np.uint32(iteration))

    def take_metrics(self) -> dict[str, Float[np.ndarray, " seeds"]]:
        """The mean of each metric over the updates since the last call."""
        state = self.carried  # to unpack it takes milliseconds
        sums, counts = jax.device_get((state.tally, state.tallied))
        empty = jax.tree.map(jnp.zeros_like, (state.tally, state.tallied))
        self.leaves = tuple(jax.tree.leaves(eqx.tree_at(lambda s: (s.tally, s.tallied), state, empty)))
        return {
            name: total / count
            for kind, count in zip(sums, counts, strict=True)
            for name, total in kind.items()
            if count
        }

    def wait(self) -> None:
        """Returns when the device has done all queued work."""
        jax.block_until_ready(self.leaves)

    def compile_ahead(self, first: int, last: int) -> None:
        """Compiles, in a thread, what acting and learning need from iteration `first` up to `last`.

        The thread has shapes alone: it holds no array that the loop would have to give away.
        """
        # Which updates are due repeats after `actor_delay` iterations.
        numbers = range(first, min(last, first + self.learning.agent.actor_delay))
        needed = dict.fromkeys(self.learning.agent.actor_due(number) for number in numbers)
        if not needed:
            return
        pool = ThreadPoolExecutor(1, "compiling ahead")
        for which in ("remember", "act", *needed):
            self._programs[which] = pool.submit(self._compiled, which)
        pool.shutdown(wait=False)  # the end of the process waits: one that ends while it compiles may crash

    def when_compiled(self, call: Callable[[], None]) -> None:
        """Calls a function for each program that is compiled ahead, when it is ready."""
        for program in self._programs.values():
            program.add_done_callback(lambda _: call())

    def _program(self, which: Any) -> jax.stages.Compiled:
        """A program, compiled now if that was not done ahead; an error while compiling it is raised here."""
        if which not in self._programs:
            self._programs[which] = Future()
            self._programs[which].set_result(self._compiled(which))
        return self._programs[which].result()

    def _compiled(self, which: Any) -> jax.stages.Compiled:
        return self.lowered(which).compile()

    def lowered(self, which: Any) -> jax.stages.Lowered:
        """The program of `remember`, of `act`, or of `learn` where actors are due in these cycles."""
        learning, leaves = self.learning, self._shapes
        seeds, _, *row = leaves[self._ring[0]].shape
        each = partial(_per_env, learning, seeds)
        number = jax.ShapeDtypeStruct((), np.uint32)
        if which == "remember":
            return _remember.lower(learning, each(2, kind=np.uint32))
        if which == "act":
            acting = tuple(leaves[place] for place in self._acting)
            shapes = lambda own: jax.ShapeDtypeStruct(own.shape, own.dtype, sharding=acting[0].sharding)
            memory = jax.tree.map(shapes, jax.eval_shape(partial(_remember, learning), each(2, kind=np.uint32)))
            seen = (each(learning.spec.obs_dim, kind=np.float32), each(kind=np.bool_), number)
            return _act.lower(learning, self._acting_structure, acting, memory, *seen)
        row_shape = jax.ShapeDtypeStruct((seeds, *row), np.float32)
        return _learn.lower(learning, self._structure, which, leaves, row_shape, number)


def _bound(tree: Any) -> Any:
    """The same arrays, bound to the device that they are on or, from the host, to the default one.

    What compiled programs return is bound, and functions of JAX are compiled again for arrays that are not.
    """
    put = lambda leaf: leaf if isinstance(leaf, jax.Array) else jax.device_put(leaf)
    on_device = jax.tree.map(put, tree)
    return jax.device_put(on_device, jax.tree.map(lambda leaf: leaf.sharding, on_device))


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
        agent_state = state.agent
        if agent.steers is not None:
            every, rows = agent.steers
            given = partial(looked_at, learning, ring, normalizer, rows, jax.random.fold_in(sample_key, 0))
            # The iteration is common to all seeds, so this stays a condition when it is mapped over them.
            agent_state = jax.lax.cond(
                iteration % every == 0, lambda: agent.steer(state.agent, *given()), lambda: state.agent
            )
        agent_state, metrics = update(agent, agent_state, batches, update_key, actor_due, once)
        tally = jax.tree.map(jnp.add, state.tally, metrics)
        updates = jnp.array([agent.cycles * agent.critic_steps, sum(actor_due)], jnp.int32)
        return TrainState(agent_state, normalizer, ring, state.keys, tally, state.tallied + updates)

    return tuple(jax.tree.leaves(_over_seeds(one)(jax.tree.unflatten(structure, leaves), row)))


def looked_at(
    learning: Learning, ring: Replay, normalizer: Normalizer, rows: int, key: PRNGKeyArray
) -> tuple[Transition, Transition]:
    """Rows of all of the replay and of its newest part, as the networks see them."""
    see = normalizer if learning.normalize else lambda obs: obs
    draw = lambda sample, key: sample(ring, learning.spec, (rows,), key)
    shown = lambda batch: batch._replace(obs=see(batch.obs), next_obs=see(batch.next_obs))
    all_key, newest_key = jax.random.split(key)
    return shown(draw(replay.sample, all_key)), shown(draw(replay.sample_newest, newest_key))


def _over_seeds(function: Callable[..., TrainState]) -> Callable[..., TrainState]:
    """vmap over the seeds of a `TrainState`, which the function changes."""
    mapped = partial(vmap, function, out_axes=SEED_AXES, axis_name=SEEDS)
    return lambda state, *rest: mapped(in_axes=(SEED_AXES, *[0] * len(rest)))(state, *rest)


def _iteration_keys(key: UInt32[Array, "2"], iteration: UInt32[Array, ""]) -> PRNGKeyArray:
    """The key for acting and the key for learning of one iteration."""
    return jax.random.split(jax.random.fold_in(randomness.wrap(key), iteration))
