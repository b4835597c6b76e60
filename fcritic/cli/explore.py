"""`fcritic explore`: claims about exploration, judged on small tasks with known answers."""

import dataclasses
from typing import Annotated, Any

import tyro

from fcritic.backend import prepare
from fcritic.cli.parsing import parse
from fcritic.cli.verdicts import judge, without_data
from fcritic.exploration.experiments import EXPERIMENTS, load

prepare()

_LISTING = "\n".join(f"  {name:<18} {line}" for name, line in {**EXPERIMENTS, "all": "every one of them"}.items())


@dataclasses.dataclass(frozen=True)
class ExploreOptions:
    """Judges claims about exploration on small tasks with known answers, and draws what was found."""

    name: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="NAME")]]
    """The experiment, or `all`."""
    quick: bool = False
    """Fewer seeds and smaller tasks, the same claims."""
    out: str = "results/exploration"
    """Directory for NAME.json, NAME.csv and NAME.png."""
    json: bool = False
    """Print the outcome as JSON."""


def explore(args: list[str]) -> None:
    """`fcritic explore NAME`: run, judge, write, draw. Without a name it lists the experiments."""
    if not args or args in (["--help"], ["-h"]):
        print(_help())
        return
    options = parse(ExploreOptions, args, "explore")
    judge(options, EXPERIMENTS, load, _brief)


def _brief(report: dict[str, Any]) -> dict[str, Any]:
    """A report without the data of its picture, but with the regret of each method and size where it has one."""
    regret = {name: report["data"][name] for name in ("regret",) if name in report["data"]}
    return without_data(report) | regret


def _help() -> str:
    return "\n".join(
        [
            "usage: fcritic explore NAME [--quick] [--out DIR] [--json]",
            "",
            ExploreOptions.__doc__,
            "",
            _LISTING,
            "",
            "  --quick            fewer seeds and smaller tasks, the same claims",
            "  --out DIR          where NAME.json, NAME.csv and NAME.png go (results/exploration)",
            "  --json             print the outcome as JSON",
        ]
    )
