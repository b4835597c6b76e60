"""`fcritic experiment list|run|status|report NAME`, and what `fcritic theory` and `fcritic explore` share."""

import dataclasses
import json
from pathlib import Path
import shlex
import sys
import tempfile
from typing import Annotated, Any, Literal

import tyro

from fcritic.cli.parsing import parse
from fcritic.errors import UsageError, did_you_mean, require_at_least
from fcritic.startup.backend import prepare

Name = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="NAME")]]


@dataclasses.dataclass(frozen=True)
class ListOptions:
    """Names and purposes of all studies, and what became of the paper's claims in their recorded results."""

    studies: str | None = None
    """Folder of studies; without it the one beside the package."""
    json: bool = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True)
class _OneStudy:
    name: Name
    """A study of the list, or a file of your own, FILE.py, with a STUDY, or FILE.py:NAME."""
    studies: str | None = None
    """Folder of studies; without it the one beside the package."""
    dir: str = "runs/experiments"
    """Folder of its trainings."""
    json: bool = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True)
class StatusOptions(_OneStudy):
    """How far each training of a study is."""

    only: tuple[str, ...] = ()
    """Only trainings with one of these words as method, as task or in their name."""


@dataclasses.dataclass(frozen=True)
class ReportOptions(_OneStudy):
    """Judges the trainings that are there and writes the report: Markdown, HTML, CSV, JSON, PNG and SVG."""

    out: str | None = None
    """Folder of the report; without it reports/NAME."""
    add: tuple[str, ...] = ()
    """CSV files of other reports or recorded results, for trainings that have no folder here."""
    record: bool = False
    """Write NAME.json, NAME.csv and NAME.png beside the study, where results are committed."""


@dataclasses.dataclass(frozen=True)
class RunOptions(ReportOptions):
    """Trains or computes a study, then reports; the same command continues what was stopped or killed."""

    only: tuple[str, ...] = ()
    """Only trainings with one of these words as method, as task or in their name."""
    quick: bool = False
    """Fewer seeds and shorter runs, the same claims; nothing of it is kept but the report."""
    budget: str | None = None
    """Stop trainings cleanly after this time: 25m, 1.5h, 90s."""
    yes: bool = False
    """Start even if the estimated time exceeds a day on this machine and no smaller budget is set."""
    on: Literal["here", "ray"] = "here"
    """One training after the other on this machine, or as tasks of a Ray cluster."""
    address: str | None = None
    """A Ray cluster that is running; without it one is started on this machine, on loopback."""
    cpus: float = 1.0
    """CPU cores that one training takes of a Ray node."""
    gpus: float = 0.0
    """GPUs, or a share of one, that one training takes of a Ray node."""


def experiment(args: list[str]) -> int:
    """Runs the subcommand; returns 1 if a training failed."""
    if not args or args[0] in ("-h", "--help"):
        lines = [f"  {name:<8} {(kind.__doc__ or '').strip()}" for name, (kind, _) in ACTIONS.items()]
        print("\n".join(["usage: fcritic experiment list|run|status|report [NAME|FILE.py] [OPTIONS]", "", *lines]))
        return 0
    if args[0] not in ACTIONS:
        hint = did_you_mean(args[0], ACTIONS) or f"; known are {', '.join(ACTIONS)}"
        raise UsageError(f"unknown action '{args[0]}'{hint}")
    prepare()
    kind, action = ACTIONS[args[0]]
    return action(parse(kind, args[1:], f"experiment {args[0]}"), f"fcritic experiment {shlex.join(args)}") or 0


def run_group(group: str, verb: str, text: str, args: list[str]) -> int:
    """`fcritic VERB NAME`, an alias of `experiment run` for the studies of a group; `all` computes each of them."""
    prepare()
    from fcritic.study.catalog import folder_of, load, studies

    if not args or args in (["--help"], ["-h"]):
        print("\n".join([f"usage: fcritic {verb} NAME [OPTIONS of fcritic experiment run]", "", text, ""]))
        print("\n".join([*_listing(folder_of(), group), f"  {'all':<20} every one of them that trains nothing"]))
        return 0
    options = parse(RunOptions, args, verb)
    names = list(studies(folder_of(options.studies), group)) if options.name == "all" else [options.name]
    found = [load(name, options.studies, group) for name in names]
    command, many = f"fcritic {verb} {shlex.join(args)}", options.name == "all"
    if many:
        found = [(study, file) for study, file in found if not study.runs]
    told = [_run_study(study, file, options, command) for study, file in found]
    if options.json:
        print(json.dumps([report for _, report in told] if many else told[0][1], indent=2))
    return max(code for code, _ in told)


def _list(options: ListOptions, _: str) -> None:
    from fcritic.study.catalog import folder_of, group_of, purpose, studies

    folder = folder_of(options.studies)
    if options.json:
        facts = [
            {"name": name, "group": group_of(file, folder), "purpose": purpose(file), "recorded": _recorded(file)}
            for name, file in studies(folder).items()
        ]
        print(json.dumps(facts, indent=2))
        return
    print("\n".join(_listing(folder)))


def _listing(folder: Path, group: str | None = None) -> list[str]:
    """A line for each study, and one below it for each claim of the paper that its recorded results have judged."""
    from fcritic.study.catalog import purpose, studies

    lines = []
    for name, file in studies(folder, group).items():
        lines.append(f"  {name:<20} {purpose(file)}")
        lines += [f"      {each['verdict']:<6} {each['statement']}" for each in _recorded(file)]
    return lines


