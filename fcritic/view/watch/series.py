"""Curves of bounded length: when one has too many points, neighbours are replaced by their mean."""

from array import array
from collections.abc import Iterator

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
