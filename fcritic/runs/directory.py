"""A run directory holds everything one training run needs and leaves behind.

``config.json`` (every option), ``command.txt`` (every invocation), ``versions.json`` (software and device),
``metrics.jsonl``, ``journal.jsonl`` (times), ``checkpoints/`` and ``replay/``. Calling again with the same
configuration continues; another configuration is refused, so that one directory never mixes two experiments.
"""

from collections.abc import Callable
import contextlib
from datetime import UTC, datetime
import fcntl
import json
import os
from pathlib import Path
import re
from typing import IO, Any, Self
import weakref

from fcritic.disk import JSON_LIMIT, NotPlain, Place, write_all
from fcritic.errors import CheckpointError, UsageError, cannot_write, did_you_mean, one_line
from fcritic.runs import (
    CHANGES,
    CHECKPOINTS,
    COMMANDS,
    CONFIG,
    JOURNAL,
    LOCK,
    METRICS,
    REPLAY,
    TENSORBOARD,
    VERSIONS,
)
from fcritic.runs.checkpoint import latest, newest_first, sweep, verify
from fcritic.runs.versions import versions

# A directory with only these was interrupted while it was being made, and may be reused.
_BEGUN = re.compile(rf"{LOCK}|{VERSIONS}|.*\.json\.tmp-[0-9]+")

MOST_CHANGES, LONGEST_VERSION, LONGEST_COMMAND = 20, 100, 10_000
"""Versions that are listed, and characters of one of them and of a command: text from files is shortened."""

_ABSENT = "absent"
_PUT_BACK = "put a file or folder of the run's own in its place"

# A forked worker inherits the lock and would hold it after this process was killed.
_held_locks: weakref.WeakSet[IO] = weakref.WeakSet()
os.register_at_fork(after_in_child=lambda: [file.close() for file in list(_held_locks)])


