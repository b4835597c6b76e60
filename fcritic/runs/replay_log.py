"""The replay on disk: rows in the order in which they were collected, in files that only ever grow.

A ring of a million transitions changes by a few thousand between two checkpoints, so checkpoints share it: each
names the pieces of the files that it needs and their hashes, and saving appends only what is new. What a killed
process appended to a file after its last checkpoint is cut off when the run continues. Files that no checkpoint
needs any more are removed after a save, never when a run continues: an older checkpoint may be needed next.
"""

from collections.abc import Iterable, Mapping
import contextlib
import errno
import hashlib
import io
import math
import os
from pathlib import Path
import re
from typing import Any, NamedTuple

import numpy as np

from fcritic.disk import Place, hash_of, read_exactly, require_memory, write_all
from fcritic.errors import CheckpointError, UsageError, cannot_write, writing

FILES_PER_RING = 8
"""Into how many files a ring's worth of rows is split: what may be removed late is an eighth of it."""

_NAME = re.compile(r"rows-([0-9]{12})\.f32")


class Piece(NamedTuple):
    """The beginning of one file, as a checkpoint records it."""

    first: int
    """Number of the first step in it, counted from the beginning of the run; it names the file."""
    steps: int
    sha256: str


class Record(NamedTuple):
    """Which steps a checkpoint's replay holds, and in which files they are."""

    oldest: int
    written: int
    """One more than the number of the newest step."""
    pieces: list[Piece]

    @staticmethod
    def of(facts: Mapping[str, Any], capacity: int) -> "Record":
        """Returns the record in a checkpoint's facts; one that does not fit the replay is a `CheckpointError`."""
        record = facts.get("replay")
        if not isinstance(record, dict) or record.keys() != set(Record._fields):
            raise CheckpointError("the checkpoint does not say where its replay is; take an earlier one")
        oldest, written = record["oldest"], record["written"]
        sound = type(oldest) is int and type(written) is int and 0 <= oldest <= written < 2**31
        if not sound or oldest != max(0, written - capacity):
            raise CheckpointError("the checkpoint's replay does not fit this run's --replay; take an earlier one")
        return Record(oldest, written, parse_pieces(record["pieces"]))


