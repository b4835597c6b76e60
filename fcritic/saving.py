"""What a checkpoint of a training holds, and how a training is put back from it."""

from collections.abc import Mapping
import dataclasses
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from fcritic import checkpoint, randomness
from fcritic.best import Best
from fcritic.config import TrainConfig
from fcritic.envs import EnvState, task_spec
from fcritic.errors import CheckpointError
from fcritic.learning import Learning, TrainState
from fcritic.replay import Normalizer, width_of
from fcritic.replay import unpack as unpack_rows
from fcritic.replay_log import ReplayLog, parse_pieces
from fcritic.retention import newest_first, prune, set_aside
from fcritic.runs import RunDirectory
from fcritic.trees import flatten, unflatten
from fcritic.types import EnvSpec, Transition

_BLOCK = 1024
"""Steps that leave the device in one piece: one program serves every amount."""


@dataclasses.dataclass
class Progress:
    """Where a training stands: the counters that are not on the device and not in an environment."""

    iteration: int = 0
    log_position: int = 0
    """Bytes of metrics.jsonl that belong to what was saved."""
    rollbacks: int = 0
    """How often the training went back to a checkpoint; each time with other random numbers."""

    @staticmethod
    def of(facts: Mapping[str, Any]) -> "Progress":
        """The counters that a checkpoint's facts hold."""
        counts = {field.name: facts.get(field.name) for field in dataclasses.fields(Progress)}
        if any(type(value) is not int or value < 0 for value in counts.values()):
            raise CheckpointError("the checkpoint does not say where the training stood; take an earlier one")
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


def learning_of(config: TrainConfig, spec: EnvSpec) -> Learning:
    """The device programs for a config."""
    return Learning(config.agent, spec, config.envs, config.replay, config.normalize, config.recency)


def replay_log_of(run: RunDirectory, config: TrainConfig, spec: EnvSpec) -> ReplayLog:
    """The replay of a run on disk."""
    return ReplayLog(run.replay, (config.seeds, config.envs, width_of(spec)), config.replay)


class Checkpoints:
    """The checkpoints of one run: writes them, keeps the newest few, finds the one to continue from."""

    def __init__(self, run: RunDirectory, config: TrainConfig, learning: Learning):
        self._run, self._config, self._learning = run, config, learning
        self._rows = replay_log_of(run, config, learning.spec)
        self.newest: Path | None = None

    def save(self, snapshot: Snapshot, frame: int) -> None:
        """Writes a checkpoint from which training continues exactly; on failure all is as it was."""
        path = self._run.checkpoint_path(frame)
        if path == self.newest:  # nothing has happened since, as in a run that was already finished
            return
        ring = snapshot.state.replay
        written, capacity = int(ring.written), ring.rows.shape[1]
        oldest = max(0, written - capacity)
        start = max(oldest, self._rows.end)
        if written > start:
            self._rows.append(start, ring_rows(ring.rows, start, written))
        record = {"oldest": oldest, "written": written, "pieces": self._rows.pieces(oldest)}
        facts = vars(snapshot.progress) | {"env_steps": frame, "task": self._config.task, "replay": record}
        checkpoint.save(path, pack(snapshot), facts)
        self.newest = path
        kept = prune(self._run.checkpoints, self._config.keep)
        self._rows.forget(min(replay_record(manifest["facts"], capacity)["oldest"] for manifest in kept))

    def restore(self) -> tuple[Snapshot | None, list[str]]:
        """The newest checkpoint that is whole, and what is wrong with those that were passed over.

        None if there is no checkpoint at all; if there are some but none is whole, that is an error.
        """
        faults: dict[Path, CheckpointError] = {}
        for path in newest_first(self._run.checkpoints):
            try:
                snapshot = self._load(path)
            except CheckpointError as error:
                faults[path] = error
            else:
                self.newest = path
                set_aside(faults)
                return snapshot, [f"{error}; continuing from {path.name}" for error in faults.values()]
        for error in faults.values():  # the newest first
            raise CheckpointError(f"no checkpoint in {self._run.checkpoints} can be used; the newest: {error}")
        return None, []

    def _load(self, path: Path) -> Snapshot:
        seeds = self._config.seed_numbers
        empty = jax.eval_shape(self._learning.start, seeds)
        like = {"agent": _learned(empty), "best": Best.like(self._config.agent, empty)}
        groups, facts = checkpoint.load(path, ["agent", "rollout", "environments", "best"], like)
        progress = Progress.of(facts)
        record = replay_record(facts, self._config.replay)
        pieces = parse_pieces(record["pieces"])
        rows = self._rows.read(pieces, record["oldest"])
        if record["oldest"] + len(rows) != record["written"]:
            raise CheckpointError(f"the replay of {path} is not complete; take an earlier checkpoint")
        state = self._learning.start(seeds)
        ring = np.zeros(state.replay.rows.shape, np.float32)
        places = np.arange(record["oldest"], record["written"]) % self._config.replay
        ring[:, places] = np.moveaxis(rows, 0, 1)
        state = unpack_state(state, groups["agent"], ring, record["written"])
        memory, pending = unpack_rollout(self._learning, state, groups["rollout"])
        best = unflatten(jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), like["best"]), groups["best"])
        self._rows.resume(pieces)  # last: it cuts off what came after this checkpoint
        return Snapshot(state, memory, pending, groups["environments"], best, progress)


