"""`fcritic rank --data D... --policies P...`: which policy is best, judged from logged data alone."""

import dataclasses
import json
import math
from pathlib import Path
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from fcritic.agents.evaluator import EvaluatorConfig
from fcritic.cli.parsing import parse
from fcritic.cli.progress import Progress
from fcritic.disk import destination
from fcritic.errors import UsageError, one_line, require_at_least, writing
from fcritic.startup.backend import prepare
from fcritic.training.console import duration

if TYPE_CHECKING:
    from fcritic.offline.candidates import Candidate
    from fcritic.offline.interface import Interface
    from fcritic.offline.recording import Stage

prepare()

WIDE = 160
"""Columns of a table that no terminal shows."""

Several = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...")]


@dataclasses.dataclass(frozen=True)
class RankOptions:
    """Ranks policies by what they are worth on a task, from logged data alone: none of them is run."""

    data: Several = ()
    """Runs (their replay), folders of fcritic log, HDF5 or NPZ files in the layout of D4RL, datasets of Minari
    (folder or id); several are taken together."""
    policies: Several = ()
    """Runs or exported agents (every actor of every kept checkpoint; run@frame#actor is one of them), ONNX files,
    module:function or file.py:function, which map a batch of observations to a batch of actions."""
    use: Annotated[str | None, tyro.conf.arg(name="with", metavar="DIR")] = None
    """A fitted evaluator written by --save, instead of --data; it values new policies without another fit."""
    save: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder to write the fitted evaluator to; it must not exist."""
    check: int = 0
    """Number of policies, from the first on, to run on the task, to compare measured with predicted values."""
    check_episodes: int = 20
    """Episodes of each of them."""
    task: str | None = None
    """The environment, where the data do not name it; for the bounds of actions and for --check."""
    action_low: tuple[float, ...] | None = None
    """Lowest actions in files that do not say so (one number, or one for each dimension); without it -1."""
    action_high: tuple[float, ...] | None = None
    """Highest actions there; without it 1."""
    stochastic: bool = False
    """Draw the actions of policies that are distributions (sac); without it their mode, as in an evaluation."""
    seed: int = 0
    """Seed of initial weights and batches."""
    out: str | None = None
    """HTML page to write."""
    json: bool = False
    """Print JSON."""
    config: Annotated[EvaluatorConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=EvaluatorConfig)


def rank(args: list[str]) -> None:
    """`fcritic rank`: read, fit or load, rank, tell."""
    options = parse(RankOptions, args, "rank", RankOptions())
    _require_sound(options)

    from fcritic.api.export import require_free
    from fcritic.api.trust import trust_task
    from fcritic.cli.replay import require_writable
    from fcritic.offline.evaluation import Evaluator
    from fcritic.offline.gathering import read_policies
    from fcritic.offline.reading import read_logs

    page = destination(options.out, None) if options.out else None
    if page is not None:
        require_writable(page, (".html", ".htm"))
    if options.save:
        require_free(options.save)
    if options.task is not None:
        trust_task(options.task)
    begun = time.monotonic()
    if options.use:
        evaluator = Evaluator.load(options.use)
        candidates = read_policies(options.policies, evaluator.interface, options.stochastic)
        stage = _stage(options, evaluator.interface)
    else:
        dataset = read_logs(options.data, options.task, _bounds(options))
        candidates = read_policies(options.policies, dataset, options.stochastic)
        stage = _stage(options, dataset.interface())  # before the long part, so that it is known to be possible
        told = Progress(f"fitting {len(candidates)} policies to {len(dataset):,} transitions", options.json)
        evaluator = Evaluator.fit(dataset, candidates, options.config, seed=options.seed, progress=told)
    fitted = time.monotonic()
    ranking = evaluator.rank(candidates, Progress(f"judging {len(candidates)} policies", options.json))
    ranked = time.monotonic()
    if options.save:
        evaluator.save(options.save)
    seconds = {"fit": fitted - begun, "rank": ranked - fitted}
    report = report_of(evaluator, ranking, candidates) | {
        "seconds": seconds,
        "evaluator": options.save or options.use,
    }
    if stage is not None:
        _check(report, candidates, stage, options)
    if page is not None:
        from fcritic.view.ranking import page as drawn

        with writing("the page", page.path):
            page.replace(drawn(report).encode())
    if options.json:
        print(json.dumps(_finite(report), indent=2))
    else:
        _show(report, options)


def _require_sound(options: RankOptions) -> None:
    if not options.policies:
        raise UsageError("--policies is missing; name runs, .onnx files, module:function or file.py:function")
    if not options.data and not options.use:
        raise UsageError("--data is missing; name runs, folders of fcritic log, HDF5 or NPZ files, or --with DIR")
    if options.data and options.use:
        raise UsageError("--with brings its own data; leave out --data")
    if options.use and options.config != EvaluatorConfig():
        raise UsageError("--with is fitted already; leave out options of the method, or give --data instead")
    require_at_least(0, check=options.check, seed=options.seed)
    require_at_least(1, check_episodes=options.check_episodes)
    if (options.action_low is None) != (options.action_high is None):
        raise UsageError("--action-low and --action-high belong together; give both")


def _bounds(options: RankOptions) -> Any:
    if options.action_low is None or options.action_high is None:
        return None
    return tuple(each[0] if len(each) == 1 else each for each in (options.action_low, options.action_high))


# The report


def report_of(evaluator: Any, ranking: Any, candidates: "list[Candidate]") -> dict[str, Any]:
    """Returns all that there is to tell: those ranked, the best first, and those that the data cannot judge."""
    config, seen = evaluator.config, evaluator.interface
    by_name = {candidate.name: candidate for candidate in candidates}
    rows = []
    for row in ranking.rows:
        candidate = by_name[row.name]
        several = len(row.estimate.heads) > 1  # one critic alone knows nothing of its error
        rows.append(
            {
                "rank": None,
                "name": one_line(row.name, 300),
                "kind": candidate.kind,
                "stochastic": candidate.stochastic,
                "value": float(row.estimate.mean),
                "low": float(row.estimate.low) if several else None,
                "high": float(row.estimate.high) if several else None,
                "chance_best": float(row.chance_best) if several and row.trust.mark else None,
                "trusted": bool(row.trust.mark),
                "coverage": float(row.trust.coverage),
                "far": float(row.trust.signs.far),
                "concentrability": float(row.trust.signs.concentrability),
                "spread": float(row.trust.spread),
                "reason": row.trust.reason,
                "measured": None,
            }
        )
    rows.sort(key=lambda row: -row["value"])
    ranked = [row | {"rank": place} for place, row in enumerate((row for row in rows if row["trusted"]), start=1)]
    return {
        "policies": len(rows),
        "method": config.method,
        "discount": config.discount,
        "unit": unit_of(config.discount, seen),
        "task": seen.task,
        "data": evaluator.data,
        "data_text": _data_text(evaluator.data),
        "method_text": _method_text(config, evaluator.updates),
        "check_text": "",
        "ranked": ranked,
        "untrusted": [row for row in rows if not row["trusted"]],
    }


def unit_of(discount: float, seen: "Interface") -> str:
    """What a value is, in one sentence."""
    held = f" (each held for {seen.action_repeat} frames)" if (seen.action_repeat or 1) > 1 else ""
    return (
        f"A value is the expected sum of your rewards from the start of an episode, discounted by {discount:g} per "
        f"action{held}; a time limit does not end it."
    )


def _data_text(data: dict[str, Any]) -> str:
    named = ", ".join(one_line(name, 200) for name in data["sources"][:5])
    more = f" and {len(data['sources']) - 5} more" if len(data["sources"]) > 5 else ""
    task = f" of {one_line(data['task'], 200)}" if data["task"] else ""
    return (
        f"Data: {data['transitions']:,} transitions{task} in {data['episodes']:,} episodes or parts of them, from "
        f"{named}{more}."
    )


def _method_text(config: EvaluatorConfig, updates: int) -> str:
    if config.method == "fqe":
        how = "fitted Q evaluation, one critic for each policy"
    elif config.method == "blind":
        how = f"{config.members} critics that do not see the policy but for its actions (a control)"
    else:
        how = f"{config.members} functional critics Q(policy, state, action), each for all policies"
    return f"Method: {how}, {updates:,} updates."


# The check


def _stage(options: RankOptions, seen: "Interface") -> "Stage | None":
    """The environment in which policies are to be checked, or None where they are not."""
    if not options.check:
        return None
    from fcritic.api.trust import require_trusted
    from fcritic.offline.recording import Stage

    task = options.task or seen.task
    if task is None:
        raise UsageError("--check needs the environment, which these data do not name; give --task")
    if options.task is None:
        require_trusted(task, Path(options.use or options.data[0]))
    stage = Stage(task, seen.action_repeat or 1, options.check_episodes, options.seed)
    if (stage.spec.obs_dim, stage.spec.act_dim) != (seen.obs_dim, seen.act_dim):
        raise UsageError(
            f"{task} has {stage.spec.obs_dim} observations and {stage.spec.act_dim} actions, the data have "
            f"{seen.obs_dim} and {seen.act_dim}; choose another --task"
        )
    return stage


def _check(report: dict[str, Any], candidates: "list[Candidate]", stage: "Stage", options: RankOptions) -> None:
    """Runs the first few and puts what they reach beside what was predicted."""
    by_name = {candidate.name: candidate for candidate in candidates}
    rows = [*report["ranked"], *report["untrusted"]][: options.check]
    told = Progress(f"running {len(rows)} policies", options.json)
    for place, row in enumerate(rows):
        pieces = list(stage.play(by_name[row["name"]].act, "check", episodes=options.check_episodes))
        values = [piece.value(report["discount"]) for piece in pieces]
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
        row["measured"] = {"value": mean, "error": math.sqrt(variance / len(values)), "episodes": len(values)}
        told((place + 1) / len(rows))
    stage.close()
    inside = ""
    if all(row["low"] is not None for row in rows):
        within = sum(row["low"] <= row["measured"]["value"] <= row["high"] for row in rows)
        inside = f" {within} of the measured values lie in their interval."
    report["check_text"] = (
        f"Check: {options.check_episodes} episodes of each of the first {len(rows)}.{inside} What lies beyond a "
        "time limit is taken to go on as the second half of the episode did."
    )


# Telling


def _show(report: dict[str, Any], options: RankOptions) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from fcritic.view.ranking import interval, number, share

    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
    rows = [*report["untrusted"], *report["ranked"]]
    measured = any(row["measured"] for row in rows)

    def table(title: str, rows: list[dict[str, Any]], trusted: bool) -> Table:
        found = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        longest = max(len(row["name"]) for row in rows)
        found.add_column("", justify="right", no_wrap=True)
        found.add_column("policy", overflow="fold", min_width=min(longest, 36))
        for name in ("value", "90 % interval"):
            found.add_column(name, justify="right", no_wrap=True)
        if trusted:
            found.add_column("best", justify="right", no_wrap=True)
        if measured:
            found.add_column("measured", justify="right", no_wrap=True)
        found.add_column("coverage", justify="right", no_wrap=True)
        found.add_column("trusted" if trusted else "why", overflow="fold")
        for row in rows:
            cells = [str(row["rank"] or ""), row["name"], number(row["value"])]
            cells += [interval(row)]
            cells += [share(row["chance_best"])] if trusted else []
            if measured:
                of_row = row["measured"]
                cells.append(f"{number(of_row['value'])} ± {number(of_row['error'])}" if of_row else "")
            cells += [number(row["coverage"]), row["reason"]]
            found.add_row(*(Text(one_line(cell, 300)) for cell in cells))
        return found

    tables = [("The data cannot judge these", report["untrusted"], False), ("Ranking", report["ranked"], True)]
    for title, of_kind, trusted in tables:
        if of_kind:
            with console.capture() as drawn:
                console.print(table(title, of_kind, trusted))
            print("\n".join(line.rstrip() for line in drawn.get().splitlines()), end="\n\n")
    lines = [report["unit"], report["data_text"]]
    if options.use is None:
        lines.append(f"{report['method_text']} Fitted in {duration(report['seconds']['fit'])}.")
    lines += [report["check_text"]] if report["check_text"] else []
    lines += [
        f"wrote {options.save}; rank new policies with: fcritic rank --with {options.save} --policies ..."
    ] * bool(options.save)
    lines += [f"wrote {options.out}; open it in a browser"] * bool(options.out)
    for line in lines:
        print(line)


def _finite(value: Any) -> Any:
    """JSON has no infinity: null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list) else value
