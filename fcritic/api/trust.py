"""The line between code that the user has typed and code that a file names.

A task or an algorithm that is code becomes trusted when its user names it, in `fcritic train`, `fcritic check`,
`fcritic describe` or `fcritic.train_agent`. A file, such as the `config.json` of a run that was made elsewhere, can
only name such code.
"""

import dataclasses
import os
from pathlib import Path
import shlex
from typing import TYPE_CHECKING

from fcritic import envs
from fcritic.code import Code, code_named
from fcritic.errors import UsageError
from fcritic.runs.trust import standing, trust

if TYPE_CHECKING:  # it imports JAX, which the check of an environment does without
    from fcritic.agents.recipes import Recipe
    from fcritic.config import TrainConfig
    from fcritic.runs.directory import RunDirectory


def trust_task(task: str) -> None:
    """The user has typed this task: if it is code, files may name it from now on, until it changes."""
    code = envs.code_of(task)
    if code is not None and not code.flaw:
        trust(code.files, code.name)


def trust_config(config: "TrainConfig") -> None:
    """The same for the task and the algorithm of a configuration; the name of its recipe is a label, never run."""
    trust_task(config.task)
    if ":" in config.algorithm and not (code := code_named(config.algorithm)).flaw:
        trust(code.files, code.name)


def require_trusted(task: str, folder: Path) -> None:
    """Refuses the task of the run in `folder` if its code lies in the run or is not trusted in its present form."""
    code = envs.code_of(task)
    if code is not None:
        _require(code, f"task {task}", folder, f"fcritic check {shlex.quote(task)}")


def _require(code: Code, named: str, folder: Path, again: str) -> None:
    kind = named.partition(" ")[0]
    home = Path(os.path.realpath(folder))
    for file in code.files:
        if Path(os.path.realpath(file)).is_relative_to(home):
            raise UsageError(f"{folder} contains the code of its own {kind}, {file}; move it out if you trust it")
    _require_known(code, named, folder, again)


def require_trusted_words(values: dict[str, str], file: str) -> None:
    """Refuses a task or a recipe, named by a file of options, whose code is not trusted in its present form."""
    recipe, task = values.get("recipe", ""), values.get("task", "")
    if ":" in recipe:
        again = f"fcritic describe --recipe {shlex.quote(recipe)}"
        _require_known(code_named(recipe), f"recipe {recipe}", Path(file), again)
    if task and (code := envs.code_of(task)) is not None:
        _require_known(code, f"task {task}", Path(file), f"fcritic check {shlex.quote(task)}")


def _require_known(code: Code, named: str, folder: Path, again: str) -> None:
    kind, _, name = named.partition(" ")
    if code.flaw:
        where = f"; nor is it in a folder above {folder}" if not code.files and ".py:" in name else ""
        raise UsageError(f"{folder} names the {named}, but {code.flaw}{where}")
    found = standing(code.files, code.name)
    if found == "trusted":
        return
    if not code.files:
        raise UsageError(f"{folder} names the {named}, whose code is in no file; give it in Python, as {kind}=")
    if (package := name.partition(":")[0].partition(".")[0]) in ("fcritic", "gymnasium"):
        raise UsageError(f"{folder} names the {named}, a part of {package} that no {kind} has to name")
    if found == "changed":
        raise UsageError(f"{code.files[-1]} has changed since you trusted it; if you trust it now: {again}")
    raise UsageError(f"{folder} wants to run {name} of {code.files[-1]}; if you know and trust that code: {again}")


def config_of(run: "RunDirectory", task: envs.Task | None = None, recipe: "Recipe | None" = None) -> "TrainConfig":
    """The configuration of a run; refused where it would run code that its user has not trusted.

    `task` and `recipe` take the place of those that are recorded: code that has moved, or of this program.
    """
    from fcritic.agents.recipes import algorithm_of, find_recipe, named_recipe
    from fcritic.config import MOST_LETTERS, TrainConfig, require_memory_for_networks

    data = TrainConfig.as_now(run.config, run.path)
    if recipe is not None:
        name, agent = named_recipe(recipe)
        data |= {"recipe": name, "algorithm": algorithm_of(type(agent), name)}
    else:
        named = data.get("algorithm")
        if isinstance(named, str) and ":" in named and named.isprintable() and len(named) <= MOST_LETTERS:
            _require(
                code_named(named), f"recipe {named}", run.path, f"fcritic describe --recipe {shlex.quote(named)}"
            )
            find_recipe(named)
    config = TrainConfig.from_json(data)
    require_memory_for_networks(config)
    if task is not None:
        return dataclasses.replace(config, task=envs.name_of(task))
    require_trusted(config.task, run.path)
    return config