def pack(snapshot: Snapshot) -> dict[str, dict[str, np.ndarray]]:
    """Named arrays of a whole training but for the replay, which has files of its own."""
    pending = {} if snapshot.pending is None else {"pending": snapshot.pending}
    return {
        "agent": flatten(_learned(snapshot.state)),
        "rollout": flatten({"memory": snapshot.memory} | pending),
        "environments": dict(snapshot.environments),
        "best": flatten(snapshot.best),
    }


def unpack_state(like: TrainState, agent: dict[str, np.ndarray], rows: np.ndarray, written: int) -> TrainState:
    """The state on the device; names, shapes and types are verified against `like`."""
    ring = eqx.tree_at(lambda r: (r.rows, r.written), like.replay, (jnp.array(rows), jnp.int32(written)))
    learned = unflatten(_learned(like), agent)
    return eqx.tree_at(lambda s: s.replay, learned, ring, is_leaf=lambda leaf: leaf is None)


def unpack_rollout(
    learning: Learning, state: TrainState, arrays: dict[str, np.ndarray]
) -> tuple[Any, Transition | None]:
    """What the environments' episodes remember, and the step that waits to be stored."""
    rollout: dict[str, Any] = {"memory": learning.begin(state)}
    if any(name.startswith("pending") for name in arrays):
        step = jax.eval_shape(lambda rows: unpack_rows(rows[:, 0], learning.spec), state.replay.rows)
        rollout["pending"] = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), step)
    rollout = unflatten(rollout, arrays)
    return rollout["memory"], rollout.get("pending")


def load_policies(
    config: TrainConfig, directory: Path, best: bool = False
) -> tuple[Any, Normalizer, dict[str, Any]]:
    """The evaluation policies (seeds, actors, ...) of a checkpoint, its normaliser and its facts.

    With `best`, each seed's policies are those of its best evaluation up to the checkpoint.
    """
    empty = jax.eval_shape(learning_of(config, task_spec(config.task)).start, config.seed_numbers)
    if best:
        like = Best.like(config.agent, empty)
        groups, facts = checkpoint.load(directory, ["best"], {"best": like})
        found = unflatten(like, groups["best"])
        return found.policies, found.normalizer, facts | {"best": found.to_json()}
    groups, facts = checkpoint.load(directory, ["agent"], {"agent": _learned(empty)})
    state = unflatten(_learned(empty), groups["agent"])
    return jax.vmap(config.agent.evaluation_policies)(state.agent), state.normalizer, facts


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


def _learned(state: TrainState) -> TrainState:
    return eqx.tree_at(lambda s: s.replay, state, None)


def replay_record(facts: Mapping[str, Any], capacity: int) -> dict[str, Any]:
    """Which steps a checkpoint's replay holds and in which files they are, as its facts tell."""
    record = facts.get("replay")
    if not isinstance(record, dict) or record.keys() != {"oldest", "written", "pieces"}:
        raise CheckpointError("the checkpoint does not say where its replay is; take an earlier one")
    oldest, written = record["oldest"], record["written"]
    sound = type(oldest) is int and type(written) is int and 0 <= oldest <= written < 2**31
    if not sound or written - oldest > capacity:
        raise CheckpointError("the checkpoint's replay does not fit this run's --replay; take an earlier one")
    return record


def clear_tally(state: TrainState) -> TrainState:
    """The same state, whose metrics begin to be summed anew."""
    zeros = jax.tree.map(jnp.zeros_like, (state.tally, state.tallied))
    return eqx.tree_at(lambda s: (s.tally, s.tallied), state, zeros)


def with_other_numbers(state: TrainState, salt: int) -> TrainState:
    """The same state, whose random streams from here on are others."""
    other = jax.vmap(lambda key: jax.random.key_data(jax.random.fold_in(randomness.wrap(key), salt)))(state.keys)
    return eqx.tree_at(lambda s: s.keys, state, other)
