"""A disk that fails at any call that changes it: is the old kept, and does the training reach the same end?"""

from collections.abc import Callable, Iterator
import contextlib
import errno
import os
from pathlib import Path
import tempfile
from typing import Any
from unittest import mock

from benchmarks.attacks.small import small_config, train_until
from fcritic import disk
from fcritic.config import TrainConfig
from fcritic.errors import CannotWrite
from fcritic.logs import metrics as logs
from fcritic.runs import directory, replay_log
from fcritic.runs.directory import RunDirectory
from fcritic.runs.fingerprint import fingerprint
from fcritic.training.loop import FREE_FIELDS, Training
from fcritic.training.saving import Checkpoints

FAULTS = {"full": errno.ENOSPC, "read-only": errno.EROFS, "broken": errno.EIO}


class FailingDisk:
    """Counts the calls that change the disk and lets those from number `first` on fail, once or until healed."""

    def __init__(self, first: int, number: int, once: bool):
        self._first, self._number, self._once = first, number, once
        self.calls = 0

    def __call__(self, real: Callable, *arguments: Any, **options: Any) -> Any:
        """Stands in for a function of the operating system."""
        self.calls += 1
        if self.calls == self._first or (self.calls > self._first and not self._once):
            raise OSError(self._number, os.strerror(self._number))
        return real(*arguments, **options)

    def _open(self, real: Callable, path: Any, flags: int, *arguments: Any, **options: Any) -> Any:
        if flags & (os.O_WRONLY | os.O_RDWR) and "dir_fd" in options:  # one of ours
            return self(real, path, flags, *arguments, **options)
        return real(path, flags, *arguments, **options)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """While this is entered, the disk is the failing one."""
        stand_in = lambda real: lambda *arguments, **options: self(real, *arguments, **options)
        opener = lambda real: lambda *arguments, **options: self._open(real, *arguments, **options)
        with contextlib.ExitStack() as stack:
            for name in ("fsync", "rename", "replace", "mkdir"):
                stack.enter_context(mock.patch.object(os, name, stand_in(getattr(os, name))))
            for module in (disk, directory, logs, replay_log):
                stack.enter_context(mock.patch.object(module, "write_all", stand_in(disk.write_all)))
            stack.enter_context(mock.patch.object(os, "open", opener(os.open)))
            yield


def check(most: int, say: Callable[[str], None], kinds: tuple[str, ...] = tuple(FAULTS)) -> dict:
    """Every fault at every call (at most `most` of them, evenly spread), for ever and once."""
    config = small_config("td3")
    outcomes: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train_until(config, folder / "whole", config.iterations)
        expected = fingerprint(folder / "whole")
        calls = _attack(config, folder / "count", FailingDisk(10**9, 0, once=True))["calls"]
        for kind in kinds:
            for once in (False, True):
                label = f"{kind}, {'once' if once else 'until mended'}"
                counts = outcomes.setdefault(label, {"intact": 0, "same_end": 0, "of": 0})
                for first in sorted({round(1 + step * (calls - 1) / max(most - 1, 1)) for step in range(most)}):
                    path = folder / f"{kind}-{once}-{first}"
                    result = _attack(config, path, FailingDisk(first, FAULTS[kind], once))
                    counts["intact"] += result["intact"]
                    counts["same_end"] += fingerprint(path) == expected
                    counts["of"] += 1
                say(f"{label}: {counts}")
    of = sum(counts["of"] for counts in outcomes.values())
    passed = sum(min(counts["intact"], counts["same_end"]) for counts in outcomes.values())
    return {"passed": passed, "of": of, "calls_that_change_the_disk": calls, "faults": outcomes}


def _attack(config: TrainConfig, out: Path, failing: FailingDisk) -> dict:
    """Trains with a good disk, with a failing one over two saves, then with a good one to the end."""
    with RunDirectory.create_or_open(out, config.to_json(), "reliability", FREE_FIELDS) as run:
        training = Training.begin(config, run, quiet=True)
        training.report.warn = lambda line: None  # hundreds of them
        try:
            training.advance(40)
            training.save()
            saved = training.checkpoints.newest
            with failing.installed():
                for _ in range(2):
                    training.advance(10)
                    with contextlib.suppress(CannotWrite):
                        training.save()
            found, faults = Checkpoints(run, config, training.device.learning).load()
            intact = found is not None and not faults and found.path.name >= saved.name
            training.advance(config.iterations - training.progress.iteration)
            training.save()
        finally:
            training.close()
    return {"intact": intact, "calls": failing.calls}
