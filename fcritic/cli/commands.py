"""What each command does: parse its options, call the library, print for a person or a program."""

import dataclasses
import json
import os
from pathlib import Path
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from fcritic.agents.recipes import about
from fcritic.api.trust import trust_config
from fcritic.cli.parsing import parse
from fcritic.config import TrainConfig
from fcritic.envs.arguments import of_words, with_arguments
from fcritic.errors import UsageError
from fcritic.networks.precision import on_gpu
from fcritic.startup.backend import prepare, wake_device

if TYPE_CHECKING:
    from fcritic.training.loop import AfterEvaluation

prepare()

Directory = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="DIR")]]
"""A run that must be named."""


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """Trains an agent. The same command on the same directory continues where it stopped."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    task_args: tuple[str, ...] = ()
    """Arguments of the task, NAME=VALUE each: of a Gymnasium id, a task of the suite (its task_kwargs) or your own
    factory. They become a part of the task's name: Ant-v5?ctrl_cost_weight=0.1."""
    out: str | None = None
    """Directory of the run; without it runs/RECIPE-TASK-SEED."""
    yes: bool = False
    """Start even if the estimated time exceeds a day."""
    callback: str | None = None
    """Your own code to call after each evaluation: path/to/file.py:function, which gets an `fcritic.Moment`."""
    quiet: bool = False
    """Print errors only."""
    json: bool = False
    """Print the outcome as JSON."""


def train(args: list[str]) -> int:
    """`fcritic train`: parse, train, say what to do next."""
    default = default_config(args)
    options = parse(TrainOptions, args, "train", TrainOptions(default))
    config = with_task_args(options)
    trust_config(config)
    out = options.out or f"runs/{config.run_name}"
    note = _chosen_by_device(args, default)
    return _train(config, out, f"fcritic train {shlex.join(args)}", options, note)


MINUTES = {"recipe": "fac-small", "action_repeat": 4, "steps": 56_000, "warmup": 2_000, "eval_every": 8_000}
"""Defaults of `fcritic train` on a CPU, which end in minutes; a GPU has the paper's."""


def default_config(args: list[str]) -> TrainConfig:
    """The config before its options: that of the recipe, which decides what options there are, on this device."""
    if "from" in values_of(args):
        return _default_of_run(values_of(args))
    defaults = {} if on_gpu() else dict(MINUTES)
    if "task" in values_of(args):
        defaults.pop("action_repeat", None)  # it is meant for the default task
    recipe = values_of(args).get("recipe", defaults.pop("recipe", TrainConfig.recipe))
    return TrainConfig.of(recipe, **{name: value for name, value in defaults.items() if name != "recipe"})


def _default_of_run(given: dict[str, str]) -> TrainConfig:
    """The config that a run has, for a training that begins with its agents: these act during the warm-up."""
    from fcritic.api.trust import config_of
    from fcritic.runs.directory import RunDirectory

    config = config_of(RunDirectory.open_existing(given["from"]), given.get("task"))
    if given.get("recipe", config.recipe) != config.recipe:
        raise UsageError(f"{given['from']} has the recipe {config.recipe}, which --from keeps; leave --recipe out")
    return dataclasses.replace(config, begin_from=None, data=(), warmup_actions="policy")


def values_of(args: list[str]) -> dict[str, str]:
    """The options in a command line that have not been parsed yet; of several the last one counts."""
    found = {}
    for index, arg in enumerate(args):
        name, equals, value = arg.removeprefix("--").partition("=")
        if arg.startswith("--") and (equals or index + 1 < len(args)):
            found[name.replace("-", "_")] = value if equals else args[index + 1]
    return found


def _chosen_by_device(args: list[str], default: TrainConfig) -> str:
    """One line with the defaults that depend on the device."""
    if "from" in values_of(args):
        return f"options that are not given are those of {values_of(args)['from']}"
    names = [name for name in MINUTES if name not in values_of(args)]
    chosen = " ".join(f"--{name.replace('_', '-')} {getattr(default, name)}" for name in names)
    return f"by default on a {'GPU' if on_gpu() else 'CPU'}: {chosen}" if names else ""


def with_task_args(options: "TrainOptions | DescribeOptions") -> TrainConfig:
    """The configuration with all that its task is given."""
    config = options.config
    return dataclasses.replace(config, task=with_arguments(config.task, of_words(options.task_args)))


def _program() -> str:
    """How this program is called here: by its name where that is found, else by its path."""
    called = Path(sys.argv[0])
    if called.name != "fcritic":
        return "python -m fcritic"
    return "fcritic" if shutil.which("fcritic") else os.path.relpath(called)


