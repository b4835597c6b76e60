"""All runs below a folder, kept up to date: every refresh reads what was appended, for a bounded time."""

from collections.abc import Iterable
import math
from pathlib import Path
import secrets
import threading
import time
from typing import Any

from fcritic.view.watch.run import WatchedRun
from fcritic.view.watch.run import Locks, runs
from fcritic.view.watch.reading import MOST_POINTS

FIRST_BUDGET, BUDGET = 1.0, 0.4
"""Seconds of reading in a first and in a later answer. A long history comes in parts: the page asks again."""

SCAN_EVERY = 2.0
ALL_POINTS = 100_000
"""Points of all curves in one answer: the more curves, the fewer points each."""


class Watcher:
    """The runs below a folder. Revisions count changes, so that an answer holds only what is new to the asker."""

    def __init__(self, root: Path):
        self.root = root
        self.session = secrets.token_hex(4)
        self.runs: dict[str, WatchedRun] = {}
        self._revision, self._scanned = 0, -math.inf
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Finds runs that appeared, went or changed, without reading their metrics."""
        if time.monotonic() - self._scanned >= SCAN_EVERY:
            self._scan()
        self._note(run for run in list(self.runs.values()) if run.look())

    def _note(self, changed: Iterable[WatchedRun]) -> None:
        self._revision += 1
        for run in changed:
            run.revision = self._revision

    def _scan(self) -> None:
        found = {run.id: run for run in (WatchedRun(place, name) for name, place in runs(self.root).items())}
        self.runs = {name: self.runs.get(name, run) for name, run in found.items()}
        locks = Locks()
        for run in self.runs.values():
            running = locks.holds(run.place)
            if running != run.running:
                run.running, run.revision = running, self._revision + 1
        self._revision += 1
        self._scanned = time.monotonic()

    def read(self, runs: Iterable[WatchedRun], metrics: list[str] | None, deadline: float) -> bool:
        """Reads new rows of these metrics, or of all, a block of every run in turn; false if time was up before."""
        todo, changed, in_time = list(runs), set(), True
        while todo and in_time:
            more = []
            for run in todo:
                if not (in_time := time.monotonic() < deadline):
                    break
                if run.curves.read(metrics):
                    changed.add(run)
                    more.append(run)
            todo = more
        self._note(changed)
        return in_time

    def snapshot(self) -> dict[str, Any]:
        """Everything but the curves, all rows read: for programs."""
        with self._lock:
            self.refresh()
            self.read(self.runs.values(), None, math.inf)
            return {"folder": str(self.root), "runs": [_plain(run.facts()) for run in self.runs.values()]}

    def answer(self, since: str, names: list[str], picked: list[str]) -> dict[str, Any]:
        """What changed since an earlier answer: facts, and curves of these names, of the picked runs or of all.

        `since` is the `revision` of that answer, or anything else for all of it. Reading takes a bounded time; what
        was asked for comes first.
        """
        with self._lock:
            session, _, number = since.partition("-")
            known = int(number) if session == self.session and number.isdecimal() and len(number) < 16 else -1
            deadline = time.monotonic() + (BUDGET if known >= 0 else FIRST_BUDGET)
            self.refresh()
            wanted = [self.runs[name] for name in picked if name in self.runs] or list(self.runs.values())
            for run, name in ((run, name) for run in wanted for name in names):
                run.curves.want(name)
            if self.read(wanted, names, deadline) and known >= 0:
                self.read(self.runs.values(), None, deadline)
            return self._told(known, names, wanted)

    def _told(self, known: int, names: list[str], wanted: list[WatchedRun]) -> dict[str, Any]:
        new = lambda run: run.running or run.revision > known  # of those that run, the last row's age counts
        asked = lambda run: [reader for name, reader in run.curves.readers.items() if name in names]
        count = sum(len(reader.series) for run in wanted for reader in asked(run))
        most = max(32, min(MOST_POINTS, ALL_POINTS // max(count, 1)))
        every = self.runs.values()
        return {
            "revision": f"{self.session}-{self._revision}",
            "ids": list(self.runs),
            "metrics": sorted(set().union(*(run.curves.names for run in every)))[:500],
            "runs": [_plain(run.facts()) for run in every if new(run)],
            "curves": {run.id: _curves(run, names, most) for run in wanted if run.revision > known},
            "behind": sum(run.curves.behind for run in every),
            "size": sum(run.curves.tail.size for run in every),
            "time": time.time(),
        }


def _curves(run: WatchedRun, names: list[str], most: int) -> dict[str, list[Any]]:
    """For each name a list of [seed, frames, values]."""
    found: dict[str, list[Any]] = {}
    for name in names:
        reader = run.curves.readers.get(name)
        for seed, series in sorted(reader.series.items()) if reader else ():
            frames, values = series.thinned(most)
            found.setdefault(name, []).append([seed, [round(frame) for frame in frames], _plain(values)])
    return found


def _plain(value: Any) -> Any:
    """For JSON: five digits are enough for a picture, and what is no number is null."""
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) and abs(value) < 1e5 else _large(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def _large(value: float) -> float | None:
    return (round(value, 1) if abs(value) < 1e12 else float(f"{value:.5g}")) if math.isfinite(value) else None
