"""Files of rows that grow: what was appended since the last look, numbers out of it, curves of bounded length.

A file may come from anyone. It may be cut and rewritten, end in half a line or hold a line without an end; a look
takes one block of memory all the same, and only rows of the right form are used. These have a fixed beginning
(`fcritic.logs.metrics.ROW_KEYS`), so those of one kind are found, and one number is taken out of them, without
parsing the rest: a million frames take milliseconds. Rows in another order are parsed.
"""

from array import array
from collections.abc import Iterator
import json
import math
import os
import re
import stat
from typing import Any

from fcritic.disk import Place
from fcritic.runs import METRICS_LIMIT

# Lines that were appended

BLOCK = 2**20
"""Bytes that are read at a time."""

LINE_LIMIT = 2**18
"""Bytes of a line; longer ones are passed over."""

MARK = 256
"""Bytes before the place reached that must still be the same, or the file was written anew."""


class Cursor:
    """How far somebody has read."""

    def __init__(self) -> None:
        self.offset = 0
        """The end of the last whole line that was taken."""
        self.seen = 0
        """The size up to which there is nothing more to take: half a line may lie between the two."""
        self.passing = False
        """Inside a line that is too long, whose end is being looked for."""
        self.passed = 0
        """Lines that were too long."""


class Tail:
    """A file that several readers follow, each with a cursor of its own."""

    def __init__(self, path: str | os.PathLike | Place):
        self._place = Place.of(path)
        self.size, self.changed = 0, 0.0
        self.bytes_read = 0
        self.too_large = False
        """More than any run writes: it is not read at all."""
        self._identity: tuple[int, int] | None = None
        self._reached, self._mark = 0, b""

    def look(self) -> bool:
        """Looks at the file without reading it; true if it was cut or replaced and has to be read anew."""
        try:
            status = self._place.status()
        except OSError:
            status = None
        self.too_large = status is not None and status.st_size > METRICS_LIMIT
        if status is None or not stat.S_ISREG(status.st_mode) or self.too_large:
            gone, self._identity, self.size = self._identity is not None, None, 0
            self._reached, self._mark = 0, b""
            return gone
        identity = (status.st_dev, status.st_ino)
        touched = (status.st_mtime, status.st_size) != (self.changed, self.size)
        same = self._identity in (None, identity) and status.st_size >= self._reached
        if same and touched:
            same = self._mark_is_there()
        self._identity, self.size, self.changed = identity, status.st_size, status.st_mtime
        if not same:
            self._reached, self._mark = 0, b""
        return not same

    def next(self, cursor: Cursor) -> bytes | None:
        """The next whole lines, of at most a block; none where there is nothing new."""
        if cursor.seen >= self.size:
            return None
        data = self._read(cursor.offset, min(BLOCK, self.size - cursor.offset))
        if not data:
            return None
        first, last, reached = 0, data.rfind(b"\n") + 1, cursor.offset + len(data)
        if cursor.passing:
            first = data.find(b"\n") + 1
            cursor.passing = first == 0
        elif not last and len(data) >= LINE_LIMIT:
            cursor.passing, cursor.passed = True, cursor.passed + 1
        taken = len(data) if cursor.passing else last
        cursor.offset += taken
        cursor.seen = reached if reached >= self.size else cursor.offset
        if cursor.offset > self._reached:
            before = self._mark[: len(self._mark) - (self._reached - (cursor.offset - taken))]  # without overlap
            self._reached, self._mark = cursor.offset, (before + data[:taken])[-MARK:]
        return data[first:last]

    def last_lines(self, most: int = 2**16) -> list[bytes]:
        """Whole lines at the very end, newest first, before all the others are read."""
        lines = self._read(max(self.size - most, 0), most).split(b"\n")
        return lines[-2 : 0 if self.size > most else None : -1]

    def _mark_is_there(self) -> bool:
        """Whether the bytes before the place reached are unchanged; a training that went back writes others."""
        return not self._mark or self._read(self._reached - len(self._mark), len(self._mark)) == self._mark

    def _read(self, offset: int, most: int) -> bytes:
        try:
            with self._place.reading() as file:
                file.seek(offset)
                data = file.read(most)
        except OSError:  # gone, or no plain file
            return b""
        self.bytes_read += len(data)
        return data


# Rows and numbers of them

_HEAD = rb'\{"seed": (\d{1,10}), "env_steps": (\d{1,15}), "kind": "'
_NUMBER = rb'": (-?\d[\d.eE+-]{0,30}|null|NaN|-?Infinity)[,}]'
_ROW = re.compile(_HEAD)

NOT_CURVES = {"seed", "env_steps", "kind", "env"}


