"""The curves of one run: each is read out of its metrics once somebody asks for it, and then follows them."""

from collections import deque
import copy
import math
from typing import Any

from fcritic.view.watch.reading import (
    Cursor,
    Field,
    Series,
    Tail,
    fields,
    kind_of,
    needle,
    number,
    parse,
    places_of,
)

ALWAYS = ("evaluation/mean_actor", "evaluation/best_actor", "episode/return")
"""What is read of every run."""

COUNTING = "episode/return"
"""The reader with which faults and rollbacks are counted."""

MOST_READERS, MOST_SEEDS, MOST_NAMES, MOST_ACTORS = 40, 64, 200, 1000
ROLLOUT_EPISODES = 10

LONGEST_EVALUATION = 2**15
"""Bytes of a row of which the actors are shown."""

HISTORY = 2**17
"""Bytes: with more than that before it, a reader reads alone, so that the curves asked for come first."""


class Reader:
    """One number of the rows, over frames, for every seed."""

    def __init__(self, metric: str):
        kind, _, name = metric.partition("/")
        self.field, self.cursor = Field(kind, name), Cursor()
        self.series: dict[int, Series] = {}
        self.last: dict[int, deque[float]] = {}
        self.lines: dict[int, tuple[int, int]] = {}
        """Where the last row of each seed lies in the block that was taken last."""
        self.damaged, self.frame = 0, 0.0

    def take(self, block: bytes) -> None:
        """More rows."""
        self.lines.clear()
        new: dict[int, tuple[list[float], list[float]]] = {}
        for start, end in places_of(block, self.field.kind):
            found = self.field.of(block, start, end)
            if found is None:
                self.damaged += 1
                continue
            seed, frame, value = found
            if seed not in new:
                if seed not in self.series and len(self.series) + len(new) >= MOST_SEEDS:
                    continue
                new[seed] = ([], [])
            new[seed][0].append(frame)
            new[seed][1].append(value)
            self.lines[seed] = (start, end)
        for seed, (frames, values) in new.items():
            self.series.setdefault(seed, Series()).extend(frames, values)
            self.last.setdefault(seed, deque(maxlen=ROLLOUT_EPISODES)).extend(values)
            self.frame = max(self.frame, frames[-1])

    def mean(self, episodes: int = 1) -> float | None:
        """The mean over seeds of the last values."""
        values = [value for last in self.last.values() for value in list(last)[-episodes:] if math.isfinite(value)]
        return sum(values) / len(values) if values else None


class Curves:
    """All readers of one run, and the other facts in its rows."""

    def __init__(self, tail: Tail):
        self.tail = tail
        self.forget(ALWAYS)

    def forget(self, metrics: tuple[str, ...]) -> None:
        """Nothing was read yet: at first, and when the file was cut or replaced."""
        self.readers = {metric: Reader(metric) for metric in metrics}
        self.names = set(ALWAYS)
        self._evaluations: dict[int, bytes] = {}
        self.counts = {"fault": 0, "rollback": 0}
        self.frame, self._peeked = 0.0, 0

    def look(self) -> None:
        """Looks whether the file was cut or replaced, and at its last rows as it grows."""
        if self.tail.look():
            self.forget(tuple(self.readers))
        if self.tail.size > 2 * self._peeked:
            self._peeked = self.tail.size
            self._peek()

    def _peek(self) -> None:
        """How far it is and which curves it has, from the newest row of each kind."""
        kinds = set()
        for line in self.tail.last_lines():
            kind = kind_of(line)
            if kind in kinds:
                continue
            kinds.add(kind)
            row = parse(line) or {}
            self.frame = max(self.frame, number(row.get("env_steps")) or 0.0)
            if len(self.names) < MOST_NAMES:
                self.names.update(fields(row))

    def want(self, metric: str) -> None:
        """Somebody wants to see this curve."""
        if metric in self.names and metric not in self.readers and len(self.readers) < MOST_READERS:
            self.readers[metric] = Reader(metric)

    @property
    def behind(self) -> int:
        """Bytes that the slowest reader has before it."""
        return max((self.tail.size - reader.cursor.seen for reader in self.readers.values()), default=0)

    @property
    def damaged(self) -> int:
        """Rows that could not be read."""
        return max(reader.damaged for reader in self.readers.values())

    @property
    def passed(self) -> int:
        """Lines that were too long to be rows."""
        return max(reader.cursor.passed for reader in self.readers.values())

    def read(self, metrics: list[str] | None = None) -> bool:
        """Takes one block for the readers (of these metrics) that have come least far; false where all are at the
        end. Readers at the same place share the block: once all have caught up, every new byte is read once."""
        asked = [each for name, each in self.readers.items() if metrics is None or name in metrics]
        behind = [each.cursor for each in asked if each.cursor.seen < self.tail.size]
        if not behind:
            return False
        cursor = copy.copy(min(behind, key=lambda each: each.offset))
        history = self.tail.size - cursor.offset > HISTORY
        everyone = asked if history else self.readers.values()
        group = [each for each in everyone if each.cursor.offset == cursor.offset]
        block = self.tail.next(cursor)
        for each in group:
            each.cursor = copy.copy(cursor)
        if block:
            self._take(block, group)
        return block is not None

    def _take(self, block: bytes, group: list[Reader]) -> None:
        for reader in group:
            reader.take(block)
            self.frame = max(self.frame, reader.frame)
        if self.readers[COUNTING] in group:
            for kind in ("fault", "rollback"):
                self.counts[kind] += block.count(needle(kind))
        evaluations = self.readers[ALWAYS[0]]
        if evaluations in group:
            for seed, (start, end) in evaluations.lines.items():
                self._evaluations[seed] = block[start : min(end, start + LONGEST_EVALUATION)]

    def actors(self) -> list[dict[str, Any]]:
        """The last returns of every actor, seed by seed."""
        found = []
        for seed, line in sorted(self._evaluations.items()):
            returns = (parse(line) or {}).get("actors")
            if isinstance(returns, list):
                found.append({"seed": seed, "returns": [number(each) for each in returns[:MOST_ACTORS]]})
        return found
