"""A run directory holds everything one training run needs and leaves behind.

``config.json`` (what was asked), ``command.txt`` (every invocation), ``versions.json`` (with what),
``metrics.jsonl``, ``journal.jsonl`` (when), ``checkpoints/`` and ``replay/``. Calling again with the same
configuration continues; another configuration is refused, so that one directory never mixes two experiments.
"""

from collections.abc import Callable
from datetime import UTC, datetime
import fcntl
import json
import os
from pathlib import Path
import re
from typing import IO, Any, Self
import weakref

from fcritic.disk import read_json, replace_file
from fcritic.errors import UsageError, cannot_write, did_you_mean
from fcritic.runs.layout import COMMANDS, CONFIG, JOURNAL, LOCK, METRICS, VERSIONS
from fcritic.runs.retention import latest, newest_first, sweep
from fcritic.runs.versions import versions

# A directory with only these is one whose very first moments were interrupted: it may be taken over.
_BEGUN = re.compile(rf"{LOCK}|{VERSIONS}|.*\.json\.tmp-[0-9]+")

# A forked worker inherits the lock and would hold it after this process was killed.
_held_locks: weakref.WeakSet[IO] = weakref.WeakSet()
os.register_at_fork(after_in_child=lambda: [file.close() for file in list(_held_locks)])


class RunDirectory:
    """A run on disk. Use ``create_or_open`` to train in it and ``open_existing`` to look at it."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
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
        """Begin a run, or continue one that has the same configuration, and lock it.

        ``command`` is for the record. ``free_fields`` are dotted names (``steps``, or ``logging`` for all
        below it) that may differ from the existing run; ``config.json`` then takes the new value. ``complete``
        adds to a stored configuration what did not exist when it was written.
        """
        run = cls(path)
        try:
            run._refuse_foreign_folder()
            run.path.mkdir(parents=True, exist_ok=True)
            run.lock()
            run._settle_config(json.loads(json.dumps(config)), free_fields, complete)
            run._record(command)
        except BaseException as error:
            run.close()
            if isinstance(error, OSError):
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
        if not (run.path / CONFIG).is_file():
            inside = ", ".join(sorted(_runs_in(run.path))[:3])
            advice = f"name one of the runs in it, such as {inside}" if inside else "name the directory of one"
            raise UsageError(f"{run.path} is not a run (it has no {CONFIG}); {advice}")
        _ = run.config  # so that a damaged one is noticed here
        return run

    @property
    def config(self) -> dict:
        """The resolved configuration, as nested JSON."""
        return _read_json(self.path / CONFIG)

    @property
    def metrics_path(self) -> Path:
        """Where the rows of metrics are."""
        return self.path / METRICS

    @property
    def journal_path(self) -> Path:
        """Where it is noted when the run was how far."""
        return self.path / JOURNAL

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints; it exists after the first one was written."""
        return self.path / "checkpoints"

    @property
    def replay(self) -> Path:
        """The folder of the replay, which checkpoints share."""
        return self.path / "replay"

    def checkpoint_path(self, step: int) -> Path:
        """Where the checkpoint of a step belongs."""
        return self.checkpoints / f"step-{step:012d}"

    def latest_checkpoint(self) -> Path | None:
        """The newest whole checkpoint, or none; damaged ones are named in a warning."""
        return latest(self.checkpoints)

    def newest_frame(self) -> int:
        """The frame of the newest checkpoint, whole or not; 0 where there is none."""
        return max((int(path.name.removeprefix("step-")) for path in newest_first(self.checkpoints)), default=0)

    def version_changes(self) -> list[str]:
        """What differs from when the run began, as ``jax 0.10.2 -> 0.11.0``; results may differ with it."""
        if not (self.path / VERSIONS).is_file():
            return []
        then, now = _read_json(self.path / VERSIONS), versions()
        changed = sorted(name for name in then | now if then.get(name) != now.get(name))
        return [f"{name} {then.get(name)} -> {now.get(name)}" for name in changed]

    def lock(self) -> None:
        """Be the only process that writes here, until ``close`` or the end of the process, even by kill.

        Also clears what a killed process left half written.
        """
        if self._lock is not None:
            return
        try:
            file = (self.path / LOCK).open("a")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.close()
                message = f"another process is training in {self.path}; wait for it or choose another --out"
                raise UsageError(message) from error
            self._lock = file
            _held_locks.add(file)
            sweep(self.checkpoints)
        except OSError as error:
            raise cannot_write("the run", self.path, error) from error

    def close(self) -> None:
        """Let other processes write here again; safe to call twice."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _refuse_foreign_folder(self) -> None:
        if not self.path.is_dir() or (self.path / CONFIG).exists():
            return
        names = sorted(entry.name for entry in self.path.iterdir() if not _BEGUN.fullmatch(entry.name))
        if names and not (self.path / CONFIG).exists():  # again: another process may just have begun it
            raise UsageError(f"{self.path} is no run but holds {names[0]}; choose another --out or empty it")

    def _settle_config(self, config: dict, free_fields: frozenset[str], complete: Callable[[dict], dict]) -> None:
        if not (self.path / CONFIG).exists():
            _write_json(self.path / VERSIONS, versions())
            _write_json(self.path / CONFIG, config)  # last: it is what makes the directory a run
            return
        changes = _differences(json.loads(json.dumps(complete(self.config))), config)
        free = tuple(f"{field}." for field in free_fields)
        refused = [text for name, text in changes.items() if not f"{name}.".startswith(free)]
        if refused:
            more = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
            raise UsageError(
                f"{self.path} holds a run with another configuration: {', '.join(refused[:3])}{more}; "
                "choose another --out or change the flags back"
            )
        if changes:
            _write_json(self.path / CONFIG, config)

    def _record(self, command: str) -> None:
        changes = self.version_changes()
        note = f"  # since the start: {', '.join(changes)}" if changes else ""
        with (self.path / COMMANDS).open("a", encoding="utf-8") as file:
            time = datetime.now(UTC).isoformat(timespec="seconds")
            file.write(f"{time} {' '.join(command.splitlines())}{note}\n")


def _runs_in(folder: Path) -> list[str]:
    return [entry.parent.name for entry in folder.glob(f"*/{CONFIG}")]  # of no folder: nothing


def _differences(then: dict, now: dict) -> dict[str, str]:
    """Dotted names of the fields that differ, each with a text that gives both values."""
    old, new = _dotted(then), _dotted(now)
    changed = {}
    for name in old | new:
        was, is_now = (json.dumps(fields[name]) if name in fields else "absent" for fields in (old, new))
        if was != is_now and old.get(name) != new.get(name):  # 1 is 1.0, NaN is NaN, absent is null
            changed[name] = f"{name} was {was:.60}, now {is_now:.60}"
    return changed


def _dotted(config: dict, prefix: str = "") -> dict[str, Any]:
    fields = {}
    for name, value in config.items():
        if isinstance(value, dict) and value:
            fields |= _dotted(value, f"{prefix}{name}.")
        else:
            fields[f"{prefix}{name}"] = value
    return fields


def _read_json(path: Path) -> dict:
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON; restore it or choose another --out") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} is not the {path.name} of a run; restore it or choose another --out")
    return content


def _write_json(path: Path, content: dict) -> None:
    replace_file(path, (json.dumps(content, indent=2) + "\n").encode())
