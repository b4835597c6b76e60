"""The content of a training's checkpoint, and how to restore a training from it."""

from collections.abc import Mapping
import contextlib
import dataclasses
import functools
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from fcritic import randomness
from fcritic.config import TrainConfig
from fcritic.disk import Place
from fcritic.envs import EnvState, VectorEnv, task_spec
from fcritic.errors import CheckpointError, UsageError
from fcritic.runs import checkpoint
from fcritic.runs.arrays import flatten, unflatten
from fcritic.runs.directory import RunDirectory
from fcritic.runs.replay_log import ReplayLog
from fcritic.runs.snapshot import Found, Saved, Snapshots
from fcritic.training.device import Learning, TrainState
from fcritic.training.evaluate import Best
from fcritic.training.health import require_acting, require_finite, require_sound, require_sound_agent
from fcritic.training.replay import Normalizer, Replay, width_of
from fcritic.training.replay import unpack as unpack_rows
from fcritic.types import EnvSpec, Transition

ACTING = ("agent", "best")
"""The parts of a checkpoint that acting and looking need."""

_BLOCK = 1024
"""Steps that leave the device in one piece: one program serves every amount."""


@dataclasses.dataclass
class Progress:
    """The progress of a training: counters that are neither on the device nor in an environment."""

    iteration: int = 0
    log_position: int = 0
    """Bytes of metrics.jsonl that belong to what was saved."""
    rollbacks: int = 0
    """How often the training went back to a checkpoint; each time with other random numbers."""
    prefilled: int = 0
    """Steps of data that lay in the replay before the first iteration."""

    @staticmethod
    def of(facts: Mapping[str, Any]) -> "Progress":
        """The counters that a checkpoint's facts hold."""
        counts = {field.name: facts.get(field.name) for field in dataclasses.fields(Progress)}
        counts["prefilled"] = facts.get("prefilled", 0)  # which older checkpoints do not have
        if any(type(value) is not int or not 0 <= value < 2**31 for value in counts.values()):
            raise CheckpointError("the checkpoint lacks the counters of its training; take an earlier one")
        return Progress(**counts)


class Snapshot(NamedTuple):
    """All of a training at one moment."""

    state: TrainState
    memory: Any
    pending: Transition | None
    """The step that the environments have taken but the device has not stored yet."""
    environments: EnvState
    best: Best
    progress: Progress

    @staticmethod
    def first(learning: Learning, seeds: list[int]) -> "Snapshot":
        """A training that has not begun; its environments are as they were built."""
        state = learning.start(seeds)
        best = Best.none(learning.agent, state)
        return Snapshot(state, learning.begin(len(seeds)), None, {}, best, Progress())


class Checkpoints:
    """The checkpoints of one training, made of its snapshots and made into them."""

    def __init__(self, run: RunDirectory, config: TrainConfig, learning: Learning):
        self._run, self._config, self._learning = run, config, learning
        rows = ReplayLog(run.replay, (config.seeds, config.envs, width_of(learning.spec)), config.replay)
        self._saved = Snapshots(run, rows, config.keep)

    @property
    def newest(self) -> Place | None:
        """The one that was written or continued from last."""
        return self._saved.newest

    def save(self, snapshot: Snapshot, frame: int) -> None:
        """Writes a checkpoint from which training continues exactly; on failure all is as it was."""
        if self.newest is not None and self.newest.name == f"step-{frame:012d}":
            return  # nothing has happened since, as in a run that was already finished
        ring = snapshot.state.replay
        rows = lambda first, last: ring_rows(ring.rows, first, last)
        self._saved.save(frame, pack(snapshot), self._facts(snapshot, frame), int(ring.written), rows)

    def save_weights(self, snapshot: Snapshot, frame: int) -> Place:
        """Writes what acting needs, where all of it does not fit; training cannot continue from it."""
        groups = {name: arrays for name, arrays in pack(snapshot).items() if name in ACTING}
        return self._saved.save_weights(frame, groups, self._facts(snapshot, frame))

    def _facts(self, snapshot: Snapshot, frame: int) -> dict[str, Any]:
        return vars(snapshot.progress) | {"env_steps": frame, "task": self._config.task}

    def restore(self) -> tuple[Snapshot | None, list[str]]:
        """Returns the newest snapshot that is whole, to go on from, and words about those that were passed over.

        None if there is no checkpoint at all; if there are some but none is whole, that is an error.
        """
        try:
            return self._saved.restore(self._like, self._snapshot)
        except CheckpointError as error:
            size = self._learning.spec.obs_dim
            for directory in checkpoint.newest_first(self._run.checkpoints)[:1]:
                raise _about_observations(self._config, directory, size) or error from error
            raise

    def load(self) -> tuple[Found | None, dict[Place, CheckpointError]]:
        """As `restore`, but changes nothing."""
        return self._saved.load(self._like, self._snapshot)

    @property
    def _like(self) -> dict[str, Any]:
        """The shapes of what a checkpoint holds."""
        empty = shapes_of(self._learning, self._config.seeds)
        best = Best.like(self._config.agent, empty)
        return {"agent": without_replay(empty), "rollout": None, "environments": None, "best": best}

    def _snapshot(self, saved: Saved) -> Snapshot:
        config, groups, progress = self._config, saved.groups, Progress.of(saved.facts)
        state = shapes_of(self._learning, config.seeds)
        ring = np.zeros(state.replay.rows.shape, np.float32)
        steps = np.arange(saved.written - len(saved.rows), saved.written)
        ring[:, steps % config.replay] = np.moveaxis(saved.rows, 0, 1)
        state = unpack_state(state, groups["agent"], ring, saved.written)
        memory, pending = unpack_rollout(self._learning, state, groups["rollout"])
        require_sound(
            groups, saved.rows, saved.written, progress.iteration, progress.prefilled, config, self._learning.spec
        )
        on_host = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), self._like["best"])
        best = unflatten(on_host, groups["best"])
        return Snapshot(state, memory, pending, groups["environments"], best, progress)


