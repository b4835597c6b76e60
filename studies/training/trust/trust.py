"""Does trust in critics, measured on networks, tell where they are wrong, and what is gained by acting on it?"""

import csv
import dataclasses
import io
import sys

from fcritic.study.comparison import Better, Comparison
from fcritic.study.spec import Findings, Run, Section, Table, Trainings
from studies.training.ablated import Changes, with_fields
from studies.training.trust import judging
from studies.training.trust.gradients import gradients
from studies.training.trust.judging import ERRORS, PLAIN, SLOPES, label

TASKS = {"cartpole-swingup": 4, "Pendulum-v1": 2, "reacher-easy": 4, "walker-walk": 4, "cheetah-run": 4}
"""Frames for each decision."""
FRAMES = {"Pendulum-v1": 20_000}
OTHERS = 40_000
WITH_GRADIENTS = ("cartpole-swingup", "Pendulum-v1")

SMALL: Changes = {f"{part}_hidden": (32, 32) for part in ("actor", "state_action", "joint")} | {
    "members": 3,
    "state_action_code": 16,
    "batch_size": 128,
    "discount": 0.98,
    "encoder.kind": "behaviour",
    "encoder.probes": 16,
    "encoder.width": 32,
    "encoder.code": 16,
    "trust.measure": True,
    "trust.rows": 512,
    "trust.every": 50,
}
"""A fraction of the arithmetic of `fac-small`; features have 33 directions, a quarter of the rows of a batch."""

ONE: Changes = {"critic_steps": 1}
BEHAVIOUR: Changes = {"trust.behaviour": True}
REST: Changes = {"trust.rest_above": 1.2}
"""Data of the actor's own have 1."""
REGION: Changes = {"trust.region": 1.0}
FIVE: Changes = {"critic_steps": 5} | REST
"""Critics learn five times for an actor's update, or not at all."""
VARIANTS: dict[str, Changes] = {
    "2 to 1": {"critic_steps": 2},
    "1 to 1": ONE,
    "behaviour": ONE | BEHAVIOUR,
    "rests": ONE | REST,
    "region": ONE | REGION,
    "refresh at 2": FIVE | {"trust.refresh_above": 2.0},
    "refresh at 1.1": FIVE | {"trust.refresh_above": 1.1},
    "all": FIVE | {"trust.refresh_above": 1.1} | BEHAVIOUR | REGION,
}
"""What acts on trust does so at one critic update for each of an actor, but where critics rest."""