def _train(
    config: TrainConfig,
    out: str,
    command: str,
    options: "TrainOptions | ResumeOptions",
    note: str = "",
    free: frozenset[str] = frozenset(),
) -> int:
    """Trains and says what to do next; fields in `free` may change, besides those that always may."""
    prepare(config.deterministic)
    wake_device()  # before what follows, which takes most of a second to import
    from fcritic.api.beginning import beginning
    from fcritic.results import read as results
    from fcritic.training.loop import FREE_FIELDS, train
    from fcritic.training.signals import Interrupted

    program = _program()
    try:
        after = _callback(options.callback, config, out)
        first, changing = beginning(config), FREE_FIELDS | free
        run = train(config, out, command, options.quiet, options.yes, note, after, first, changing)
    except Interrupted as stop:
        again = f"{program} resume {shlex.quote(out)}"
        print(f"stopped at frame {stop.frame:,}; continue with: {again}", file=sys.stderr)
        return 128 + stop.signal_number
    summary = results.summary(run)
    text = results.summary_text(summary)
    if options.json:
        print(json.dumps(summary, indent=2))
    elif not options.quiet:
        name = shlex.quote(out)
        print(f"{text}\nnext: {program} evaluate {name} --episodes 10; {program} plot {name}")
    return 0


def _callback(named: str | None, config: TrainConfig, out: str) -> "AfterEvaluation | None":
    if named is None:
        return None
    from fcritic.api.callback import after_evaluation, find_callback

    return after_evaluation(find_callback(named), config, out)


@dataclasses.dataclass(frozen=True)
class ResumeOptions:
    """Continues a run from its newest checkpoint."""

    directory: Directory
    """Directory of the run."""
    steps: int | None = None
    """New last frame, to make the run longer."""
    learning_rate: float | None = None
    """New learning rate from here on; changes.jsonl records the frame."""
    yes: bool = False
    """Continue even if the estimated time exceeds another day."""
    callback: str | None = None
    """Your own code to call after each evaluation: path/to/file.py:function."""
    quiet: bool = False
    """Print errors only."""
    json: bool = False
    """Print the outcome as JSON."""


def resume(args: list[str]) -> int:
    """`fcritic resume DIR`."""
    from fcritic.api.trust import config_of
    from fcritic.runs.directory import RunDirectory

    options = parse(ResumeOptions, args, "resume")
    config = config_of(RunDirectory.open_existing(options.directory))
    if options.steps is not None:
        config = dataclasses.replace(config, steps=options.steps)
    free = frozenset()
    if options.learning_rate is not None:
        if not hasattr(config.agent, "learning_rate"):
            raise UsageError(f"{type(config.agent).__name__} has no learning rate; leave --learning-rate out")
        agent = dataclasses.replace(config.agent, learning_rate=options.learning_rate)
        config, free = dataclasses.replace(config, agent=agent), frozenset({"agent.learning_rate"})
    command = f"fcritic resume {shlex.join(args)}"
    return _train(config, options.directory, command, options, free=free)


@dataclasses.dataclass(frozen=True)
class EvaluateOptions:
    """Runs every actor of a run's newest checkpoint on fresh environments, without exploration."""

    directory: Directory
    """Directory of the run."""
    episodes: int = 10
    """Episodes per actor."""
    best: bool = False
    """The actors of each seed's best evaluation so far instead of the last ones."""
    json: bool = False
    """Print JSON."""


def evaluate(args: list[str]) -> None:
    """`fcritic evaluate DIR`: mean actor, best actor and rollouts, kept apart."""
    from fcritic.results import read as results

    options = parse(EvaluateOptions, args, "evaluate")
    outcome = evaluated(options.directory, options.episodes, options.best)
    print(json.dumps(outcome, indent=2) if options.json else results.evaluation_text(outcome))


def evaluated(directory: str, episodes: int, best: bool = False) -> dict[str, Any]:
    """The report on new episodes of a run's actors."""
    from fcritic.api.trust import config_of
    from fcritic.errors import require_at_least
    from fcritic.results import read as results
    from fcritic.runs.directory import RunDirectory
    from fcritic.training.evaluate import Evaluator
    from fcritic.training.saving import load_policies

    require_at_least(1, episodes=episodes)
    run = RunDirectory.open_existing(directory)
    config = config_of(run)
    policies, normalizer, facts = load_policies(config, run.require_checkpoint(), best)
    evaluator = Evaluator(config, episodes)
    evaluations = evaluator.evaluate(policies, normalizer, "command")
    evaluator.close()
    return results.evaluation_report(run, config, facts, evaluations)


def describe(args: list[str]) -> None:
    """`fcritic describe`: what a recipe is on a task."""
    from fcritic.training.cost import describe, describe_text

    options = parse(DescribeOptions, args, "describe", DescribeOptions(default_config(args)))
    config = with_task_args(options)
    trust_config(config)
    facts = describe(config)
    line = about(config.recipe)
    print(json.dumps(facts, indent=2) if options.json else describe_text(facts, line))


@dataclasses.dataclass(frozen=True)
class DescribeOptions:
    """Sizes, parameters and cost of a recipe on a task; takes every option of `train`."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    task_args: tuple[str, ...] = ()
    """As for `train`."""
    json: bool = False
    """Print JSON."""