def require_trainable(config: TrainConfig, run: RunDirectory) -> None:
    """Refuses an agent that was given away (`fcritic.api.export`) and a run that is longer; writes nothing."""
    if run.is_exported():
        raise UsageError(f"{run.path} is an exported agent without a replay; resume the run it came from")
    frame = run.newest_frame()
    if frame > config.iterations * config.frames_per_iteration:
        raise UsageError(f"{run.path} is already at frame {frame:,}; --steps {config.steps} would cut it short")


def learning_of(config: TrainConfig, spec: EnvSpec) -> Learning:
    """The device programs for a config."""
    return Learning(config.agent, spec, config.envs, config.replay, config.normalize, config.recency)


def pack(snapshot: Snapshot) -> dict[str, dict[str, np.ndarray]]:
    """Named arrays of a whole training but for the replay, which has files of its own."""
    pending = {} if snapshot.pending is None else {"pending": snapshot.pending}
    return {
        "agent": flatten(without_replay(snapshot.state)),
        "rollout": flatten({"memory": snapshot.memory} | pending),
        "environments": dict(snapshot.environments),
        "best": flatten(snapshot.best),
    }


def unpack_state(like: TrainState, agent: dict[str, np.ndarray], rows: np.ndarray, written: int) -> TrainState:
    """The state on the device; names, shapes and types are verified against `like`."""
    learned, ring = unflatten(without_replay(like), agent), Replay(jnp.array(rows), jnp.int32(written))
    return eqx.tree_at(lambda s: s.replay, learned, ring, is_leaf=lambda leaf: leaf is None)


def unpack_rollout(
    learning: Learning, state: TrainState, arrays: dict[str, np.ndarray]
) -> tuple[Any, Transition | None]:
    """What the environments' episodes remember, and the step that waits to be stored."""
    rollout: dict[str, Any] = {"memory": learning.begin(state.keys.shape[0])}
    if any(name.startswith("pending") for name in arrays):
        step = jax.eval_shape(lambda rows: unpack_rows(rows[:, 0], learning.spec), state.replay.rows)
        rollout["pending"] = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), step)
    rollout = unflatten(rollout, arrays)
    return rollout["memory"], rollout.get("pending")


def restore_environments(vector: VectorEnv, state: EnvState) -> int:
    """Puts environments back; returns how many have no saved state and begin a new episode."""
    try:
        return vector.restore(state)
    except UsageError:
        raise
    except Exception as error:  # arrays of another task, or made by hand, may fail in any way in a simulator
        what = f"{type(error).__name__}: {error}"
        raise CheckpointError(
            f"the saved environments do not fit this task ({what:.200}); take an earlier one"
        ) from error