def _recorded(file: Path) -> list[dict[str, str]]:
    """The verdicts on the paper's claims in the results beside a study."""
    from fcritic.disk import read_json

    try:
        claims = read_json(file.with_name(f"{file.stem.replace('_', '-')}.json"))["claims"]
    except (OSError, ValueError, KeyError):
        return []
    return [
        {"statement": claim["statement"], "verdict": claim["verdict"]}
        for claim in claims
        if claim.get("kind") == "paper"
    ]


def _status(options: StatusOptions, _: str) -> None:
    from fcritic.study.catalog import load

    study, _file = load(options.name, options.studies)
    print(_status_text(study, options, options.json))


def _status_text(study: Any, options: StatusOptions | RunOptions, as_json: bool) -> str:
    from fcritic.study.execute import progress

    found = progress(study.runs, Path(options.dir), options.only)
    if as_json:
        return json.dumps([each.to_json() for each in found], indent=2)
    if not found:
        return f"{study.name} trains nothing" if not study.runs else "no training fits --only"
    return "\n".join(f"{each.state:<9} {each.frame:>9,} of {each.run.steps:<9,} {each.run.name}" for each in found)


def _run(options: RunOptions, command: str) -> int:
    from fcritic.study.catalog import load

    study, file = load(options.name, options.studies)
    code, report = _run_study(study, file, options, command)
    if options.json:
        print(json.dumps(report, indent=2))
    return code


def _run_study(study: Any, file: Path, options: RunOptions, command: str) -> tuple[int, Any]:
    """Trains the unfinished runs of a study; then, if all are finished or it has none, reports."""
    _refuse(options, study, file)
    runs = study.trainings(options.quick)
    if not runs:
        if options.only or options.add:
            raise UsageError(f"{study.name} trains nothing; leave out --only and --add")
        return 0, _reported(study, file, options, Path(options.dir), command)
    if options.quick:
        with tempfile.TemporaryDirectory() as folder:
            failed = _train(study.name, runs, Path(folder), options)
            return (1, None) if failed else (0, _reported(study, file, options, Path(folder), command))
    failed = _train(study.name, runs, Path(options.dir), options)
    from fcritic.study.execute import progress

    if failed or any(each.state != "finished" for each in progress(runs, Path(options.dir))):
        if options.json:
            return int(bool(failed)), json.loads(_status_text(study, options, True))
        print(_status_text(study, options, False))
        print(f"next: fcritic experiment report {options.name}", file=sys.stderr)
        return int(bool(failed)), None
    return 0, _reported(study, file, options, Path(options.dir), command)


def _train(name: str, runs: Any, folder: Path, options: RunOptions) -> list[str]:
    """Trains here or on a cluster; returns the names of trainings that failed, with the reason."""
    from fcritic.study.execute import Budget, parse_budget, progress, require_agreed_runs, run_all

    budget = Budget(parse_budget(options.budget))
    todo = progress(runs, folder, options.only)
    if not todo:
        raise UsageError(
            f"no training of {name} fits --only {' '.join(options.only)}; see fcritic experiment status"
        )
    say = lambda line: print(line, file=sys.stderr, flush=True)
    if options.on == "ray":
        from fcritic.study import cluster

        require_at_least(0, cpus=options.cpus, gpus=options.gpus)
        return cluster.run_all(todo, budget, say, options.address, cluster.Needs(options.cpus, options.gpus))
    require_agreed_runs(todo, budget, options.yes)
    return run_all(todo, budget, say)


def _report(options: ReportOptions, command: str) -> None:
    from fcritic.study.catalog import load

    study, file = load(options.name, options.studies)
    if not study.runs:
        raise UsageError(
            f"{study.name} trains nothing; fcritic experiment run {options.name} computes and reports it"
        )
    _refuse(options, study, file)
    report = _reported(study, file, options, Path(options.dir), command)
    if options.json:
        print(json.dumps(report, indent=2))


def _refuse(options: ReportOptions, study: Any, file: Path) -> None:
    """Committed results change with --record alone, and only by a full study; a report only by its own study."""
    from fcritic.study.catalog import BESIDE
    from fcritic.study.report import require_own

    if options.record and (options.out or getattr(options, "quick", False)):
        raise UsageError("--record writes the full findings beside the study; leave out --quick and --out")
    out = Path(options.out or "reports").resolve()
    if not options.record and (out.is_relative_to(BESIDE) or (options.out and out == file.parent)):
        raise UsageError(
            f"{out} is a place of committed results, which only --record changes; choose another --out"
        )
    if not options.record:
        require_own(_place(options, study.name), study.name, file)


def _place(options: ReportOptions, name: str) -> Path:
    """The folder of a report."""
    return Path(options.out or f"reports/{name}")


def _reported(study: Any, file: Path, options: ReportOptions, folder: Path, command: str) -> dict[str, Any]:
    """Finds, writes and prints; returns the report without the data of its picture."""
    from fcritic.cli.progress import alive
    from fcritic.study.report import conduct, report_text
    from fcritic.study.spec import Trainings

    out = file.parent if options.record else _place(options, study.name)
    runs = Trainings(folder, tuple(Path(path) for path in options.add))
    with alive(f"{study.name}: computing and judging", quiet=options.json or bool(study.runs)):
        report = conduct(study, runs, getattr(options, "quick", False), command, out, options.record, file)
    if not options.json:
        print(report_text(report, out if options.record else out / f"{study.name}.html"), flush=True)
    shown = {name: report["data"][name] for name in study.shown if name in report["data"]}
    return {name: value for name, value in report.items() if name != "data"} | shown


ACTIONS = {
    "list": (ListOptions, _list),
    "run": (RunOptions, _run),
    "status": (StatusOptions, _status),
    "report": (ReportOptions, _report),
}
"""Name -> options and what is done with them."""
