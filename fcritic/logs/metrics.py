"""Where metrics go. A row is a dict with ``seed``, ``env_steps``, ``kind`` and any number of values.

``metrics.jsonl`` is the record that plots and reports read; TensorBoard is a view of it. A sink has two
methods, so a new one needs nothing from here but the names.
"""

from collections.abc import Iterator
import contextlib
import functools
import json
import math
import os
from pathlib import Path
import sys
import time
from typing import Any, Protocol

import numpy as np

from fcritic.disk import write_all
from fcritic.errors import UsageError, cannot_write

ROW_KEYS = ("seed", "env_steps", "kind")
"""What every row has, in the order in which it is written."""

FIRST_REWARD = "first_reward"
"""The kind of the one row that tells when a seed first saw a reward."""


class Sink(Protocol):
    """Anything that rows can be written to."""

    def write(self, rows: list[dict]) -> None:
        """Take a batch of rows; when this returns, a killed process loses none of them."""

    def close(self) -> None:
        """Finish; nothing is written afterwards."""


class JSONLog:
    """An append-only file with one JSON object per row.

    NaN and infinities are written as ``null``, because JSON has no word for them; ``read_rows`` gives
    them back as NaN. Arrays become lists. A last line without its end, left by a killed process, is cut
    off on opening, so that the next row does not run into it.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: a row is with the operating system, or its error with us, on return.
            self._file = self.path.open("a+b", buffering=0)
            self._waiting = b""
            _cut(self._file, _whole_lines(self._file))
        except OSError as error:
            raise cannot_write("metrics", self.path, error) from error

    def write(self, rows: list[dict]) -> None:
        """Append rows, all of them or, after an error, none: these then wait for the next call."""
        self._waiting += b"".join(_encode(row) for row in rows)
        start = self._file.seek(0, os.SEEK_END)
        try:
            write_all(self._file, self._waiting)
            self._waiting = b""
        except OSError as error:
            _cut(self._file, start)
            raise cannot_write("metrics", self.path, error) from error

    def position(self) -> int:
        """The size in bytes, once all of it is on disk: what a checkpoint records."""
        self.write([])
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise cannot_write("metrics", self.path, error) from error
        return self._file.seek(0, os.SEEK_END)

    def truncate(self, position: int) -> None:
        """Cut off what was written after ``position``, so that a resumed run repeats no row."""
        self._waiting = b""
        size = self._file.seek(0, os.SEEK_END)
        if position > size:
            raise UsageError(
                f"{self.path} holds {size} bytes but the checkpoint was taken at {position}: rows are "
                "missing; put the file back or choose another --out"
            )
        self._file.seek(max(position - 1, 0))
        if position > 0 and self._file.read(1) != b"\n":
            raise UsageError(
                f"{self.path} has no row that ends at byte {position}, where the checkpoint was taken: "
                "it was edited; put the file back or choose another --out"
            )
        try:
            _cut(self._file, position)
        except OSError as error:
            raise cannot_write("metrics", self.path, error) from error

    def seeds_with(self, kind: str) -> set[int]:
        """Seeds that have a row of this kind; lines that are no rows are passed over."""
        marker, found = json.dumps(kind).encode(), set()
        with self.path.open("rb") as file:
            for line in file:
                if marker in line:  # few are, and only these are parsed
                    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                        row = json.loads(line)
                        found |= {int(row["seed"])} if row["kind"] == kind else set()
        return found

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._file.close()


class TensorBoardLog:
    """TensorBoard event files with one sub-run per seed (``seed-3/``) and tags ``kind/name``.

    Lists become ``kind/name/0``, ``kind/name/1``; text is left to the JSON log. With ``resume_step``,
    the step of the checkpoint, TensorBoard hides what an earlier process wrote after it.
    """

    def __init__(self, directory: str | Path, resume_step: int | None = None):
        self.directory = Path(directory)
        self._purge_step = None if resume_step is None else resume_step + 1  # purging includes its step
        self._writers: dict[int, Any] = {}

    def write(self, rows: list[dict]) -> None:
        """Add one point per number and flush."""
        messages, _, scalar = _tensorboard()
        try:
            for row in rows:
                writer = self._writer(int(row["seed"]))
                for name, value in numbers(row):
                    summary = scalar(f"{row['kind']}/{name}", value)
                    step = int(row["env_steps"])
                    writer.write_event(messages.Event(wall_time=time.time(), step=step, summary=summary))
            for writer in self._writers.values():
                writer.flush()
        except OSError as error:
            raise cannot_write("TensorBoard events", self.directory, error) from error

    def close(self) -> None:
        """Close the event files; safe to call twice. What could not be written was reported by `write`."""
        for writer in self._writers.values():
            with contextlib.suppress(OSError):
                writer.close()
        self._writers.clear()

    def _writer(self, seed: int) -> Any:
        """The file of a seed, written here and now: a full disk is noticed here and not by a thread."""
        if seed not in self._writers:
            messages, events_writer, _ = _tensorboard()
            folder = self.directory / f"seed-{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            # File names count seconds: a resume within one would overwrite the earlier events.
            self._writers[seed] = events_writer(str(folder / "events"), f".{time.time_ns()}")
            if self._purge_step is not None:
                restart = messages.SessionLog(status=messages.SessionLog.START)
                event = messages.Event(wall_time=time.time(), step=self._purge_step, session_log=restart)
                self._writers[seed].write_event(event)
        return self._writers[seed]


@functools.cache
def _tensorboard() -> tuple[Any, Any, Any]:
    """tensorboardX's messages, its writer of a file and its scalars; all that uses it asks here."""
    with _without_torch():
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2
        from tensorboardX.summary import scalar
    return event_pb2, EventsWriter, scalar


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """PyTorch as if it were not installed, for all threads: tensorboardX would import it, which takes seconds."""
    hidden = "torch" not in sys.modules  # one that is there already costs nothing
    if hidden:
        sys.modules["torch"] = None  # Python's word for a module that must not be imported
    try:
        yield
    finally:
        if hidden:
            sys.modules.pop("torch", None)


