"""`fcritic explore`: claims about exploration, judged on small tasks with known answers."""

import dataclasses
import sys
from typing import Annotated, Any

import tyro

from fcritic.cli.parsing import parse
from fcritic.cli.verdicts import judge, without_data
from fcritic.errors import UsageError
from fcritic.exploration.experiments import EXPERIMENTS, load
from fcritic.startup.backend import prepare
from fcritic.theory.experiments.base import Experiment
from fcritic.training.signals import Interrupted

prepare()

NOT_QUICK = ("sparse",)
"""Left out of `all --quick`, which is to end within four minutes: compiling deep agents takes more than one."""

CHOICES = ("tasks", "methods", "finished", "add")
"""Options of `sparse` alone."""

_ALL = f"every one of them; with --quick all but {', '.join(NOT_QUICK)}"
_LISTING = "\n".join(f"  {name:<18} {line}" for name, line in {**EXPERIMENTS, "all": _ALL}.items())


@dataclasses.dataclass(frozen=True)
class ExploreOptions:
    """Judges claims about exploration on small tasks with known answers, and draws what was found."""

    name: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="NAME")]]
    """The experiment, or `all`."""
    quick: bool = False
    """Fewer seeds and smaller tasks, the same claims."""
    tasks: tuple[str, ...] = ()
    """Only for `sparse`: other tasks than the small ones, for example cartpole-swingup_sparse hopper-hop."""
    methods: tuple[str, ...] = ()
    """Only for `sparse`: some of the methods, for example "functional, prior" sac; one process may train each."""
    finished: bool = False
    """Only for `sparse`: report the trainings that are finished and begin none."""
    add: tuple[str, ...] = ()
    """Only for `sparse`: files sparse.csv of other machines, whose trainings are reported as well."""
    out: str | None = None
    """Directory for NAME.json, NAME.csv and NAME.png; without it reports/NAME."""
    json: bool = False
    """Print the outcome as JSON."""


def explore(args: list[str]) -> int:
    """`fcritic explore NAME`: run, judge, write, draw. Without a name it lists the experiments."""
    if not args or args in (["--help"], ["-h"]):
        print(_help())
        return 0
    options = parse(ExploreOptions, args, "explore")
    if any(getattr(options, name) for name in CHOICES) and (options.name != "sparse" or options.quick):
        raise UsageError("--tasks, --methods, --finished and --add are for `explore sparse` without --quick")
    known = [name for name in EXPERIMENTS if not (options.quick and name in NOT_QUICK)]
    try:
        judge(options, known, lambda name: _chosen(load(name), options), _brief)
    except Interrupted as stop:
        print("stopped; finished trainings are kept and the same command continues", file=sys.stderr)
        return 128 + stop.signal_number
    return 0


def _chosen(experiment: Experiment, options: ExploreOptions) -> Experiment:
    """The experiment, with what the options change in it."""
    changes = {name: getattr(options, name) for name in CHOICES if getattr(options, name)}
    return dataclasses.replace(experiment, **changes) if changes else experiment


def _brief(report: dict[str, Any]) -> dict[str, Any]:
    """A report without the data of its picture, but for what a program would ask for first."""
    names = ("regret", "reach", "found_share", "solved_share", "first_reward")
    return without_data(report) | {name: report["data"][name] for name in names if name in report["data"]}


def _help() -> str:
    return "\n".join(
        [
            "usage: fcritic explore NAME [--quick] [--out DIR] [--json]",
            "       fcritic explore sparse [--tasks TASK ...] [--methods METHOD ...] [--finished] [--add FILE ...]",
            "",
            ExploreOptions.__doc__,
            "",
            _LISTING,
            "",
            "  --quick            fewer seeds and smaller tasks, the same claims",
            "  --tasks TASK ...   for sparse: other tasks than the small ones; a GPU is advised",
            '  --methods ...      for sparse: some of the methods, such as "functional, prior" sac',
            "  --finished         for sparse: report what is finished, begin nothing",
            "  --add FILE ...     for sparse: files sparse.csv of other machines, to be reported as well",
            "  --out DIR          where NAME.json, NAME.csv and NAME.png go (reports/NAME)",
            "  --json             print the outcome as JSON",
        ]
    )
