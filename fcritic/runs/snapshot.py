"""The checkpoints of a run: written, kept by a rule, found again. The replay is shared between them."""

from collections.abc import Mapping
import contextlib
import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from fcritic.config import TrainConfig
from fcritic.disk import Place
from fcritic.errors import CheckpointError, UsageError
from fcritic.runs import checkpoint
from fcritic.runs.directory import RunDirectory
from fcritic.runs.replay_log import Piece, ReplayLog, parse_pieces
from fcritic.runs.retention import in_words, newest_first, none_usable, prune, set_aside
from fcritic.runs.trees import unflatten
from fcritic.training.device import Learning
from fcritic.training.evaluate import Best
from fcritic.training.health import require_sound
from fcritic.training.replay import width_of
from fcritic.training.saving import (
    Progress,
    Snapshot,
    pack,
    ring_rows,
    unpack_rollout,
    unpack_state,
    without_replay,
)
from fcritic.types import EnvSpec


class Found(NamedTuple):
    """A checkpoint that is whole."""

    path: Place
    snapshot: Snapshot
    pieces: list[Piece]
    """Of the replay's files."""


class Checkpoints:
    """The checkpoints of one run: writes them, keeps the newest few, finds the one to continue from."""

    def __init__(self, run: RunDirectory, config: TrainConfig, learning: Learning):
        self._run, self._config, self._learning = run, config, learning
        self._rows = replay_log_of(run, config, learning.spec)
        self.newest: Place | None = None

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
        self._rows.forget([piece for manifest in kept for piece in _pieces_of(manifest["facts"], capacity)])

    def restore(self) -> tuple[Snapshot | None, list[str]]:
        """The newest checkpoint that is whole, to go on from, and what is wrong with those that were passed over.

        None if there is no checkpoint at all; if there are some but none is whole, that is an error.
        """
        found, faults = self.load()
        if found is None:
            return None, []
        set_aside(faults)
        self.newest = found.path
        self._rows.resume(found.pieces)  # cuts off what came after this checkpoint
        told = [f"{in_words(faults.values())}; continuing from {found.path.name}"] if faults else []
        return found.snapshot, told

    def load(self) -> tuple[Found | None, dict[Place, CheckpointError]]:
        """As `restore`, but changes nothing."""
        faults: dict[Place, CheckpointError] = {}
        for path in newest_first(self._run.checkpoints):
            try:
                return self._load(path), faults
            except CheckpointError as error:
                faults[path] = error
        if faults:
            raise none_usable(self._run.checkpoints, faults.values())
        return None, {}

    @functools.cached_property
    def _like(self) -> dict[str, Any]:
        """The shapes of what a checkpoint holds, found out once for however many are looked at."""
        empty = jax.eval_shape(self._learning.start, self._config.seed_numbers)
        return {"agent": without_replay(empty), "best": Best.like(self._config.agent, empty)}

    def _load(self, path: Place) -> Found:
        like = self._like
        groups, facts = checkpoint.load(path, ["agent", "rollout", "environments", "best"], like)
        progress = Progress.of(facts)
        record = replay_record(facts, self._config.replay)
        pieces = parse_pieces(record["pieces"])
        rows = self._rows.read(pieces, record["oldest"])
        if record["oldest"] + len(rows) != record["written"]:
            raise CheckpointError(f"the replay of {path} is not complete; take an earlier checkpoint")
        state = self._learning.start(self._config.seed_numbers)
        ring = np.zeros(state.replay.rows.shape, np.float32)
        ring[:, np.arange(record["oldest"], record["written"]) % self._config.replay] = np.moveaxis(rows, 0, 1)
        state = unpack_state(state, groups["agent"], ring, record["written"])
        memory, pending = unpack_rollout(self._learning, state, groups["rollout"])
        require_sound(groups, rows, record["written"], progress.iteration, self._config, self._learning.spec)
        best = unflatten(jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), like["best"]), groups["best"])
        return Found(path, Snapshot(state, memory, pending, groups["environments"], best, progress), pieces)


def _pieces_of(facts: Mapping[str, Any], capacity: int) -> list[Piece]:
    """The pieces of the replay that a checkpoint needs; none where it says nothing that could be used."""
    try:
        return parse_pieces(replay_record(facts, capacity)["pieces"])
    except CheckpointError:
        return []


def require_trainable(config: TrainConfig, run: RunDirectory) -> None:
    """Refuses an agent that was given away (`fcritic.api.export`) and a run that is longer; writes nothing."""
    for path in newest_first(run.checkpoints)[:1]:
        with contextlib.suppress(CheckpointError):
            if checkpoint.verify(path, [])["facts"].get("exported") is True:
                raise UsageError(f"{run.path} is an exported agent without a replay; resume the run it came from")
    frame = run.newest_frame()
    if frame > config.iterations * config.frames_per_iteration:
        raise UsageError(f"{run.path} is already at frame {frame:,}; --steps {config.steps} would cut it short")


def replay_log_of(run: RunDirectory, config: TrainConfig, spec: EnvSpec) -> ReplayLog:
    """The replay of a run on disk."""
    return ReplayLog(run.replay, (config.seeds, config.envs, width_of(spec)), config.replay)


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