def read_rows(path: str | Path) -> list[dict]:
    """The rows of a ``metrics.jsonl``; a last line without its end is not a row yet and is left out."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name a metrics.jsonl of a run") from error
    rows = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            rows.append({name: _from_json(value) for name, value in json.loads(line).items()})
        except (ValueError, AttributeError, RecursionError) as error:
            raise UsageError(f"{path} line {number} is not a row of metrics; repair or remove it") from error
    return rows


def _encode(row: dict) -> bytes:
    ordered = {name: row[name] for name in ROW_KEYS} | row
    plain = {name: _to_json(value) for name, value in ordered.items()}
    return json.dumps(plain, allow_nan=False).encode() + b"\n"


def _to_json(value: Any) -> Any:
    if not isinstance(value, str | bool | int | float | list | tuple | None):
        value = np.asarray(value).tolist()  # arrays and scalars of JAX and numpy
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    return math.nan if value is None else value


def numbers(row: dict) -> list[tuple[str, float]]:
    """The numbers of a row, each by its name; those of a list as ``name/0``, ``name/1``."""
    found = []
    for name, value in row.items():
        array = np.asarray(value)
        if name in ROW_KEYS or array.dtype.kind not in "biuf":
            continue
        places = [name] if array.ndim == 0 else [f"{name}/{place}" for place in range(array.size)]
        found += zip(places, array.ravel().astype(float).tolist(), strict=True)
    return found


def _whole_lines(file: Any) -> int:
    """The size of a file up to and including its last line end, read from the back."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(end - 4096, 0)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _cut(file: Any, size: int) -> None:
    if file.seek(0, os.SEEK_END) > size:
        file.truncate(size)
        os.fsync(file.fileno())