class RunDirectory:
    """A run on disk. Use ``create_or_open`` to train in it and ``open_existing`` to look at it."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.place = Place(self.path)
        self.metrics = self.place / METRICS
        """The rows of metrics."""
        self.journal = self.place / JOURNAL
        """The times of its progress."""
        self.tensorboard = self.place / TENSORBOARD
        """The folder of TensorBoard's event files."""
        self.checkpoints = self.place / CHECKPOINTS
        """The folder of checkpoints; it exists after the first one was written."""
        self.replay = self.place / REPLAY
        """The folder of the replay, which checkpoints share."""
        self._lock: IO | None = None

    @classmethod
    def create_or_open(
        cls,
        path: str | Path,
        config: dict,
        command: str,
        free_fields: frozenset[str] = frozenset(),
        complete: Callable[[dict], dict] = lambda stored: stored,
    ) -> Self:
        """Begins a run, or continues one that has the same configuration, and locks it.

        ``command`` is for the record. ``free_fields`` are dotted names (``steps``, or ``logging`` for all
        below it) that may differ from the existing run; ``config.json`` then takes the new value. ``complete``
        adds to a stored configuration what did not exist when it was written.
        """
        run = cls(path)
        try:
            run._refuse_foreign_folder()
            run.place.make()
            run._require_plain()
            run.lock()
            run._settle_config(json.loads(json.dumps(config)), free_fields, complete)
            run._record(command)
        except BaseException as error:
            run.close()
            if isinstance(error, OSError) and not isinstance(error, NotPlain):
                raise cannot_write("the run", run.path, error) from error
            raise
        return run

    @classmethod
    def open_existing(cls, path: str | Path) -> Self:
        """A run to read: nothing is written or locked. Call ``lock`` before changing anything."""
        run = cls(path)
        if not run.path.exists():
            near = did_you_mean(run.path.name, _runs_in(run.path.parent))
            raise UsageError(f"{run.path} does not exist{near or '; name the directory of a run'}")
        if (run.place / CONFIG).status() is None:
            inside = ", ".join(sorted(_runs_in(run.path))[:3])
            advice = f"name one of the runs in it, such as {inside}" if inside else "name the directory of one"
            raise UsageError(f"{run.path} is not a run (it has no {CONFIG}); {advice}")
        run._require_plain()
        _ = run.config  # raises here if it is damaged
        return run

    @property
    def config(self) -> dict:
        """The resolved configuration, as nested JSON."""
        return _read_json(self.place / CONFIG)

    def checkpoint_path(self, step: int) -> Place:
        """Where the checkpoint of a step belongs."""
        return self.checkpoints / f"step-{step:012d}"

    def latest_checkpoint(self) -> Place | None:
        """The newest whole checkpoint, or none where there is none at all; damaged ones are named in a warning."""
        return latest(self.checkpoints)

    def require_checkpoint(self) -> Place:
        """The newest whole checkpoint; its absence is an error that says what to do."""
        newest = self.latest_checkpoint()
        if newest is None:
            raise self.no_checkpoint_yet()
        return newest

    def no_checkpoint_yet(self) -> UsageError:
        """The error for a run without a checkpoint: wait while it trains, or continue it."""
        every, steps = self.config.get("save_every"), self.config.get("steps")
        if (self.place / LOCK).is_locked() and type(every) is type(steps) is int:
            first = min(every, steps)
            return UsageError(
                f"{self.path} has no checkpoint yet: it is still training and saves first at frame {first:,} "
                "(--save-every)"
            )
        return UsageError(f"{self.path} has no checkpoint yet; continue it with fcritic resume")

    def is_exported(self) -> bool:
        """Whether it is an exported agent (`fcritic.api.export`), which acts but does not train."""
        for path in newest_first(self.checkpoints)[:1]:
            with contextlib.suppress(CheckpointError):
                return verify(path, [])["facts"].get("exported") is True
        return False

    def newest_frame(self) -> int:
        """The frame of the newest checkpoint, whole or not; 0 where there is none."""
        return max((int(path.name.removeprefix("step-")) for path in newest_first(self.checkpoints)), default=0)

    def versions(self) -> dict:
        """The software and device with which the run began; empty where not recorded."""
        return _read_json(self.place / VERSIONS) if (self.place / VERSIONS).status() is not None else {}

    def commands(self) -> list[str]:
        """The lines of the record of commands."""
        if (self.place / COMMANDS).status() is None:
            return []
        return (self.place / COMMANDS).read(JSON_LIMIT).decode("utf-8", "replace").splitlines()

    def version_changes(self) -> list[str]:
        """The versions that changed since the start, as ``jax 0.10.2 -> 0.11.0``; results may differ with it."""
        then, now = self.versions(), versions()
        if not then:
            return []
        changed = sorted(name for name in then | now if then.get(name) != now.get(name))
        told = [
            f"{_in_words(name)} {_in_words(then.get(name))} -> {now.get(name)}" for name in changed[:MOST_CHANGES]
        ]
        return [*told, f"and {len(changed) - MOST_CHANGES} more"] if len(changed) > MOST_CHANGES else told

    def lock(self) -> None:
        """Makes this process the only writer, until ``close`` or its end, even by a kill.

        Also clears what a killed process left half written.
        """
        if self._lock is not None:
            return
        try:
            file = (self.place / LOCK).appending()
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.close()
                message = f"another process is training in {self.path}; wait for it or choose another --out"
                raise UsageError(message) from error
            self._lock = file
            _held_locks.add(file)
            sweep(self.checkpoints)
        except NotPlain:
            raise
        except OSError as error:
            raise cannot_write("the run", self.path, error) from error

    def close(self) -> None:
        """Lets other processes write here again; safe to call twice."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _require_plain(self) -> None:
        """Refuses a run in which a link, a pipe or a device has the name of a file or folder of ours."""
        entries = self.place.entries()
        for name in (CONFIG, COMMANDS, VERSIONS, LOCK, METRICS, JOURNAL, CHANGES):
            if name in entries and not entries[name].is_file(follow_symlinks=False):
                raise NotPlain(self.path / name, f"is a link or not a plain file; {_PUT_BACK}")
        for name in (CHECKPOINTS, REPLAY, TENSORBOARD):
            if name in entries and not entries[name].is_dir(follow_symlinks=False):
                raise NotPlain(self.path / name, f"is a link or not a folder; {_PUT_BACK}")

    def _refuse_foreign_folder(self) -> None:
        if not self.path.is_dir() or (self.place / CONFIG).status() is not None:
            return
        names = [name for name in self.place.entries() if not _BEGUN.fullmatch(name)]
        if names and (self.place / CONFIG).status() is None:  # again: another process may just have begun it
            raise UsageError(
                f"{self.path} is not a run directory (it contains {names[0]}); choose another --out or empty it"
            )

    def _settle_config(self, config: dict, free_fields: frozenset[str], complete: Callable[[dict], dict]) -> None:
        if (self.place / CONFIG).status() is None:
            _write_json(self.place / VERSIONS, versions())
            _write_json(self.place / CONFIG, config)  # last: a directory with it is a run
            return
        changes = _differences(json.loads(json.dumps(complete(self.config))), config)
        free = tuple(f"{field}." for field in free_fields)
        refused = [
            f"{name} was {was:.60}, now {now:.60}"
            for name, (was, now) in changes.items()
            if not f"{name}.".startswith(free)
        ]
        if refused:
            more = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
            raise UsageError(
                f"{self.path} holds a run with another configuration: {', '.join(refused[:3])}{more}; "
                "choose another --out or change the flags back"
            )
        if changes:
            _write_json(self.place / CONFIG, config)
            self._record_changes(changes)

    def _record_changes(self, changes: dict[str, tuple[str, str]]) -> None:
        """Notes options that are others from the newest checkpoint on."""
        when = {"time": _now(), "env_steps": self.newest_frame()}
        value = lambda text: None if text == _ABSENT else json.loads(text)
        rows = [
            when | {"option": name, "was": value(was), "now": value(now)} for name, (was, now) in changes.items()
        ]
        with (self.place / CHANGES).appending() as file:
            write_all(file, "".join(f"{json.dumps(row)}\n" for row in rows).encode())

    def _record(self, command: str) -> None:
        changes = self.version_changes()
        note = f"  # since the start: {', '.join(changes)}" if changes else ""
        line = f"{_now()} {one_line(command, LONGEST_COMMAND)}{note}\n"
        with (self.place / COMMANDS).appending() as file:
            write_all(file, line.encode("utf-8", "replace"))


def _runs_in(folder: Path) -> list[str]:
    """Names of runs in a folder, none where it is not one."""
    found = []
    with contextlib.suppress(OSError):
        for name in Place(folder).entries():
            with contextlib.suppress(OSError):
                if (Place(folder / name) / CONFIG).is_file():
                    found.append(name)
    return found


def _in_words(value: Any) -> str:
    """What a record of versions holds, in a few words of one line."""
    return one_line(value, LONGEST_VERSION) if isinstance(value, str) else "None" if value is None else "?"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _differences(then: dict, now: dict) -> dict[str, tuple[str, str]]:
    """Dotted names of the fields that differ, each with both values as JSON."""
    old, new = _dotted(then), _dotted(now)
    changed = {}
    for name in old | new:
        was, is_now = (json.dumps(fields[name]) if name in fields else _ABSENT for fields in (old, new))
        if was != is_now and old.get(name) != new.get(name):  # 1 is 1.0, NaN is NaN, absent is null
            changed[name] = was, is_now
    return changed


def _dotted(config: dict, prefix: str = "") -> dict[str, Any]:
    fields = {}
    for name, value in config.items():
        if isinstance(value, dict) and value:
            fields |= _dotted(value, f"{prefix}{name}.")
        else:
            fields[f"{prefix}{name}"] = value
    return fields


def _read_json(place: Place) -> dict:
    try:
        content = place.read_json()
    except NotPlain as error:
        raise UsageError(f"{error}; {_PUT_BACK}") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{place} cannot be read as JSON; restore it or choose another --out") from error
    if not isinstance(content, dict):
        raise UsageError(f"{place} is not the {place.name} of a run; restore it or choose another --out")
    return content


def _write_json(place: Place, content: dict) -> None:
    place.replace((json.dumps(content, indent=2) + "\n").encode())
