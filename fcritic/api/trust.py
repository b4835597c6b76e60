"""The line between tasks that the user has typed and tasks that a file names.

A task that is code becomes trusted when its user names it, in `fcritic train`, `fcritic check` or
`fcritic.train_agent`. A file, such as the `config.json` of a run that was made elsewhere, can only name such code.
"""

import dataclasses
import os
from pathlib import Path
import shlex
from typing import TYPE_CHECKING

from fcritic import envs
from fcritic.errors import UsageError
from fcritic.runs.trust import standing, trust

if TYPE_CHECKING:  # it imports JAX, which the check of an environment does without
    from fcritic.config import TrainConfig
    from fcritic.runs.directory import RunDirectory


def trust_task(task: str) -> None:
    """The user has typed this task: if it is code, files may name it from now on, until it changes."""
    code = envs.code_of(task)
    if code is not None and not code.flaw:
        trust(code.files, code.name)


def require_trusted(task: str, folder: Path) -> None:
    """Refuses a task, named by the run in `folder`, whose code is the run's or is not trusted as it is now."""
    code = envs.code_of(task)
    if code is None:
        return
    home = Path(os.path.realpath(folder))
    for file in code.files:
        if Path(os.path.realpath(file)).is_relative_to(home):
            raise UsageError(f"{folder} brings the code of its own task, {file}; move it out if you trust it")
    if code.flaw:
        raise UsageError(f"{folder} names the task {task}, but {code.flaw}")
    found = standing(code.files, code.name)
    if found == "trusted":
        return
    if not code.files:
        raise UsageError(f"{folder} names the task {task}, whose code is in no file; give it in Python, as task=")
    again = f"fcritic check {shlex.quote(task)}"
    if found == "changed":
        raise UsageError(
            f"{code.files[-1]} has changed since you trusted it; if you trust it as it is now: {again}"
        )
    raise UsageError(f"{folder} wants to run {task} of {code.files[-1]}; if you know and trust that code: {again}")


def config_of(run: "RunDirectory", task: envs.Task | None = None) -> "TrainConfig":
    """The configuration of a run; refused where it would run code that its user has not trusted.

    `task` takes the place of the one that is recorded: code that has moved, or a callable of this program.
    """
    from fcritic.config import TrainConfig

    config = TrainConfig.from_json(run.config)
    if task is not None:
        return dataclasses.replace(config, task=envs.name_of(task))
    require_trusted(config.task, run.path)
    return config
