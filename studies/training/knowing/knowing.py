"""What critics know of policies, and what it gives: behaviour and a cloud of policies, on small networks."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.errors import UsageError
from fcritic.logs.metrics import read_rows
from fcritic.runs.directory import RunDirectory
from fcritic.study.comparison import Better, Comparison
from fcritic.study.spec import Findings, Run, Section, Table, Trainings, Verdict, judged
from studies.training.ablated import Changes, with_fields
from studies.training.laptop.laptop import BASELINE

KNOWN = 0.8
"""Rank correlation on past actors and mixtures from which on critics count as knowing policies."""

_PAST: Changes = {"cloud.bank": 32, "cloud.every": 100}
_NEURONS: Changes = _PAST | {"encoder.kind": "transformer", "tau": 0.01}
_BEHAVIOUR: Changes = _PAST | {
    "encoder.kind": "behaviour",
    "encoder.width": 128,
    "encoder.probe_scale": 1.0,
    "tau": 0.01,
}
_CLOUD: Changes = _BEHAVIOUR | {"cloud.policies": 16, "cloud.rows": 16}


def _small(label: str, changes: Changes, recipe: str = "fac-small", task: str = "cartpole-swingup") -> Run:
    """To 40,000 frames, 4 of them per decision; of functional critics, 12 past actors are asked about each time."""
    asked = (("knowledge", 12),) if "cloud.bank" in changes else ()
    often = (("action_repeat", 4), ("warmup", 2000), ("eval_every", 10_000), *asked)
    return Run(recipe, task, 2, steps=40_000, label=f"knowing, {label}", options=with_fields(changes) + often)


RUNS = (
    _small("behaviour and cloud", _CLOUD),
    _small("neurons", _NEURONS),
    _small("sac+", BASELINE | {"tau": 0.01}, "sac+"),
    _small("soft actors", _PAST, "fsac-small"),
    _small("behaviour", _BEHAVIOUR),
    _small("neurons, slow target", _NEURONS | {"tau": 0.005}),
    _small("behaviour and cloud, first term", _CLOUD | {"second_term": 0.0}),
    _small("behaviour and cloud, three actor steps", _CLOUD | {"actor_steps": 3}),
)

_TINY: Changes = {f"{part}_hidden": (8,) for part in ("actor", "joint")} | {
    "members": 2,
    "batch_size": 8,
    "encoder.probes": 4,
    "encoder.code": 4,
    "encoder.width": 8,
    "cloud.bank": 4,
    "cloud.every": 10,
}


def _tiny(label: str, changes: Changes, recipe: str = "fac-small") -> Run:
    often = (("warmup", 40), ("eval_every", 100), ("knowledge", 3))
    options = with_fields(_TINY | changes) + often
    return Run(recipe, "probe-both", 1, seeds=2, steps=200, label=f"knowing, {label}", options=options)


QUICK = (
    _tiny("behaviour and cloud", {"encoder.kind": "behaviour", "cloud.policies": 3, "cloud.rows": 2}),
    _tiny("neurons", {"encoder.kind": "transformer"}),
    _tiny("soft actors", {"critics": 2}, "fsac-small"),
)


def knowledge(run: RunDirectory) -> list[dict[str, Any]]:
    """The rows of knowledge of a run; none where its critics were never asked."""
    return [row for row in read_rows(run.metrics) if row["kind"] == "knowledge"]


@dataclasses.dataclass(frozen=True)
class Knowing(Comparison):
    """A comparison of returns, and beside it what the critics of each method know at its end."""

    quick_runs: tuple[Run, ...] = ()
    judged_runs: tuple[str, ...] = ()
    """Methods of which it is claimed that their critics know policies."""

    def find(self, runs: Trainings, quick: bool = False) -> Findings:
        """Returns as of any comparison, and the last row of knowledge of every seed."""
        comparison = dataclasses.replace(self, runs=self.trainings(quick)) if quick else self
        found = super(Knowing, comparison).find(runs, quick)
        known = {run.name: _last_rows(runs.folder / run.name) for run in comparison.runs}
        found.plot["knowledge"] = {
            f"{run.panel}: {run.method}": _table(known[run.name]) for run in comparison.runs if known[run.name]
        }
        for run in comparison.runs:
            if run.method in self.judged_runs and (rows := known[run.name]):
                found.verdicts.append(_judged(run, rows))
        return found

    def sections(self, findings: Findings) -> list[Section]:
        """What the critics know, before the sections of any comparison."""
        heads = [
            "method",
            "frame",
            "rank, past actors",
            "rank, mixtures",
            "slope, past actors",
            "error, past actors",
        ]
        shown = lambda values: ", ".join(f"{value:.2f}" for value in values)
        names = ("rank_past", "rank_mixtures", "slope_past", "error_past")
        rows = [
            [method, f"{min(table['frame']):,}", *(shown(table[name]) for name in names)]
            for method, table in findings.plot["knowledge"].items()
        ]
        text = "By seed, at the last evaluation: critics' mean values of policies against their discounted returns."
        return [Section("What the critics know", [text, Table(heads, rows)]), *super().sections(findings)]


def _judged(run: Run, rows: list[dict[str, Any]]) -> Verdict:
    """Whether the critics of every seed know policies; open while a run is shorter than asked."""
    ranks = [_number(row.get(name)) for row in rows for name in ("rank_past", "rank_mixtures")]
    slopes = [_number(row.get("slope_past")) for row in rows]
    claim = (
        f"{run.method}: with every seed critics rank past actors and mixtures at {KNOWN} or above, with a slope of "
        "measured on predicted from 0.5 to 2"
    )
    verdict = judged(
        claim, all(each >= KNOWN for each in ranks) and all(0.5 <= each <= 2 for each in slopes), _table(rows)
    )
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
    names = ("rank_past", "rank_mixtures", "slope_past", "slope_mixtures", "error_past", "error_mixtures")
    return {"frame": [row["env_steps"] for row in rows]} | {
        name: [_number(row.get(name)) for row in rows] for name in names
    }


def _number(value: Any) -> float:
    """NaN where nothing could be said, as of critics that say the same of all."""
    return float(np.nan if value is None else value)


STUDY = Knowing(
    "knowing",
    "Do critics that learn on a cloud of policies, known by what they do, know policies, and is the agent better?",
    RUNS,
    quick_runs=QUICK,
    reference="knowing, neurons",
    claims=(
        Better("behaviour and a cloud cost no return", "knowing, behaviour and cloud", "knowing, neurons"),
        Better(
            "soft actors and a cloud are better than sac+ of their size", "knowing, soft actors", "knowing, sac+"
        ),
        Better(
            "soft actors learn faster than deterministic ones",
            "knowing, soft actors",
            "knowing, behaviour and cloud",
        ),
        Better("the agent is better than sac+ of its size", "knowing, behaviour and cloud", "knowing, sac+"),
        Better(
            "three actor updates in a row are better than one",
            "knowing, behaviour and cloud, three actor steps",
            "knowing, behaviour and cloud",
        ),
        Better(
            "with a cloud the second gradient term helps",
            "knowing, behaviour and cloud",
            "knowing, behaviour and cloud, first term",
        ),
    ),
    judged_runs=("knowing, behaviour and cloud", "knowing, soft actors"),
)
