"""What a run's journal tells: hours of training, speed, warnings, and how its last process ended."""

from collections import deque
import math
from typing import Any

from fcritic.view.watch.reading import number, parse

MOST_POINTS = 256
"""Points of the clock (frame, hours) that are kept."""

MOST_WARNINGS = 20
"""Warnings that are kept, the last ones; all are counted."""

SAMPLED = 64
"""Lines of plain progress that are taken of a block."""

RECENT = 12
"""Lines over which the present speed is measured: about a minute."""


class History:
    """A journal, folded up line by line."""

    def __init__(self) -> None:
        self.frames: list[float] = []
        self.hours: list[float] = []
        self.warnings: deque[dict[str, Any]] = deque(maxlen=MOST_WARNINGS)
        self.warned = 0
        self.begun = self.ended = False
        self.failure: str | None = None
        self._elapsed, self._last, self._stride, self._skipped = 0.0, math.nan, 1, 0
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT)

    def take(self, block: bytes) -> None:
        """More lines. Of many, some: all events, what came just before each, and a share of plain progress."""
        lines = block.split(b"\n")[:-1]
        events = [place for place, line in enumerate(lines) if b'"event"' in line]
        chosen = {
            *events,
            *(place - 1 for place in events if place),
            *range(0, len(lines), len(lines) // SAMPLED + 1),
        }
        for place in sorted(chosen.union(range(max(len(lines) - RECENT, 0), len(lines)))):
            self.add(lines[place])

    def add(self, line: bytes) -> None:
        """One more line; what has not the right form is left out."""
        entry = parse(line) or {}
        time, frame = number(entry.get("time")), number(entry.get("env_steps"))
        if time is None or frame is None:
            return
        event, what = entry.get("event"), str(entry.get("what", ""))[:500]
        if event == "begin":
            self._begin(time, frame)
        elif event == "warning":
            self.warned += 1
            self.warnings.append({"time": time, "frame": frame, "what": what})
        elif event == "end":
            self.ended, self.failure = True, what or None
        self._elapsed += max(time - self._last, 0.0)
        self._last = time
        self._recent.append((time, frame))
        self._point(frame)

    def _begin(self, time: float, frame: float) -> None:
        """The time before does not count as training, nor do frames that will be taken again."""
        self.begun, self.ended, self.failure, self._last = True, False, None, time
        self._recent.clear()
        while self.frames and self.frames[-1] > frame:
            self.frames.pop()
            self.hours.pop()

    def _point(self, frame: float) -> None:
        self._skipped += 1
        if self._skipped < self._stride and not self.ended:
            return
        self._skipped = 0
        self.frames.append(frame)
        self.hours.append(self._elapsed / 3600)
        if len(self.frames) >= MOST_POINTS:
            self.frames, self.hours, self._stride = self.frames[::2], self.hours[::2], 2 * self._stride

    @property
    def elapsed(self) -> float | None:
        """Seconds of training, pauses between processes left out; none for a run without a journal."""
        return self._elapsed if self.begun else None

    def speed(self, running: bool) -> float | None:
        """Frames of one seed per second: of the last minute while it runs, else of all its training."""
        if running and len(self._recent) > 1:
            (first, start), (last, end) = self._recent[0], self._recent[-1]
            return (end - start) / (last - first) if last > first else None
        return self.frames[-1] / self._elapsed if self.frames and self._elapsed > 0 else None
