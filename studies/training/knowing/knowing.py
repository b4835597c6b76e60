"""What critics know of policies, and what it gives: behaviour and a cloud of policies, on small networks."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.errors import UsageError
from fcritic.logs.metrics import CORRECTED, read_rows
from fcritic.runs.directory import RunDirectory
from fcritic.study.across import AcrossTasks
from fcritic.study.comparison import Better, draw_panel
from fcritic.study.spec import Findings, Run, Section, Table, Trainings, Verdict, judged
from studies.training.ablated import Changes, with_fields
from studies.training.laptop.laptop import BASELINE

KNOWN, NEAR = 0.8, 0.7
"""Rank correlation on past actors and mixtures, and on a slice, from which on critics count as knowing policies."""
KINDS = ("past", "mixtures", "slice", "others")
SIGNS = tuple(f"rank_{kind}{after}" for after in ("", CORRECTED) for kind in KINDS) + tuple(
    f"{sign}_past{after}" for sign in ("slope", "error") for after in ("", CORRECTED)
)
"""What the tables have of a seed's last row of knowledge."""

HARD = ("cartpole-swingup", "walker-walk", "cheetah-run")
"""The tasks of the ablations."""
REST = ("reacher-hard", "pendulum-swingup", "hopper-hop")

_RIVAL: Changes = BASELINE | {"tau": 0.01}
_WIDE: Changes = {"actor_hidden": (256, 256)}
_PAST: Changes = {"cloud.bank": 32, "cloud.every": 100}
_CLOUD: Changes = _PAST | {
    "encoder.kind": "behaviour",
    "encoder.width": 128,
    "encoder.probe_scale": 1.0,
    "tau": 0.01,
    "cloud.policies": 16,
    "cloud.rows": 16,
}
_ALONE: Changes = {"cloud.policies": 0}
_CONTROL: Changes = _ALONE | {"cloud.bank": 0}

SOFT, PLUS = "soft actors", "sac+"
BOTH, NO_CLOUD, ONE_VALUE = "soft actors, both terms", "soft actors, no cloud", "soft actors, one value"
_BOTH: Changes = {"second_term": 1.0}
METHODS: dict[str, tuple[str, Changes]] = {
    SOFT: ("fsac-small", {}),
    PLUS: ("sac+", _RIVAL),
    BOTH: ("fsac-small", _BOTH),
    "fac-small": ("fac-small", _PAST),
    "behaviour and cloud": ("fac-small", _CLOUD),
    "td3+": ("td3+", _RIVAL),
    "sac": ("sac", {name: value for name, value in _RIVAL.items() if name != "critics"}),
    # Does the policy in the input do it, or the population, or a learned vector for each actor?
    NO_CLOUD: ("fsac-small", _ALONE),
    "soft actors, names": ("fsac-small", _CONTROL | {"names": True}),
    ONE_VALUE: ("fsac-small", _CONTROL | {"functional": False}),
    "soft actors, both terms, no cloud": ("fsac-small", _ALONE | _BOTH),
    # As much care on both sides.
    "soft actors, both terms, tau .005": ("fsac-small", _BOTH | {"tau": 0.005}),
    "soft actors, both terms, tau .02": ("fsac-small", _BOTH | {"tau": 0.02}),
    "soft actors, tau .005": ("fsac-small", {"tau": 0.005}),
    "soft actors, tau .02": ("fsac-small", {"tau": 0.02}),
    "sac+, tau .005": ("sac+", BASELINE | {"tau": 0.005}),
    "sac+, tau .02": ("sac+", BASELINE | {"tau": 0.02}),
    "soft actors, G = 1": ("fsac-small", {"critic_steps": 1}),
    "soft actors, G = 4": ("fsac-small", {"critic_steps": 4}),
    "sac+, G = 1": ("sac+", _RIVAL | {"critic_steps": 1}),
    "sac+, G = 4": ("sac+", _RIVAL | {"critic_steps": 4}),
    "soft actors, three actor steps": ("fsac-small", {"actor_steps": 3}),
    "soft actors, optimist": ("fsac-small", {"explore.choose": "optimist"}),
    "soft actors, replaced": ("fsac-small", {"cloud.replace_every": 500}),
    "soft actors, 256 wide": ("fsac-small", _WIDE | {"joint_hidden": (256, 256)}),
    "sac+, 256 wide": ("sac+", _RIVAL | _WIDE | {"critic_hidden": (256, 256)}),
}
"""Recipe and changes of each method; the first seven train on all tasks."""
MAIN = tuple(METHODS)[:7]
ASKED = (SOFT, BOTH, "fac-small", "behaviour and cloud", NO_CLOUD)
"""Methods whose critics are asked what they know; the policies in question play more frames than the training."""


