"""Whose code may run: a run that was made elsewhere may name code, but only its user can trust it.

A file of code, or a function of a module, becomes trusted when its user names it as a task: in `fcritic train`,
`fcritic check` or `fcritic.train_agent`. The list is kept in the user's own configuration, where no run can write.
"""

from collections.abc import Iterator
import importlib.util
import os
from pathlib import Path
import shlex

from fcritic.envs.own import file_of, may_be_factory
from fcritic.errors import UsageError

MOST_BYTES = 2**20
"""Of the list."""


def trust(task: str) -> None:
    """The user has named this task: if it is code, it may run from now on, also by way of a run."""
    file = file_of(task)
    exists = file.is_file() if file is not None else any(_places(task))
    if not exists or not may_be_factory(task) or _is_trusted(task):
        return
    try:
        _ledger().parent.mkdir(parents=True, exist_ok=True)
        with _ledger().open("a", encoding="utf-8") as ledger:
            ledger.write(f"{_entry(task)}\n")
    except OSError:  # a home that cannot be written: the task has to be named each time
        return


def require_trusted(task: str, folder: Path) -> None:
    """Refuses a task, named by the run in `folder`, whose code is the run's or was never named by its user."""
    file = file_of(task)
    places = [file] if file is not None else list(_places(task))
    if any(place.resolve().is_relative_to(folder.resolve()) for place in places):
        where = file or task.partition(":")[0]
        raise UsageError(f"{folder} brings the code of its own task, {where}; move it out if you trust it")
    if may_be_factory(task) and not _is_trusted(task):
        raise UsageError(f"{folder} wants to run {task}; if you trust that code: fcritic check {shlex.quote(task)}")


def _is_trusted(task: str) -> bool:
    try:
        with _ledger().open(encoding="utf-8") as ledger:
            return _entry(task) in ledger.read(MOST_BYTES).splitlines()
    except OSError:
        return False


def _entry(task: str) -> str:
    """A file with all that is in it, or one function of a module."""
    file = file_of(task)
    return task if file is None else str(file.resolve())


def _ledger() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "fcritic" / "trusted-tasks"


def _places(task: str) -> Iterator[Path]:
    """Where the module that a task names, and the packages around it, would be imported from; imports nothing."""
    module, colon, _ = task.partition(":")
    if not colon or not all(part.isidentifier() for part in module.split(".")):
        return
    first, *rest = module.split(".")
    spec = importlib.util.find_spec(first)
    if spec is None:
        return
    if spec.has_location:  # those of built-in modules are no paths
        yield Path(spec.origin)
    inside = [Path(folder) for folder in spec.submodule_search_locations or ()]
    yield from inside
    for part in rest:
        yield from (folder / f"{part}.py" for folder in inside)
        inside = [folder / part for folder in inside]
        yield from inside
