"""The sequence of a run's checkpoints: writing, keeping the newest few, finding one to continue from.

They share the replay (`fcritic.runs.replay_log`). Only the training knows the meaning of their arrays: it passes
named arrays and the shapes that it expects, and restores itself from what it gets back.
"""

from collections.abc import Callable, Mapping
import contextlib
from typing import Any, NamedTuple

import numpy as np

from fcritic.disk import Place
from fcritic.errors import CheckpointError, WithoutReplay
from fcritic.runs import checkpoint
from fcritic.runs.arrays import Arrays
from fcritic.runs.checkpoint import in_words, newest_first, none_usable, prune, set_aside
from fcritic.runs.directory import RunDirectory
from fcritic.runs.replay_log import Piece, Record, ReplayLog

WEIGHTS_ALONE = "weights_alone"
"""The fact of a checkpoint that was written without a replay, because no more fitted on the disk."""


class Saved(NamedTuple):
    """What a checkpoint holds."""

    groups: Mapping[str, dict[str, np.ndarray]]
    facts: dict[str, Any]
    rows: np.ndarray
    """Of the replay, the oldest first."""
    written: int
    """Steps that were collected since the beginning of the run, those included that the replay has forgotten."""


class Found(NamedTuple):
    """A checkpoint that is whole."""

    path: Place
    snapshot: Any
    """What was made of it."""
    pieces: list[Piece]
    """Of the replay's files."""


class Snapshots:
    """The checkpoints of one run: writes them, keeps the newest few, finds the one to continue from."""

    def __init__(self, run: RunDirectory, rows: ReplayLog, keep: int):
        self._run, self._rows, self._keep = run, rows, keep
        self.newest: Place | None = None
        self._last: list[Piece] = []  # of the replay, as the newest checkpoint has them

    def save(
        self,
        frame: int,
        groups: Mapping[str, Arrays],
        facts: Mapping[str, Any],
        written: int,
        rows: Callable[[int, int], np.ndarray],
    ) -> None:
        """Writes a checkpoint; on failure all is as it was.

        `rows` returns the rows of the replay from one step to before another, of which only new ones are asked for.
        """
        path = self._run.checkpoint_path(frame)
        oldest = max(0, written - self._rows.capacity)
        start = max(oldest, self._rows.end)
        if written > start:
            self._rows.append(start, rows(start, written))
        record = Record(oldest, written, self._rows.pieces(oldest))
        checkpoint.save(path, groups, {**facts, "row": self._rows.shape, "replay": record._asdict()})
        self.newest, self._last = path, record.pieces
        kept = prune(self._run.checkpoints, self._keep)
        self._rows.forget([piece for manifest in kept for piece in self._pieces_of(manifest["facts"])])

    def save_weights(self, frame: int, groups: Mapping[str, Arrays], facts: Mapping[str, Any]) -> Place:
        """Writes a checkpoint that can act but not be continued, and frees what no checkpoint needs.

        Older checkpoints are unchanged: the run continues from the newest of those.
        """
        needed = list(self._last)
        for path in newest_first(self._run.checkpoints):
            with contextlib.suppress(CheckpointError):
                needed += self._pieces_of(checkpoint.verify(path, [])["facts"])
        self._rows.resume(self._last)
        self._rows.forget(needed)
        path = self._run.checkpoint_path(frame)
        checkpoint.save(path, groups, {**facts, WEIGHTS_ALONE: True})
        return path

    def _pieces_of(self, facts: Mapping[str, Any]) -> list[Piece]:
        """The pieces of the replay that a checkpoint needs; none where it says nothing that could be used."""
        try:
            return Record.of(facts, self._rows.capacity).pieces
        except CheckpointError:
            return []

    def restore(self, like: Mapping[str, Any], adopt: Callable[[Saved], Any]) -> tuple[Any, list[str]]:
        """Returns the newest checkpoint that is whole, to go on from, and words about those that were passed over.

        None if there is no checkpoint at all; if there are some but none is whole, that is an error. `adopt` makes
        a training of one, or refuses it with a `CheckpointError`; then the one before is tried. `like` holds the
        groups to read, each with the tree that its arrays are meant to fill, or None where that is not known.
        """
        found, faults = self.load(like, adopt)
        if found is None:
            return None, []
        set_aside(faults)
        self.newest, self._last = found.path, found.pieces
        self._rows.resume(found.pieces)  # cuts off what came after this checkpoint
        told = [f"{in_words(faults.values())}; continuing from {found.path.name}"] if faults else []
        return found.snapshot, told

    def load(
        self, like: Mapping[str, Any], adopt: Callable[[Saved], Any]
    ) -> tuple[Found | None, dict[Place, CheckpointError]]:
        """As `restore`, but changes nothing."""
        known = {group: tree for group, tree in like.items() if tree is not None}
        faults: dict[Place, CheckpointError] = {}
        for path in newest_first(self._run.checkpoints):
            try:
                if checkpoint.verify(path, [])["facts"].get(WEIGHTS_ALONE) is True:
                    raise WithoutReplay(
                        f"{path} holds weights without a replay, since no more fitted on the disk: "
                        "it can be evaluated and exported, but not trained on"
                    )
                groups, facts = checkpoint.load(path, like, known)
                record = Record.of(facts, self._rows.capacity)
                saved = Saved(groups, facts, self._rows.rows(record), record.written)
                return Found(path, adopt(saved), record.pieces), faults
            except CheckpointError as error:
                faults[path] = error
        if faults:
            raise none_usable(self._run.checkpoints, faults.values())
        return None, {}