class ReplayLog:
    """The rows of one run; each step is one float32 array of a fixed shape (seeds, envs, width)."""

    def __init__(self, folder: str | os.PathLike | Place, shape: tuple[int, ...], capacity: int):
        self._place, self.shape, self.capacity = Place.of(folder), tuple(shape), capacity
        self._bytes_per_step = 4 * math.prod(shape)
        self._steps_per_file = max(1, -(-capacity // FILES_PER_RING))
        self._pieces: list[Piece] = []
        self._hash: Any = None  # of the newest file, as far as it was written

    @property
    def folder(self) -> Path:
        """Where the files are, for messages."""
        return self._place.path

    @property
    def end(self) -> int:
        """The number of the next step to be appended."""
        return self._pieces[-1].first + self._pieces[-1].steps if self._pieces else 0

    def pieces(self, oldest: int) -> list[Piece]:
        """What a checkpoint that needs the steps from `oldest` on must record."""
        return [piece for piece in self._pieces if piece.first + piece.steps > oldest]

    # Writing

    def append(self, first: int, rows: np.ndarray) -> None:
        """Adds the steps from number `first` on, all of them or, after an error, none; then they are on disk."""
        rows = np.ascontiguousarray(rows, np.float32)
        if rows.shape[1:] != self.shape:
            raise ValueError(f"rows of shape {rows.shape[1:]} cannot follow rows of shape {self.shape}")
        before = list(self._pieces), None if self._hash is None else self._hash.copy()
        try:
            self._place.make()
            while len(rows):
                taken = self._append_to_newest(first, rows)
                first, rows = first + taken, rows[taken:]
            self._place.sync()
        except OSError as error:
            begun = self._pieces[len(before[0]) :]
            self._pieces, self._hash = before
            with contextlib.suppress(OSError):
                self._give_back(begun)
            raise cannot_write("the replay", self.folder, error) from error

    def _give_back(self, begun: list[Piece]) -> None:
        """Frees what a failed append has written, which others may need: metrics, or the weights of the agent."""
        for piece in begun:
            self._file(piece.first).remove()
        if self._pieces:
            with self._file(self._pieces[-1].first).appending() as file:
                file.truncate(self._pieces[-1].steps * self._bytes_per_step)

    def _append_to_newest(self, first: int, rows: np.ndarray) -> int:
        """As many of these steps as the newest file may still hold, or the beginning of a new one."""
        newest = self._pieces[-1] if self._pieces else None
        if newest is None or first != self.end or newest.steps >= self._steps_per_file:
            newest = Piece(first, 0, "")
            self._pieces.append(newest)
            self._hash = hashlib.sha256()
            self._file(first).remove()  # left by a killed process
        taken = min(len(rows), self._steps_per_file - newest.steps)
        data = memoryview(rows[:taken].reshape(-1).view(np.uint8))
        with self._file(newest.first).appending() as file:
            if file.seek(0, os.SEEK_END) < newest.steps * self._bytes_per_step:
                raise OSError(errno.EIO, "rows that were written are gone")
            file.truncate(newest.steps * self._bytes_per_step)  # after an append that failed half-way
            write_all(file, data)
            os.fsync(file.fileno())
        self._hash.update(data)
        self._pieces[-1] = Piece(newest.first, newest.steps + taken, self._hash.hexdigest())
        return taken

    def forget(self, needed: Iterable[Piece]) -> None:
        """Removes the files of which nothing is among these pieces, those of all checkpoints that are kept."""
        kept = {self._file(piece.first).name for piece in needed}
        self._pieces = [piece for piece in self._pieces if self._file(piece.first).name in kept]
        with writing("the replay", self.folder):
            for name in self._place.entries():
                if _NAME.fullmatch(name) and name not in kept:
                    (self._place / name).remove()

    def resume(self, pieces: Iterable[Piece]) -> None:
        """Continues after these pieces; what was appended to the newest of their files later is cut off."""
        self._pieces = list(pieces)
        self._hash = None
        with writing("the replay", self.folder):
            if self._pieces:
                newest = self._pieces[-1]
                with self._file(newest.first).appending() as file:
                    file.truncate(newest.steps * self._bytes_per_step)
                    file.seek(0)
                    self._hash = hash_of(file)

    # Reading

    def rows(self, record: Record) -> np.ndarray:
        """Returns the rows (steps, seeds, envs, width) that a checkpoint needs, all of them."""
        rows = self.read(record.pieces, record.oldest)
        if record.oldest + len(rows) != record.written:
            raise CheckpointError("the checkpoint's replay is not complete; take an earlier one")
        return rows

    def read(self, pieces: Iterable[Piece], oldest: int) -> np.ndarray:
        """The rows (steps, seeds, envs, width) from step `oldest` on; a fault is a `CheckpointError`.

        Names and sizes are verified before memory is asked for, and hashes before a row is handed out.
        """
        pieces = list(pieces)
        self._require_gapless(pieces, oldest)
        files = []
        try:
            for piece in pieces:
                files.append(self._open(piece))
            steps = sum(piece.steps for piece in pieces)
            require_memory(steps * self._bytes_per_step, "it")
            rows = np.empty((steps, *self.shape), np.float32)
            place = 0
            for piece, file in zip(pieces, files, strict=True):
                part = memoryview(rows[place : place + piece.steps].reshape(-1).view(np.uint8))
                read_exactly(file, part)
                if hashlib.sha256(part).hexdigest() != piece.sha256:
                    raise CheckpointError(f"{self._file(piece.first)} does not match its hash")
                place += piece.steps
        except CheckpointError:
            raise
        except (OSError, ValueError, UsageError) as error:
            raise CheckpointError(f"the replay in {self.folder} cannot be read: {error}") from error
        finally:
            for file in files:
                file.close()
        return rows[oldest - pieces[0].first :] if pieces else rows

    def _open(self, piece: Piece) -> io.FileIO:
        file = self._file(piece.first).reading()
        size, needed = os.fstat(file.fileno()).st_size, piece.steps * self._bytes_per_step
        if size < needed:
            file.close()
            raise CheckpointError(f"{self._file(piece.first)} has {size} bytes, {needed} are needed")
        return file

    def _require_gapless(self, pieces: list[Piece], oldest: int) -> None:
        expected = pieces[0].first if pieces else oldest
        for piece in pieces:
            if piece.first != expected or not 0 < piece.steps <= self._steps_per_file:
                raise CheckpointError("the checkpoint's list of replay files has gaps")
            expected += piece.steps
        if pieces and not pieces[0].first <= oldest <= expected:
            raise CheckpointError("the checkpoint's replay files do not reach back far enough")
        if len(pieces) > FILES_PER_RING + 2:  # the ring, a file that it has left in part and one that it has begun
            raise CheckpointError("the checkpoint's list of replay files is longer than the replay")

    def _file(self, first: int) -> Place:
        return self._place / f"rows-{first:012d}.f32"


def parse_pieces(data: Any) -> list[Piece]:
    """The pieces that a manifest names; anything else there is a `CheckpointError`."""
    try:
        pieces = [Piece(*entry) for entry in data]
    except TypeError:
        pieces = [Piece(-1, 0, "")]
    for first, steps, sha256 in pieces:
        if (
            type(first) is not int
            or type(steps) is not int
            or not isinstance(sha256, str)
            or not 0 <= first < 10**12
        ):
            raise CheckpointError("the checkpoint's list of replay files cannot be read")
    return pieces
