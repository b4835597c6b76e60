"""`fcritic theory`: statements of the paper, judged by experiments on problems that can be solved exactly."""

import dataclasses
from typing import Annotated

import tyro

from fcritic.cli.parsing import parse
from fcritic.cli.verdicts import judge
from fcritic.startup.backend import prepare
from fcritic.theory.experiments import EXPERIMENTS, load

prepare()

_LISTING = "\n".join(f"  {name:<18} {line}" for name, line in {**EXPERIMENTS, "all": "every one of them"}.items())


@dataclasses.dataclass(frozen=True)
class TheoryOptions:
    """Judges statements of the paper on problems that can be solved exactly, and draws what was found."""

    name: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="NAME")]]
    """The experiment, or `all`."""
    quick: bool = False
    """Fewer seeds and shorter runs, the same claims."""
    out: str | None = None
    """Directory for NAME.json, NAME.csv and NAME.png; without it reports/NAME."""
    json: bool = False
    """Print the outcome as JSON."""


def theory(args: list[str]) -> None:
    """`fcritic theory NAME`: run, judge, write, draw. Without a name it lists the experiments."""
    if not args or args in (["--help"], ["-h"]):
        print(_help())
        return
    options = parse(TheoryOptions, args, "theory")
    judge(options, EXPERIMENTS, load)


def _help() -> str:
    return "\n".join(
        [
            "usage: fcritic theory NAME [--quick] [--out DIR] [--json]",
            "",
            TheoryOptions.__doc__,
            "",
            _LISTING,
            "",
            "  --quick            fewer seeds and shorter runs, the same claims",
            "  --out DIR          where NAME.json, NAME.csv and NAME.png go (reports/NAME)",
            "  --json             print the outcome as JSON",
        ]
    )