def load_policies(
    config: TrainConfig, directory: Place, best: bool = False, spec: EnvSpec | None = None
) -> tuple[Any, Normalizer, dict[str, Any]]:
    """The evaluation policies (seeds, actors, ...) of a checkpoint, its normaliser and its facts.

    With `best`, each seed's policies are those of its best evaluation up to the checkpoint. `spec` spares building
    the task to find out its sizes.
    """
    if best:
        like = Best.like(config.agent, _shapes_of(config, spec))
        groups, facts = checkpoint.load(directory, ["best"], {"best": like})
        require_finite({name: array for name, array in groups["best"].items() if name != "score"})
        found = unflatten(like, groups["best"])
        require_acting(found.policies)
        return found.policies, found.normalizer, _dated(config, facts) | {"best": found.to_json()}
    state, facts = load_state(config, directory, spec)
    policies = jax.vmap(config.agent.evaluation_policies)(state.agent)
    require_acting(policies)
    return policies, state.normalizer, facts


def load_state(
    config: TrainConfig, directory: Place, spec: EnvSpec | None = None
) -> tuple[TrainState, dict[str, Any]]:
    """All that a checkpoint's agents have learned (seeds, ...), without the replay, and the checkpoint's facts."""
    like = without_replay(_shapes_of(config, spec))
    try:
        groups, facts = checkpoint.load(directory, ["agent"], {"agent": like})
    except CheckpointError as error:
        raise _about_observations(config, directory, like.normalizer.mean.shape[-1]) or error from error
    require_sound_agent(groups["agent"])
    return unflatten(like, groups["agent"]), _dated(config, facts)


def _about_observations(config: TrainConfig, directory: Place, size: int) -> CheckpointError | None:
    """The error for a checkpoint whose agent sees observations of another size than the task has."""
    with contextlib.suppress(CheckpointError):
        mean = checkpoint.load(directory, ["agent"])[0]["agent"].get("normalizer/mean", np.empty(size))
        seen = mean.shape[-1] if mean.ndim else size
        if seen != size:
            return CheckpointError(
                f"{directory} is of an agent that sees observations of {seen} numbers, and an observation of "
                f"{config.task} has {size}; name the task that it was trained on"
            )
    return None


def _dated(config: TrainConfig, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts with the frame of the checkpoint, which a file made by hand may lack."""
    return facts | {"env_steps": Progress.of(facts).iteration * config.frames_per_iteration}


def _shapes_of(config: TrainConfig, spec: EnvSpec | None) -> TrainState:
    """Returns the shapes of a training's state."""
    return shapes_of(learning_of(config, spec or task_spec(config.task)), config.seeds)


@functools.lru_cache(maxsize=8)  # for the next checkpoint of the same run: tracing takes longer than reading one
def shapes_of(learning: Learning, seeds: int) -> TrainState:
    """Returns the shapes of the state of several seeds; only one seed is traced."""
    one = jax.eval_shape(learning.start, [0])
    all_seeds = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape[1:]), leaf.dtype), one)
    in_common = lambda state: (state.replay.written, state.tallied)
    return eqx.tree_at(in_common, all_seeds, in_common(one))


def ring_rows(rows: Float[Array, "seeds capacity envs width"], first: int, last: int) -> np.ndarray:
    """Steps number `first` to `last` - 1 of a ring, in their order: (steps, seeds, envs, width)."""
    capacity = rows.shape[1]
    block = min(_BLOCK, capacity)
    parts, step = [], first
    while step < last:
        place = step % capacity
        taken = min(block, last - step, capacity - place)
        begin = min(place, capacity - block)
        part = np.asarray(_block_of(rows, begin, block))
        parts.append(part[:, place - begin : place - begin + taken])
        step += taken
    return np.moveaxis(np.concatenate(parts, axis=1), 1, 0)


@partial(jax.jit, static_argnums=2)
def _block_of(rows: Float[Array, "seeds capacity envs width"], begin: int, size: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(rows, begin, size, axis=1)


def without_replay(state: TrainState) -> TrainState:
    """The state without its replay."""
    return eqx.tree_at(lambda s: s.replay, state, None)


def with_new_episodes(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the states of its environments; every one of them begins a new episode."""
    kept = {name: value for name, value in snapshot.environments.items() if not name.startswith("env/")}
    return snapshot._replace(environments=kept)


def with_other_numbers(state: TrainState, salt: int) -> TrainState:
    """The same state, whose random streams from here on are others."""
    other = jax.vmap(lambda key: jax.random.key_data(jax.random.fold_in(randomness.wrap(key), salt)))(state.keys)
    return eqx.tree_at(lambda s: s.keys, state, other)
