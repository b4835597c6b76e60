"""The watched runs: their list, state and warnings, read from their files alone."""

from collections import deque
from collections.abc import Iterable, Iterator
import hashlib
from itertools import islice
import math
import os
from pathlib import Path
import time
from typing import Any

from fcritic.disk import Place
from fcritic.runs import CONFIG, JOURNAL, LOCK, METRICS, VERSIONS
from fcritic.view.watch.curves import ROLLOUT_EPISODES, Curves
from fcritic.view.watch.reading import Cursor, Tail, number, parse

# The journal: hours of training, speed, warnings, and how the last process ended

MOST_MOMENTS = 256
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
        if len(self.frames) >= MOST_MOMENTS:
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


# One run

SILENT = 600.0
"""Seconds without a row after which a run that still holds its lock is called silent."""


class WatchedRun:
    """A run directory, and what was read of it so far."""

    def __init__(self, place: Place, name: str):
        self.place, self.name = place, name
        self.id = hashlib.sha256(name.encode()).hexdigest()[:12]
        self.running, self.revision = False, 0
        self.variant = ""  # what makes it another than runs of its recipe and task, see `variants`
        self.curves = Curves(Tail(place / METRICS))
        self.history, self._place = History(), Cursor()
        self._journal = Tail(place / JOURNAL)
        self._config: dict[str, Any] = {}
        self.options: dict[str, str] = {}
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
                self.options = dict(islice(_flat(self._config), MOST_OPTIONS))
        except (OSError, ValueError):
            self._config = {}

    @property
    def state(self) -> str:
        """Returns the state in one word; without a journal a killed run counts as stopped."""
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
            "variant": self.variant,
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

    @property
    def kind(self) -> tuple[str, str]:
        """Recipe and task; runs of a kind are averaged where they have the same options."""
        return self._text("recipe"), self._text("task")

    def _text(self, name: str) -> str:
        value = self._config.get(name)
        return value[:100] if isinstance(value, str) else "unknown"

    def _number(self, name: str) -> int:
        return int(number(self._config.get(name)) or 0)


# What makes runs of the same recipe and task different

WHAT = {"recipe", "task", "version", "steps", "seed", "seeds"}
HOW_OFTEN = {"log", "log_every", "eval_every", "eval_episodes", "save_every", "keep", "knowledge"}
HOW_SAFE = {"env_processes", "env_timeout", "on_fault", "value_limit", "deterministic"}
WHEREVER = WHAT | HOW_OFTEN | HOW_SAFE
"""Fields of a configuration that leave a run the same kind: how long, how often looked at, with what luck."""

MOST_OPTIONS, MOST_DIFFERENT, DEEPEST = 300, 3, 4
"""Options of a run that are compared, those of them that are named, and groups within groups."""


def _flat(config: dict[str, Any], groups: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Options and their values as text, those of a group after its name."""
    for name, value in config.items():
        if not groups and name in WHEREVER:
            continue
        inside = groups if name == "agent" else (*groups, name)
        if isinstance(value, dict):
            yield from _flat(value, inside) if len(inside) < DEEPEST else ()
        else:
            yield ".".join(inside)[:80], str(value)[:4000]


def variants(every: Iterable[WatchedRun]) -> dict[str, str]:
    """Returns, by run, the options that all runs of its recipe and task have and in which these differ."""
    kinds: dict[tuple[str, str], list[WatchedRun]] = {}
    for run in every:
        kinds.setdefault(run.kind, []).append(run)
    found: dict[str, str] = {}
    for same in kinds.values():
        names = set.intersection(*(set(run.options) for run in same))
        differ = sorted(name for name in names if len({run.options[name] for run in same}) > 1)
        for run in same:
            told = [f"{name} {_short(run.options[name])}" for name in differ[:MOST_DIFFERENT]]
            if rest := [run.options[name] for name in differ[MOST_DIFFERENT:]]:
                told.append(f"{len(rest)} more ({_digest(rest)})")
            found[run.id] = ", ".join(told)
    return found


def _short(value: str) -> str:
    return value if len(value) <= 40 else f"{value[:30]}... ({_digest(value)})"


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:4]


# The runs below a folder, and which of them are training

MOST_RUNS = 2000
MOST_FOLDERS = 20_000
DEPTH = 8
"""Folders below folders in which runs are looked for."""


def runs(root: Path) -> dict[str, Place]:
    """Name and path of every run below a folder, or of the folder itself if it is one; at most `MOST_RUNS`.

    A name is the path from the root. A run's own folders are not searched.
    """
    found: dict[str, Place] = {}
    todo, looked = [Place(root)], 0
    while todo and looked < MOST_FOLDERS and len(found) < MOST_RUNS:
        folder = todo.pop()
        looked += 1
        names, folders = _content(folder)
        if CONFIG in names and names & {METRICS, LOCK, VERSIONS}:
            found[_name(folder)] = folder
        elif len(folder.parts) < DEPTH:
            todo += [folder / name for name in reversed(folders)]
    return found


def _content(folder: Place) -> tuple[set[str], list[str]]:
    """The plain files and the folders in a folder; links are neither."""
    try:
        entries = folder.entries()
    except OSError:  # gone, or not ours to read
        return set(), []
    files = {name for name, entry in entries.items() if entry.is_file(follow_symlinks=False)}
    folders = [name for name, entry in entries.items() if entry.is_dir(follow_symlinks=False)]
    return files, [name for name in folders if not name.startswith(".")]


def _name(folder: Place) -> str:
    """Text whatever the bytes are: a name need not be UTF-8."""
    shown = os.path.join(*folder.parts) if folder.parts else folder.root.resolve().name
    return os.fsencode(shown).decode("utf-8", "replace")


class Locks:
    """The locks that are held at one moment. The kernel lists them, so that looking never takes one away."""

    def __init__(self) -> None:
        try:
            self._held: set[int] | None = set(_inodes(Path("/proc/locks").read_text(encoding="ascii")))
        except OSError:  # not Linux
            self._held = None

    def holds(self, folder: Place) -> bool:
        """Whether a process trains in this run."""
        lock = folder / LOCK
        if self._held is None:
            return lock.is_locked()
        try:
            status = lock.status()
        except OSError:
            return False
        return status is not None and status.st_ino in self._held


def _inodes(listing: str) -> Iterator[int]:
    """The inodes of `1: FLOCK  ADVISORY  WRITE 26555 fe:00:3088643 0 EOF`.

    Devices are left out: some file systems report others there than to a program.
    """
    for line in listing.splitlines():
        words = line.split()
        if "FLOCK" in words and "WRITE" in words:
            yield int(words[words.index("WRITE") + 2].rpartition(":")[2])
