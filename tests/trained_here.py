"""Trainings of studies and searches in the process of the test, where a process of their own is not the point."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fcritic.cli.dispatch import run
from fcritic.study import execute


@pytest.fixture
def trained_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains by the same command as the process that `execute.resume` starts."""

    def resume(path: Path, budget: execute.Budget, look: Callable[[], None] | None = None) -> str:
        return "" if run(["resume", str(path), "--quiet", "--yes"]) == 0 else "failed"

    monkeypatch.setattr(execute, "resume", resume)