def needle(kind: str) -> bytes:
    """What a row of a kind contains."""
    return f'"kind": "{kind}"'.encode()


def kind_of(line: bytes) -> bytes | None:
    """The kind of a row that has our own form."""
    head = _ROW.match(line)
    return line[head.end() : line.find(b'"', head.end())] if head else None


def places_of(block: bytes, kind: str) -> Iterator[tuple[int, int]]:
    """Where the lines of one kind begin and end."""
    wanted = needle(kind)
    place = block.find(wanted)
    while place >= 0:
        end = block.find(b"\n", place)
        yield block.rfind(b"\n", 0, place) + 1, end
        place = block.find(wanted, end)


class Field:
    """One number of the rows of one kind."""

    def __init__(self, kind: str, name: str):
        self.kind, self.name = kind, name
        words = [re.escape(word.encode()) for word in (kind, name)]
        self._pattern = re.compile(_HEAD + words[0] + rb'", [^\n]*?"' + words[1] + _NUMBER)

    def of(self, block: bytes, start: int, end: int) -> tuple[int, float, float] | None:
        """Returns seed, frame and value (NaN where not a number) of a line; None where it has another form."""
        found = self._pattern.match(block, start, end)
        if found is None or end - start > LINE_LIMIT:
            return self._parsed(block[start:end])
        seed, frame, text = found.groups()
        try:
            value = math.nan if text == b"null" else float(text)
        except ValueError:
            return None
        return int(seed), float(frame), value if math.isfinite(value) else math.nan

    def _parsed(self, line: bytes) -> tuple[int, float, float] | None:
        row = parse(line) or {}
        seed, frame = row.get("seed"), number(row.get("env_steps"))
        value = number(row.get(self.name), math.nan)
        right = type(seed) is int and 0 <= seed < 2**32 and row.get("kind") == self.kind and self.name in row
        if not right or frame is None or value is None:
            return None
        return seed, frame, value


def parse(line: bytes) -> dict[str, Any] | None:
    """The object of a line, or none."""
    if len(line) > LINE_LIMIT:
        return None
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):  # also what is not UTF-8
        return None
    return content if isinstance(content, dict) else None


def number(value: Any, missing: float | None = None) -> float | None:
    """A finite number; `missing` for null and what is not finite; none for anything else."""
    if value is None:
        return missing
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        value = float(value)
    except OverflowError:
        return missing
    return value if math.isfinite(value) else missing


def fields(row: dict[str, Any]) -> Iterator[str]:
    """The names of the curves that a row has a point of, as `kind/name`."""
    kind = row.get("kind")
    if isinstance(kind, str) and kind.isidentifier() and len(kind) <= 30:
        for name, value in row.items():
            usable = name not in NOT_CURVES and name.isidentifier() and len(name) <= 60
            if usable and number(value, math.nan) is not None:
                yield f"{kind}/{name}"


# Curves of bounded length: of too many points neighbours become their mean

MOST_POINTS = 512
"""Points that a curve keeps; beyond that every two become one."""


class Series:
    """Points (frame, value) in the order in which they came; each the mean of `stride` rows."""

    def __init__(self) -> None:
        self.frames, self.values = array("d"), array("d")
        self.stride = 1
        self._frames, self._values, self._count = 0.0, 0.0, 0

    def extend(self, frames: list[float], values: list[float]) -> None:
        """More rows."""
        if self.stride > 1:
            for frame, value in zip(frames, values, strict=True):
                self.add(frame, value)
            return
        self.frames.extend(frames)
        self.values.extend(values)
        self._shorten()

    def add(self, frame: float, value: float) -> None:
        """One more row."""
        self._frames, self._values, self._count = self._frames + frame, self._values + value, self._count + 1
        if self._count < self.stride:
            return
        self.frames.append(self._frames / self._count)
        self.values.append(self._values / self._count)
        self._frames, self._values, self._count = 0.0, 0.0, 0
        self._shorten()

    def _shorten(self) -> None:
        while len(self.frames) >= MOST_POINTS:
            self.frames, self.values = (array("d", _halved(part)) for part in (self.frames, self.values))
            self.stride *= 2

    def thinned(self, most: int) -> tuple[list[float], list[float]]:
        """At most so many points, rows that wait for their mean included."""
        frames, values = list(self.frames), list(self.values)
        if self._count:
            frames.append(self._frames / self._count)
            values.append(self._values / self._count)
        while len(frames) > most:
            frames, values = list(_halved(frames)), list(_halved(values))
        return frames, values


def _halved(numbers: array | list[float]) -> Iterator[float]:
    for place in range(0, len(numbers) - 1, 2):
        yield (numbers[place] + numbers[place + 1]) / 2
    if len(numbers) % 2:
        yield numbers[-1]
