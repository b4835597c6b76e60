"""Where metrics go. A row is a dict with ``seed``, ``env_steps``, ``kind`` and any number of values.

``metrics.jsonl`` is the record that plots and reports read; TensorBoard is a view of it. A sink has two
methods, so a new one needs nothing from here but the names.
"""

from collections.abc import Iterator
import contextlib
import json
import math
import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fcritic.disk import Place, whole_lines, write_all
from fcritic.errors import UsageError, cannot_write, writing
from fcritic.runs import METRICS_LIMIT

ROW_KEYS = ("seed", "env_steps", "kind")
"""The fields of every row, in the order in which they are written."""

LINE_LIMIT = 2**20
"""Bytes of a row; those of a thousand actors take a fiftieth of it."""

FIRST_REWARD = "first_reward"
"""The kind of the row with a seed's first reward."""

KNOWLEDGE = "knowledge"
"""The kind of rows with what critics know of policies: `SIGN_KIND` for each sign and each kind of policies, and
`SIGN_KIND_corrected` where values were corrected by what the replay says of each policy."""

ASKED = {
    "past": "past actors",
    "mixtures": "mixtures",
    "slice": "slice through three actors",
    "others": "actors of other seeds",
}
"""The kinds of policies that critics are asked about, with words for them."""

CORRECTED = "_corrected"
"""Behind the names of such numbers, where values were corrected by the replay."""

SIGNS = {"rank": "rank correlation", "slope": "slope of measured on predicted", "error": "root mean square error"}
"""How well the critics' values and measured returns of policies agree, with words for it."""


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

    def __init__(self, path: str | os.PathLike | Place):
        self._place = Place.of(path)
        try:
            self._place.parent.make()
            # Unbuffered: a row is with the operating system, or its error with us, on return.
            self._file = self._place.appending()
            self._waiting = b""
            _cut(self._file, _whole_lines(self._file))
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError):
                raise UsageError(f"{self.path} {error}; repair or remove it") from error
            raise cannot_write("metrics", self.path, error) from error

    @property
    def path(self) -> Path:
        """Where the file is, for messages."""
        return self._place.path

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
        with writing("metrics", self.path):
            os.fsync(self._file.fileno())
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
        with writing("metrics", self.path):
            _cut(self._file, position)

    def seeds_with(self, kind: str) -> set[int]:
        """Returns the seeds that have a row of this kind; skips lines that are not rows."""
        marker, found = json.dumps(kind).encode(), set()
        try:
            with self._place.reading() as file:
                for line in whole_lines(file, LINE_LIMIT):
                    if marker in line:  # few are, and only these are parsed
                        with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
                            row = json.loads(line)
                            found |= {int(row["seed"])} if row["kind"] == kind else set()
        except (OSError, ValueError) as error:
            raise _cannot_read(self.path, error) from error
        return found

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._file.close()


def read_rows(path: str | os.PathLike | Place) -> list[dict]:
    """The rows of a ``metrics.jsonl``; a last line without its end is not a row yet and is left out."""
    return [row for _, row in each_row(path)]


def each_row(path: str | os.PathLike | Place) -> Iterator[tuple[bytes, dict]]:
    """Every line of a ``metrics.jsonl`` and the row that it is, one after the other."""
    place = Place.of(path)
    try:
        with place.reading(METRICS_LIMIT) as file:
            for number, line in enumerate(whole_lines(file, LINE_LIMIT), start=1):
                try:
                    row = {name: _from_json(value) for name, value in json.loads(line).items()}
                except (ValueError, AttributeError, RecursionError) as error:
                    message = f"{place} line {number} is not a row of metrics; repair or remove it"
                    raise UsageError(message) from error
                yield line, row
    except (OSError, ValueError) as error:
        raise _cannot_read(place.path, error) from error


def _cannot_read(path: Path, error: OSError | ValueError) -> UsageError:
    why = (error.strerror if isinstance(error, OSError) else None) or error
    return UsageError(f"cannot read {path}: {why}; name a metrics.jsonl of a run")


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
    size = end = file.seek(0, os.SEEK_END)
    while end > 0:
        if size - end > LINE_LIMIT:
            raise ValueError(f"ends in a line of more than {LINE_LIMIT:,} bytes")
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