def _run(task: str, name: str) -> Run:
    frames = FRAMES.get(task, OTHERS)
    often = (("action_repeat", TASKS[task]), ("warmup", frames // 20), ("eval_every", frames // 10))
    options = (*with_fields(SMALL | VARIANTS[name]), *often, ("save_every", frames))
    return Run("fac-small", task, envs=2, seeds=8, steps=frames, label=f"trust, {name}", options=options)


def _tiny(name: str) -> Run:
    small = {f"{part}_hidden": (8,) for part in ("actor", "state_action", "joint")} | {"batch_size": 8}
    options = with_fields(SMALL | small | {"trust.rows": 40, "trust.states": 4} | VARIANTS[name])
    often = (("action_repeat", 20), ("warmup", 100), ("eval_every", 400))
    return Run("fac-small", "Pendulum-v1", 2, seeds=2, steps=1200, label=f"trust, {name}", options=options + often)


@dataclasses.dataclass(frozen=True)
class TrustStudy(Comparison):
    """A comparison of returns, and beside it what the metrics told: of errors, of gradients, of updates."""

    def find(self, runs: Trainings, quick: bool = False) -> Findings:
        """Returns as of any comparison, metrics by actor, gradients of two tasks, measured if they are not yet."""
        comparison = self.version(quick)
        found = super().find(runs, quick)
        actors = [row for run in comparison.runs for row in judging.of_actors(runs, run)]
        slopes = [
            {"method": label(run)} | row
            for run in comparison.runs
            if label(run) in PLAIN and run.task in WITH_GRADIENTS
            for row in gradients(runs.folder / run.name, _say)
        ]
        plain = [row for row in actors if row["method"] in PLAIN]
        plot = {
            "errors": judging.correlations(plain, ERRORS),
            "gradients": judging.correlations(slopes, SLOPES),
            "updates": judging.of_updates(actors),
        }
        found.verdicts.extend(
            [
                *judging.signs(OF_ERRORS, plot["errors"]),
                *judging.signs(OF_GRADIENTS, plot["gradients"]),
                *judging.of_stability(found.plot["panels"]),
                *judging.at_equal_updates(comparison.runs, actors, found.rows),
                *judging.of_ratio(plot["updates"], ("rests", "refresh at 2", "refresh at 1.1")),
            ]
        )
        found.plot.update(plot)
        files = {"trust-metrics.csv": actors, "trust-gradients.csv": slopes}
        found.files.update({name: _as_csv(rows) for name, rows in files.items() if rows})
        return found

    def sections(self, findings: Findings) -> list[Section]:
        """What the metrics told, before the sections of any comparison."""
        plot, shown = findings.plot, lambda values: "{:.2f} [{:.2f}, {:.2f}]".format(*values)
        table = lambda found, heads: Table(
            ["task", *heads], [[task, *(shown(each[name]) for name in heads)] for task, each in found.items()]
        )
        updates = [
            [task, method, *(f"{each[name]:.2f}" for name in ("ratio", "lowest", "highest"))]
            + [f"{each[name]:.0f}" for name in ("critic", "actor")]
            for task, methods in plot["updates"].items()
            for method, each in methods.items()
        ]
        heads = [
            "task",
            "method",
            "critic updates for each of an actor",
            "least seed",
            "most",
            "of critics",
            "of actors",
        ]
        text = "Rank correlations by seed: mean and 95 % interval over seeds."
        return [
            Section("Does C tell the critics' error?", [text, table(plot["errors"], ERRORS)]),
            Section("Does Delta tell the error of the gradient?", [text, table(plot["gradients"], SLOPES)]),
            Section("Updates", [Table(heads, updates)]),
            *super().sections(findings),
        ]


OF_ERRORS = {
    "over actors and time": "C rises with the error of critics, over actors and time",
    "among actors at one time": "C rises with the error of critics, among actors at one time",
}
OF_GRADIENTS = {
    "over actors and drift": "Delta rises with the error of the gradient, over actors and drift",
    "as critics rest, each actor by itself": "Delta of an actor and the error of its gradient rise as critics rest",
}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _as_csv(rows: judging.Rows) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    short = lambda value: float(f"{value:.4g}") if isinstance(value, float) else value
    writer.writerows({name: short(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _better(text: str, one: str, other: str) -> Better:
    return Better(text, f"trust, {one}", f"trust, {other}")


STUDY = TrustStudy(
    "trust",
    "Do C and Delta of networks tell where critics and their gradients are wrong, and what do agents gain that act "
    "on them: who acts, when actors and critics learn, how far actors step?",
    tuple(_run(task, name) for name in VARIANTS for task in TASKS),
    quick_runs=tuple(_tiny(name) for name in ("2 to 1", "1 to 1", "all")),
    reference="trust, 2 to 1",
    claims=(
        _better("two critic updates are better than one", "2 to 1", "1 to 1"),
        _better("at 1 to 1, acting for coverage helps", "behaviour", "1 to 1"),
        _better("at 1 to 1, actors that rest above a bound of coverage help", "rests", "1 to 1"),
        _better("at 1 to 1, a trust region of Delta helps", "region", "1 to 1"),
        _better("critics that rest until Delta has doubled are better than 2 to 1", "refresh at 2", "2 to 1"),
        _better(
            "critics that rest until Delta has grown by a tenth are better than 2 to 1", "refresh at 1.1", "2 to 1"
        ),
        _better("all together are better than 2 to 1", "all", "2 to 1"),
    ),
)