def _small(method: str, task: str) -> Run:
    """To 60,000 frames, 4 of them per decision; critics that are asked are asked about 12 policies of each kind."""
    recipe, changes = METHODS[method]
    often = (("action_repeat", 4), ("warmup", 4000), ("replay", 15_000), ("eval_every", 30_000))
    if "fac" not in recipe and "fsac" not in recipe:
        often += (("eval_episodes", 4),)  # as many as four actors have together
    elif method in ASKED:
        often += (("knowledge", 12),)
    options = with_fields(changes | {"precision": "float32"}) + often  # on a GPU, too, the same for all
    return Run(recipe, task, 2, seeds=10, steps=60_000, label=f"knowing, {method}", options=options)


_ORDER = (
    ((SOFT, PLUS), HARD),
    ((NO_CLOUD, "soft actors, names", ONE_VALUE), HARD),
    ((SOFT, PLUS), REST),
    ((BOTH, "soft actors, both terms, no cloud"), HARD),
    ((BOTH,), REST),
    (("behaviour and cloud", "fac-small"), HARD + REST),
    (("td3+", "sac"), HARD + REST),
    (("soft actors, tau .005", "soft actors, tau .02", "sac+, tau .005", "sac+, tau .02"), HARD),
    (("soft actors, both terms, tau .005", "soft actors, both terms, tau .02"), HARD),
    (("soft actors, 256 wide", "sac+, 256 wide"), HARD),
    (("soft actors, three actor steps", "soft actors, optimist", "soft actors, replaced"), HARD),
    (("soft actors, G = 1", "sac+, G = 1", "soft actors, G = 4", "sac+, G = 4"), HARD),
)
"""The most telling first; wherever this stops, methods that are held against each other have the same tasks."""

RUNS = tuple(_small(method, task) for methods, tasks in _ORDER for task in tasks for method in methods)

_TINY: Changes = {f"{part}_hidden": (8,) for part in ("actor", "joint")} | {
    "members": 2,
    "batch_size": 8,
    "encoder.probes": 4,
    "encoder.code": 4,
    "encoder.width": 8,
    "cloud.bank": 4,
    "cloud.every": 10,
}


def _tiny(method: str, changes: Changes, recipe: str = "fac-small") -> Run:
    often: tuple[tuple[str, Any], ...] = (("warmup", 40), ("eval_every", 100))
    if changes.get("cloud.bank"):
        often += (("knowledge", 3),)
    options = with_fields(changes) + often
    return Run(recipe, "probe-both", 1, seeds=2, steps=200, label=f"knowing, {method}", options=options)


_TINY_RIVAL: Changes = {
    "actor_hidden": (8,),
    "critic_hidden": (8,),
    "batch_size": 8,
    "critics": 2,
    "critic_steps": 2,
}

QUICK = (
    _tiny(SOFT, _TINY | {"members": 3, "critics": 2}, "fsac-small"),
    _tiny(PLUS, _TINY_RIVAL, "sac+"),
    _tiny("soft actors, names", _TINY | _CONTROL | {"critics": 2, "names": True}, "fsac-small"),
    _tiny("soft actors, one value", _TINY | _CONTROL | {"critics": 2, "functional": False}, "fsac-small"),
    _tiny("behaviour and cloud", _TINY | {"encoder.kind": "behaviour", "cloud.policies": 3, "cloud.rows": 2}),
    _tiny("fac-small", _TINY),
)


def knowledge(run: RunDirectory) -> list[dict[str, Any]]:
    """The rows of knowledge of a run; none where its critics were never asked."""
    return [row for row in read_rows(run.metrics) if row["kind"] == "knowledge"]


