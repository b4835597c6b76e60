"""One run that is watched: its curves, where it stands, whether it is well. Read from its files alone."""

import hashlib
import time
from typing import Any

from fcritic.disk import Place
from fcritic.runs import CONFIG, JOURNAL, METRICS
from fcritic.view.watch import rows
from fcritic.view.watch.curves import ROLLOUT_EPISODES, Curves
from fcritic.view.watch.run import History
from fcritic.view.watch.reading import Cursor, Tail

SILENT = 600.0
"""Seconds without a row after which a run that still holds its lock is called silent."""


class WatchedRun:
    """A run directory, and what was read of it so far."""

    def __init__(self, place: Place, name: str):
        self.place, self.name = place, name
        self.id = hashlib.sha256(name.encode()).hexdigest()[:12]
        self.running, self.revision = False, 0
        self.curves = Curves(Tail(place / METRICS))
        self.history, self._place = History(), Cursor()
        self._journal = Tail(place / JOURNAL)
        self._config: dict[str, Any] = {}
        self._config_changed = -1.0

    def look(self) -> bool:
        """Looks for changes, reading all but the metrics; true if there is something new."""
        before = self._signs()
        self.curves.look()
        if self._journal.look():
            self.history, self._place = History(), Cursor()
        while (block := self._journal.next(self._place)) is not None:
            self.history.take(block)
        self._look_at_config()
        return before != self._signs()

    def _signs(self) -> tuple[float, ...]:
        metrics, journal = self.curves.tail, self._journal
        return metrics.size, metrics.changed, journal.size, self._config_changed

    def _look_at_config(self) -> None:
        try:
            status = (self.place / CONFIG).status()
            changed = status.st_mtime if status else -1.0
            if changed != self._config_changed:
                self._config_changed = changed
                content = (self.place / CONFIG).read_json()
                self._config = content if isinstance(content, dict) else {}
        except (OSError, ValueError):
            self._config = {}

    @property
    def state(self) -> str:
        """One word for where it stands; a run without a journal cannot tell a kill from a stop."""
        if self.running:
            return "running"
        if self.history.failure:
            return "failed"
        if 0 < self._number("steps") <= self.curves.frame:
            return "finished"
        if not self.curves.tail.size:
            return "waiting"
        return "killed" if self.history.begun and not self.history.ended else "stopped"

    def facts(self) -> dict[str, Any]:
        """All that the page shows of it but its curves."""
        steps, seeds, frame = self._number("steps"), max(self._number("seeds"), 1), self.curves.frame
        speed = self.history.speed(self.running)
        readers = self.curves.readers
        return {
            "id": self.id,
            "name": self.name,
            "recipe": self._text("recipe"),
            "task": self._text("task"),
            "seeds": seeds,
            "state": self.state,
            "frame": frame,
            "steps": steps,
            "speed": None if speed is None else speed * seeds,
            "elapsed": self.history.elapsed,
            "left": (steps - frame) / speed if self.running and speed and steps > frame else None,
            "seen": max(self.curves.tail.changed, self._journal.changed) or None,
            "mean_actor": readers["evaluation/mean_actor"].mean(),
            "best_actor": readers["evaluation/best_actor"].mean(),
            "rollout": readers["episode/return"].mean(ROLLOUT_EPISODES),
            "actors": self.curves.actors(),
            "notes": self._notes(),
            "warnings": list(self.history.warnings),
            "clock": [self.history.frames, [round(hours, 5) for hours in self.history.hours]],
        }

    def _notes(self) -> list[str]:
        """What is not as it should be, in words."""
        curves = self.curves
        counts = curves.counts | {"damaged": curves.damaged, "passed": curves.passed, "warned": self.history.warned}
        counted = {
            "fault": "skipped faults",
            "rollback": "rollbacks",
            "damaged": "unreadable rows",
            "passed": "lines that are too long",
            "warned": "warnings",
        }
        notes = [self.history.failure] if self.history.failure else []
        notes += [f"{words}: {counts[name]}" for name, words in counted.items() if counts[name]]
        if curves.tail.too_large:
            notes.append("its metrics are larger than those of any run and are not read")
        changed = curves.tail.changed
        if self.running and changed and time.time() - changed > SILENT:
            notes.append("silent: it holds its lock but writes no rows")
        return notes

    def _text(self, name: str) -> str:
        value = self._config.get(name)
        return value[:100] if isinstance(value, str) else "unknown"

    def _number(self, name: str) -> int:
        return int(rows.number(self._config.get(name)) or 0)
