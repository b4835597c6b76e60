"""`fcritic plot`: learning curves, and what the agents did on the way."""

import dataclasses
import json
from typing import Annotated, Any, Literal

import tyro

from fcritic.cli.parsing import parse
from fcritic.disk import destination
from fcritic.errors import UsageError

What = Literal[
    "returns",
    "success",
    "length",
    "diversity",
    "disagreement",
    "coverage",
    "saturation",
    "knowledge",
    "trust",
    "first-reward",
]


@dataclasses.dataclass(frozen=True)
class PlotOptions:
    """Draws the learning curves of one or more runs, or what their agents did."""

    directories: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="DIR [DIR ...]")]]
    """Directories of runs."""
    what: What = "returns"
    """The returns; how many episodes of the evaluations succeed, and how long they are; how far actors differ; how
    far critics disagree; how many states were seen; how often actions are at their bounds; how well critics rank
    past actors (with `train --knowledge`); coverage, Delta and the critics' error (with `train --trust.measure`);
    when the first reward was."""
    out: str | None = None
    """Picture to write, .png, .svg or .pdf; without it curve.png (or WHAT.png) in the first directory."""
    json: bool = False
    """Print the curves as JSON."""


def plot(args: list[str]) -> None:
    """`fcritic plot DIR [DIR ...]`."""
    from fcritic.results import plots
    from fcritic.results import read as results
    from fcritic.runs.directory import RunDirectory

    options = parse(PlotOptions, args, "plot")
    if not options.directories:
        raise UsageError("name at least one run to plot: fcritic plot DIR")
    runs = [RunDirectory.open_existing(path) for path in options.directories]
    name = "curve" if options.what == "returns" else options.what
    out = destination(options.out, runs[0].place / f"{name}.png")
    if options.what != "returns" and (given := next((run for run in runs if run.is_exported()), None)):
        raise UsageError(
            f"{given.path} is an exported agent, which keeps its evaluations and no rows about {options.what}; "
            "plot the run that it came from"
        )
    if options.what == "returns":
        found = [results.curves(run) for run in runs]
        plots.learning_curves(found, out)
    else:
        found = [results.behaviour(run) for run in runs]
        if options.what == "trust":
            plots.trust_curves(found, out)
        else:
            plots.behaviour_curves(found, options.what, out)
    outcome: dict[str, Any] = {"picture": str(out), "runs": [each.to_json() for each in found]}
    print(json.dumps(outcome, indent=2) if options.json else f"wrote {out}")
