"""`fcritic inspect DIR`: what the critics of a trained agent say of policies, beside what these reach."""

import dataclasses
import json
import sys
from typing import Annotated, Any

import tyro

from fcritic.cli.parsing import parse
from fcritic.disk import Place, destination
from fcritic.errors import require_at_least, writing
from fcritic.logs.metrics import ASKED
from fcritic.startup.backend import prepare

prepare()


@dataclasses.dataclass(frozen=True)
class InspectOptions:
    """Draws the critics' map of policies beside measured returns, the actors' codes and the probe states."""

    directory: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="DIR")]]
    """Directory of a run with functional critics (fac, fac-shared, fac-small)."""
    out: str | None = None
    """HTML file to write; without it inspect.html in the run's directory."""
    seed: int | None = None
    """Number of the seed; without it the run's first."""
    actors: tuple[int, ...] = (0, 1, 2)
    """The three actors a, b and c that the slice goes through."""
    grid: int = 9
    """Policies along each side of the slice: 5, 9, 13, ..."""
    episodes: int = 3
    """Episodes for each policy."""
    quick: bool = False
    """A slice of 5 by 5 and one episode for each policy."""
    json: bool = False
    """Print the findings as JSON."""


def inspect(args: list[str]) -> None:
    """`fcritic inspect DIR`: run, ask, write one page."""
    from fcritic.api.load import load
    from fcritic.runs.directory import RunDirectory
    from fcritic.view.inspection.inspect import inspect as look
    from fcritic.view.inspection.inspect import page
    from fcritic.view.inspection.measure import places

    options = parse(InspectOptions, args, "inspect")
    require_at_least(1, episodes=options.episodes)
    grid, episodes = (5, 1) if options.quick else (options.grid, options.episodes)
    places(grid)  # refuses one that cannot be drawn before anything is loaded
    out = destination(options.out, RunDirectory(options.directory).place / "inspect.html")
    out.require_plain()
    agent = load(options.directory, options.seed)
    report = look(agent, options.actors, grid, episodes, _say)
    with writing("the page", out.path):
        out.parent.make()
        out.replace(page(report).encode())
    print(json.dumps(report, indent=2) if options.json else _summary(report, out))


def _say(line: str) -> None:
    """Progress, in one line of a terminal or line by line elsewhere."""
    end = "\r" if sys.stderr.isatty() else "\n"
    print(f"{line}\x1b[K" if sys.stderr.isatty() else line, end=end, file=sys.stderr, flush=True)


def _summary(report: dict[str, Any], out: Place) -> str:
    found, agent = report["slice"]["agreement"], report["agent"]
    number = lambda value: "none" if value is None else f"{value:.2f}"
    after = f"; corrected by the replay {number(found['corrected']['rank'])}" if "corrected" in found else ""
    critics = ", ".join(number(each["rank"]) for each in found["critics"])
    where = f"{agent['recipe']} on {agent['task']}, frame {agent['frame']:,}"
    count = len(report["slice"]["plain"])
    told = report["knowledge"]
    ranks = [f"{number(signs['rank'])} on {ASKED[kind]}" for kind, signs in (told["kinds"] if told else {}).items()]
    asked = f"asked in training, at frame {told['frame']:,}: rank correlation {', '.join(ranks)}\n" if told else ""
    return (
        f"{where}: over {count} policies the critics' mean has "
        f"rank correlation {number(found['mean']['rank'])} with measured returns (critics: {critics}){after}\n"
        f"{asked}"
        f"wrote {out}"
    )
