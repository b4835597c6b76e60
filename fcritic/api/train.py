"""Training from a script or a notebook: one call, which also continues what an earlier one began."""

import dataclasses
from pathlib import Path
import signal
from typing import Any, get_type_hints
import warnings

from fcritic.agents.recipes import Recipe
from fcritic.api.beginning import beginning
from fcritic.api.callback import Callback, after_evaluation
from fcritic.api.load import TrainedAgent, load
from fcritic.api.trust import trust_config
from fcritic.config import TrainConfig, fits
from fcritic.envs.arguments import with_arguments
from fcritic.envs.own import GIVEN, Task, name_of
from fcritic.errors import UsageError, option_hint
from fcritic.training.loop import train
from fcritic.training.signals import Interrupted


def configure(recipe: Recipe | TrainConfig = "fac-small", task: Task | None = None, **options: Any) -> TrainConfig:
    """The config of a recipe, or another config, with changes: the options of `fcritic train`, by their names.

    A recipe is a name, also of your own code, an agent or its class. Options of the encoder are given together:
    ``encoder={"probes": 64}``, and so are arguments of the task: ``task_args={"ctrl_cost_weight": 0.1}``.
    """
    config = recipe if isinstance(recipe, TrainConfig) else TrainConfig.of(recipe)
    if task is not None:
        options["task"] = name_of(task)
    if task_args := options.pop("task_args", None):
        options["task"] = with_arguments(options.get("task", config.task), task_args)
    own = {name: options.pop(name) for name in list(options) if name in _settable(TrainConfig)}
    agent = _changed(config.agent, options, _settable(TrainConfig))
    return _changed(dataclasses.replace(config, agent=agent), own, set())


def train_agent(
    recipe: Recipe | TrainConfig = "fac-small",
    task: Task | None = None,
    out: str | Path | None = None,
    *,
    quiet: bool = False,
    yes: bool = False,
    callback: Callback | None = None,
    **options: Any,
) -> TrainedAgent:
    """Trains in the directory `out`, or continues what is there, and returns the agent of the first seed.

    Recipe, task and options are those of `configure`; without `out` the directory is runs/RECIPE-TASK-SEED. What is
    estimated to take more than a day is refused, unless `yes` agrees to it. Ctrl-C saves first: the same call then
    goes on. Works in threads, where nothing listens to signals. `callback` is called with a `Moment` after each
    evaluation.
    """
    config = configure(recipe, task, **options)
    trust_config(config)
    if config.task.startswith(GIVEN):
        warnings.warn(
            f"{config.task} has no name to import it by: to load or continue, give task= again", stacklevel=2
        )
    directory = Path(out) if out is not None else Path("runs") / config.run_name
    command = f"fcritic.train_agent in Python on {config.task}"
    try:
        after = None if callback is None else after_evaluation(callback, config, directory)
        train(config, directory, command, quiet, yes, after_evaluation=after, first=beginning(config))
    except Interrupted as stop:
        if stop.signal_number != signal.SIGINT:
            raise
        raise KeyboardInterrupt(f"stopped at frame {stop.frame:,} and saved; the same call continues") from None
    return load(directory, task=config.task)


def _settable(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)} - {"agent", "recipe"}


def _changed(options: Any, changes: dict[str, Any], others: set[str]) -> Any:
    """A dataclass with some fields changed; `others` are names that exist elsewhere, for the advice alone."""
    hints = get_type_hints(type(options))
    checked = {}
    for name, value in changes.items():
        if name not in _settable(type(options)):
            known = _settable(type(options)) | others
            raise UsageError(f"unknown option {name}{option_hint(name, known) or '; see fcritic train --help'}")
        present = getattr(options, name)
        if type(value) is float and value.is_integer() and not fits(value, hints[name]):
            value = int(value)  # 1e6 is a whole number
        if isinstance(value, dict) and dataclasses.is_dataclass(present):
            value = _changed(present, value, set())
        elif not fits(value, hints[name]):
            raise UsageError(f"{name} cannot be {value!r:.60}; it is {present!r:.60} by default")
        checked[name] = tuple(value) if isinstance(value, list) else value
    return dataclasses.replace(options, **checked)
