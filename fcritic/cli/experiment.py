"""`fcritic experiment list|run|status|report NAME`."""

import dataclasses
import json
from pathlib import Path
import sys
from typing import Annotated, Any, Literal

import tyro

from fcritic.cli.parsing import parse
from fcritic.errors import UsageError, did_you_mean, require_at_least
from fcritic.startup.backend import prepare

Name = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="NAME")]]


@dataclasses.dataclass(frozen=True)
class ListOptions:
    """Names and purposes of all experiments."""

    json: bool = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True)
class StatusOptions:
    """How far each run of an experiment is."""

    name: Name
    """The experiment."""
    dir: str = "runs/experiments"
    """Folder of its runs."""
    only: tuple[str, ...] = ()
    """Only runs with one of these words as method, as task or in their name."""
    json: bool = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True)
class RunOptions(StatusOptions):
    """Trains what is not finished; the same command continues what was stopped or killed."""

    budget: str | None = None
    """Stop cleanly after this time: 25m, 1.5h, 90s."""
    yes: bool = False
    """Start also what is estimated to take more than a day on this machine and has no smaller budget."""
    on: Literal["here", "ray"] = "here"
    """One run after the other on this machine, or as tasks of a Ray cluster."""
    address: str | None = None
    """A Ray cluster that is running; without it one is started on this machine, on loopback."""
    cpus: float = 1.0
    """CPU cores that one run takes of a Ray node."""
    gpus: float = 0.0
    """GPUs, or a share of one, that one run takes of a Ray node."""


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """Writes the report: one HTML page, the picture as PNG and SVG, and all numbers as CSV and JSON."""

    name: Name
    """The experiment."""
    dir: str = "runs/experiments"
    """Folder of its runs."""
    out: str | None = None
    """Folder of the report; without it reports/NAME."""
    add: tuple[str, ...] = ()
    """Files curves.csv, of other reports or of results/, for runs that have no folder here."""
    json: bool = False
    """Print the numbers as JSON."""


def experiment(args: list[str]) -> int:
    """The subcommand and what it does; 1 if a run failed."""
    if not args or args[0] in ("-h", "--help"):
        lines = [f"  {name:<8} {(kind.__doc__ or '').strip()}" for name, (kind, _) in ACTIONS.items()]
        print("\n".join(["usage: fcritic experiment list|run|status|report [NAME] [OPTIONS]", "", *lines]))
        return 0
    if args[0] not in ACTIONS:
        hint = did_you_mean(args[0], ACTIONS) or f"; known are {', '.join(ACTIONS)}"
        raise UsageError(f"unknown action '{args[0]}'{hint}")
    prepare()
    kind, action = ACTIONS[args[0]]
    return action(parse(kind, args[1:], f"experiment {args[0]}")) or 0


def _list(options: ListOptions) -> None:
    from fcritic.experiments.catalog import EXPERIMENTS

    facts = [{"name": e.name, "purpose": e.purpose, "runs": len(e.runs)} for e in EXPERIMENTS.values()]
    lines = [f"{fact['name']:<18} {fact['runs']:>2} runs  {fact['purpose']}" for fact in facts]
    print(json.dumps(facts, indent=2) if options.json else "\n".join(lines))


def _status(options: StatusOptions) -> None:
    print(_status_text(options))


def _status_text(options: StatusOptions) -> str:
    from fcritic.experiments.catalog import find_experiment
    from fcritic.experiments.progress import progress

    found = progress(find_experiment(options.name), Path(options.dir), options.only)
    if options.json:
        return json.dumps([each.to_json() for each in found], indent=2)
    return "\n".join(f"{each.state:<9} {each.frame:>9,} of {each.run.steps:<9,} {each.run.name}" for each in found)


def _run(options: RunOptions) -> int:
    from fcritic.experiments.catalog import find_experiment
    from fcritic.experiments.local import Budget, parse_budget, require_agreed_runs, run_all
    from fcritic.experiments.progress import progress

    budget = Budget(parse_budget(options.budget))
    todo = progress(find_experiment(options.name), Path(options.dir), options.only)
    if not todo:
        raise UsageError(
            f"no run of {options.name} fits --only {' '.join(options.only)}; see fcritic experiment status"
        )
    say = lambda line: print(line, file=sys.stderr, flush=True)
    if options.on == "ray":
        from fcritic.experiments import cluster

        require_at_least(0, cpus=options.cpus, gpus=options.gpus)
        failed = cluster.run_all(todo, budget, say, options.address, cluster.Needs(options.cpus, options.gpus))
    else:
        require_agreed_runs(todo, budget, options.yes)
        failed = run_all(todo, budget, say)
    print(_status_text(options))
    return 1 if failed else 0


def _report(options: ReportOptions) -> None:
    from fcritic.experiments.catalog import find_experiment
    from fcritic.experiments.report import write_report

    out = Path(options.out or f"reports/{options.name}")
    numbers: dict[str, Any] = write_report(find_experiment(options.name), Path(options.dir), out, options.add)
    if options.json:
        print(json.dumps(numbers, indent=2))
        return
    for verdict in numbers["verdicts"]:
        print(f"{verdict['claim']}, {verdict['panel']}: {verdict['outcome']} ({verdict['why']})")
    print(f"wrote {out / 'index.html'}")


ACTIONS = {
    "list": (ListOptions, _list),
    "run": (RunOptions, _run),
    "status": (StatusOptions, _status),
    "report": (ReportOptions, _report),
}
"""Name -> options and what is done with them."""
