"""Rows of metrics from a file that anybody may have written: only what has the right form is used.

Rows have a fixed beginning (`fcritic.logs.metrics.ROW_KEYS`), so those of one kind are found,
and one number is taken out
of them, without parsing the rest: a million frames take milliseconds. Rows in another order are parsed.
"""

from collections.abc import Iterator
import json
import math
import re
from typing import Any

from fcritic.view.watch.reading import LINE_LIMIT

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
        """Seed, frame and value (NaN where it is no number) of a line; none where it has not the right form."""
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