@dataclasses.dataclass(frozen=True)
class Knowing(AcrossTasks):
    """A comparison of returns over tasks, and beside it what the critics of each method know at its end."""

    judged_runs: tuple[str, ...] = ()
    """Methods of which it is claimed that their critics know policies."""

    def find(self, runs: Trainings, quick: bool = False) -> Findings:
        """Returns as of any comparison, and the last row of knowledge of every seed."""
        comparison = self.version(quick)
        found = super().find(runs, quick)
        known = {run.name: _last_rows(runs.folder / run.name) for run in comparison.runs}
        found.plot["knowledge"] = {
            f"{run.panel}: {run.method}": _table(known[run.name]) for run in comparison.runs if known[run.name]
        }
        for run in comparison.runs:
            if run.method in self.judged_runs and (rows := known[run.name]):
                found.verdicts.append(_judged(run, rows))
        return found

    def draw(self, findings: Findings, path: Path) -> None:
        """A panel per task with the methods that train on all; then claims over tasks, and what critics know."""
        from fcritic.results.plots import panels

        main = [f"knowing, {method}" for method in MAIN]
        drawn = []
        for panel in findings.plot["panels"]:
            methods = [each for each in panel["methods"] if each["method"] in main]
            ordered = [each | {"place": main.index(each["method"])} for each in methods]
            drawn += [panel | {"methods": ordered}] if methods else []
        rows = -(-(len(drawn) + 2) // 2)
        with panels(path, 2, width=6.5, rows=rows) as axes:
            for place, panel in zip(axes, drawn, strict=False):
                draw_panel(place, panel)
            _draw_across(axes[len(drawn)], findings.plot["across"])
            _draw_known(axes[len(drawn) + 1], findings.plot["knowledge"])
            for place in axes[len(drawn) + 2 :]:
                place.set_visible(False)

    def sections(self, findings: Findings) -> list[Section]:
        """What the critics know, before the sections of any comparison."""
        shown = lambda values: (
            "-" if np.isnan(values).all() else f"{np.nanmedian(values):.2f} ({np.nanmin(values):.2f})"
        )
        rows = [
            [method, f"{min(table['frame']):,}", *(shown(table[name]) for name in SIGNS)]
            for method, table in findings.plot["knowledge"].items()
        ]
        text = (
            "Critics' mean values of policies against their discounted returns, as critics say them and corrected "
            "by the replay, at the last evaluation: the median over seeds, and the least of them."
        )
        heads = ["method", "frame", *(name.replace("_", ", ") for name in SIGNS)]
        return [Section("What the critics know", [text, Table(heads, rows)]), *super().sections(findings)]


def _draw_across(place: Any, rows: list[dict[str, Any]]) -> None:
    """The difference of interquartile means of each pair, with its interval."""
    for height, row in enumerate(reversed(rows)):
        gap = row["difference"]
        place.plot([gap["low"], gap["high"]], [height, height], color="C0", linewidth=2)
        place.plot(gap["value"], height, "o", color="C0")
    short = lambda name: name.removeprefix("knowing, ")
    labels = [f"{short(row['method'])} - {short(row['beside'])} ({len(row['tasks'])})" for row in reversed(rows)]
    place.set_yticks(range(len(rows)), labels, fontsize=7)
    place.axvline(0.0, color="0.45", linewidth=0.8)
    place.set_title("difference of interquartile means (tasks)")


def _draw_known(place: Any, tables: dict[str, dict[str, list[float]]]) -> None:
    """Rank correlations of corrected values, of every seed and task, by method and kind of policies."""
    methods = list(dict.fromkeys(name.split(": ", 1)[1] for name in tables))
    for number, kind in enumerate(KINDS):
        for height, method in enumerate(methods):
            values = [
                value
                for name, table in tables.items()
                if name.endswith(f": {method}")
                for value in table[f"rank_{kind}{CORRECTED}"]
            ]
            heights = np.full(len(values), -height + 0.3 - 0.2 * number)
            place.plot(values, heights, ".", color=f"C{number}", label=kind if height == 0 else None)
    place.set_yticks([-height for height in range(len(methods))], [m.removeprefix("knowing, ") for m in methods])
    place.tick_params("y", labelsize=7)
    place.axvline(KNOWN, color="0.45", linewidth=0.8)
    place.set_title("rank correlation, corrected")
    if methods:
        place.legend(frameon=False, fontsize=8)


def _judged(run: Run, rows: list[dict[str, Any]]) -> Verdict:
    """Whether the corrected critics of every seed know policies; open while a run is shorter than asked."""
    number = lambda row, name: _number(row.get(name + CORRECTED))
    known = all(number(row, f"rank_{kind}") >= KNOWN for row in rows for kind in ("past", "mixtures"))
    near = all(number(row, "rank_slice") >= NEAR for row in rows)
    calibrated = all(0.5 <= number(row, "slope_past") <= 2 for row in rows)
    claim = (
        f"{run.method}: with every seed corrected critics rank past actors and mixtures at {KNOWN} or above, "
        f"a slice through three actors at {NEAR} or above, with a slope of measured on predicted from 0.5 to 2, "
        f"{run.task}"
    )
    verdict = judged(claim, known and near and calibrated, _table(rows))
    finished = all(row["env_steps"] >= run.steps for row in rows)
    return verdict if finished else dataclasses.replace(verdict, outcome="open")


def _last_rows(folder: Path) -> list[dict[str, Any]]:
    """The last row of knowledge of every seed of a run."""
    try:
        rows = knowledge(RunDirectory.open_existing(folder))
    except UsageError:  # not run
        return []
    return list({row["seed"]: row for row in rows}.values())


def _table(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    return {"frame": [row["env_steps"] for row in rows]} | {
        name: [_number(row.get(name)) for row in rows] for name in SIGNS
    }


def _number(value: Any) -> float:
    """NaN where nothing could be said, as of critics that say the same of all."""
    return float(np.nan if value is None else value)


def _claim(text: str, better: str, worse: str) -> Better:
    return Better(text, f"knowing, {better}", f"knowing, {worse}")


STUDY = Knowing(
    "knowing",
    "Do critics that learn on a cloud of policies, known by what they do, know policies, and is the agent better?",
    RUNS,
    quick_runs=QUICK,
    reference="knowing, sac+",
    across=(
        _claim("soft actors with functional critics are better than sac+ of their size", SOFT, PLUS),
        _claim("with both terms they are", BOTH, PLUS),
        _claim("the population alone, with one value for all actors, is better than sac+", ONE_VALUE, PLUS),
        _claim("critics that see the policy are better than one value for all actors", NO_CLOUD, ONE_VALUE),
        _claim(
            "a code that says what an actor does is better than one that names it", NO_CLOUD, "soft actors, names"
        ),
        _claim("soft actors with a cloud are better than with one value", SOFT, ONE_VALUE),
        _claim("the cloud helps, without the second term", SOFT, NO_CLOUD),
        _claim("the cloud helps, with the second term", BOTH, "soft actors, both terms, no cloud"),
        _claim("with a cloud the second gradient term helps", BOTH, SOFT),
        _claim("without a cloud the second gradient term helps", "soft actors, both terms, no cloud", NO_CLOUD),
        _claim("the deterministic agent with a cloud is better than sac+ of its size", "behaviour and cloud", PLUS),
        _claim("behaviour and a cloud make fac-small better", "behaviour and cloud", "fac-small"),
        _claim("soft actors with both terms are better than fac-small", BOTH, "fac-small"),
        _claim("soft actors are better than fac-small", SOFT, "fac-small"),
        _claim("soft actors are better than td3+ of their size", SOFT, "td3+"),
        _claim("soft actors are better than sac of their size", SOFT, "sac"),
        _claim("a slower target, tau .005, helps soft actors", "soft actors, tau .005", SOFT),
        _claim("a faster target, tau .02, helps soft actors", "soft actors, tau .02", SOFT),
        _claim("a slower target, tau .005, helps sac+", "sac+, tau .005", PLUS),
        _claim("a faster target, tau .02, helps sac+", "sac+, tau .02", PLUS),
        _claim("with both terms a slower target, tau .005, helps", "soft actors, both terms, tau .005", BOTH),
        _claim("with both terms a faster target, tau .02, helps", "soft actors, both terms, tau .02", BOTH),
        _claim("with tau .005 soft actors are better than sac+", "soft actors, tau .005", "sac+, tau .005"),
        _claim("with tau .02 soft actors are better than sac+", "soft actors, tau .02", "sac+, tau .02"),
        _claim("with G = 1 soft actors are better than sac+", "soft actors, G = 1", "sac+, G = 1"),
        _claim("with G = 4 soft actors are better than sac+", "soft actors, G = 4", "sac+, G = 4"),
        _claim("three actor updates in a row are better than one", "soft actors, three actor steps", SOFT),
        _claim("who is chosen by value and doubt learns faster than who is drawn", "soft actors, optimist", SOFT),
        _claim("replacing the worst actor by the best past one helps", "soft actors, replaced", SOFT),
        _claim("256 wide soft actors are better than sac+", "soft actors, 256 wide", "sac+, 256 wide"),
    ),
    judged_runs=tuple(f"knowing, {method}" for method in (SOFT, BOTH, "behaviour and cloud")),
)
