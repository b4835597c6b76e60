"""Does trust in critics, measured on networks, tell where they are wrong, and what is gained by acting on it?"""

from collections.abc import Callable, Iterable
import csv
import dataclasses
import io
import sys
from typing import Any

import numpy as np

from fcritic.logs.metrics import read_rows
from fcritic.results import statistics
from fcritic.runs.directory import RunDirectory
from fcritic.study.comparison import Better, Comparison
from fcritic.study.spec import Findings, Run, Section, Table, Trainings, Verdict, judged
from fcritic.training.knowledge import rank_correlation
from studies.training.ablated import Changes, with_fields
from studies.training.trust.gradients import gradients

TASKS = {"cartpole-swingup": 4, "reacher-easy": 4, "walker-walk": 4, "cheetah-run": 4, "Pendulum-v1": 2}
"""Frames for each decision."""
FRAMES = {"Pendulum-v1": 10_000}
OTHERS = 20_000
WITH_GRADIENTS = ("cartpole-swingup", "Pendulum-v1")

SMALL: Changes = {f"{part}_hidden": (32, 32) for part in ("actor", "state_action", "joint")} | {
    "members": 3,
    "state_action_code": 16,
    "batch_size": 64,
    "discount": 0.98,
    "encoder.kind": "behaviour",
    "encoder.probes": 16,
    "encoder.width": 32,
    "encoder.code": 16,
    "trust.measure": True,
    "trust.rows": 512,
    "trust.every": 10,
}
"""A quarter of the arithmetic of `fac-small`."""

BEHAVIOUR: Changes = {"trust.behaviour": True}
REST: Changes = {"trust.rest_above": 1.5}
"""Data of the actor's own have 1."""
REFRESH: Changes = REST | {"trust.refresh_above": 2.0, "critic_steps": 5}
"""Critics learn five times for an actor's update, or not at all."""
REGION: Changes = {"trust.region": 1.0}
ONE: Changes = {"critic_steps": 1}
VARIANTS: dict[str, Changes] = {
    "2 to 1": {"critic_steps": 2},
    "1 to 1": ONE,
    "behaviour": ONE | BEHAVIOUR,
    "rests": ONE | REST,
    "region": ONE | REGION,
    "refresh": REFRESH,
    "all": REFRESH | BEHAVIOUR | REGION,
}
"""What acts on trust does so at one critic update for each of an actor, but for `refresh` and `all`."""
PLAIN = ("2 to 1", "1 to 1")


def _run(task: str, label: str, changes: Changes) -> Run:
    frames = FRAMES.get(task, OTHERS)
    often = (("action_repeat", TASKS[task]), ("warmup", frames // 10), ("eval_every", frames // 10))
    options = (*with_fields(SMALL | changes), *often, ("save_every", frames))
    return Run("fac-small", task, envs=2, seeds=8, steps=frames, label=f"trust, {label}", options=options)


def _tiny(label: str, changes: Changes) -> Run:
    small = {f"{part}_hidden": (8,) for part in ("actor", "state_action", "joint")} | {"batch_size": 8}
    options = with_fields(SMALL | small | {"trust.rows": 40, "trust.states": 4} | changes)
    often = (("action_repeat", 20), ("warmup", 100), ("eval_every", 400))
    return Run("fac-small", "Pendulum-v1", 2, seeds=2, steps=1200, label=f"trust, {label}", options=options + often)


def _correlated(rows: Iterable[dict[str, Any]], one: str, other: str, within: str = "") -> statistics.Interval:
    """The rank correlation of two columns by seed, mean and interval; `within`: of rows alike in this alone."""
    by_seed: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        by_seed.setdefault((row["task"], row.get("method"), row["seed"]), []).append(row)
    found = []
    for seed in by_seed.values():
        a, b = (np.array([float(row[name]) for row in seed]) for name in (one, other))
        fine = np.isfinite(a) & np.isfinite(b)
        places = np.array([row[within] if within else 0 for row in seed])
        parts = [
            rank_correlation(a[at], b[at])
            for place in np.unique(places)
            if (at := fine & (places == place)).sum() > 2
        ]
        if known := [each for each in parts if each is not None]:
            found.append(float(np.mean(known)))
    if len(found) < 2:
        return statistics.Interval(*[float("nan")] * 3)
    return statistics.interval(np.array(found)[:, None], statistics.mean)


def _told(interval: statistics.Interval) -> list[float]:
    return [interval.value, interval.low, interval.high]


def _sign(claim: str, interval: statistics.Interval, figures: dict[str, Any]) -> Verdict:
    """Decided where the interval of a correlation lies on one side of zero."""
    if not interval.low > 0 and not interval.high < 0:
        return Verdict(claim, "open", figures)
    return judged(claim, interval.low > 0, figures)


@dataclasses.dataclass(frozen=True)
class TrustStudy(Comparison):
    """A comparison of returns, and beside it what the metrics told: of errors, of gradients, of updates."""

    quick_runs: tuple[Run, ...] = ()

    def find(self, runs: Trainings, quick: bool = False) -> Findings:
        """Returns as of any comparison, metrics by actor, gradients of two tasks, measured if they are not yet."""
        comparison = dataclasses.replace(self, runs=self.trainings(quick), quick_runs=()) if quick else self
        found = super(TrustStudy, comparison).find(runs, quick)
        metrics = [row for run in comparison.runs for row in _metrics(runs, run)]
        say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)
        slopes = [
            {"method": _label(run)} | row
            for run in comparison.runs
            if _label(run) in PLAIN and run.task in WITH_GRADIENTS
            for row in gradients(runs.folder / run.name, say)
        ]
        updates = _updates(comparison.runs, metrics)
        found.plot["updates"] = updates
        found.verdicts.extend(_of_errors(metrics))
        found.verdicts.extend(_of_gradients(slopes))
        found.verdicts.extend(_of_stability(found.plot["panels"]))
        found.verdicts.extend(_at_equal_updates(comparison.runs, metrics, found.rows))
        found.verdicts.extend(_of_ratio(updates))
        found.plot["errors"] = _table_of_errors(metrics)
        found.plot["gradients"] = _table_of_gradients(slopes)
        found.files.update(
            {
                name: _as_csv(rows)
                for name, rows in (("trust-metrics.csv", metrics), ("trust-gradients.csv", slopes))
                if rows
            }
        )
        return found

    def sections(self, findings: Findings) -> list[Section]:
        """What the metrics told, before the sections of any comparison."""
        plot, shown = findings.plot, lambda values: f"{values[0]:.2f} [{values[1]:.2f}, {values[2]:.2f}]"
        errors = [[task, *map(shown, each)] for task, each in plot["errors"].items()]
        slopes = [[task, *map(shown, each)] for task, each in plot["gradients"].items()]
        updates = [
            [
                task,
                label,
                *(f"{each[name]:.2f}" for name in ("ratio", "low", "high")),
                f"{each['critic']:.0f}",
                f"{each['actor']:.0f}",
            ]
            for task, methods in plot["updates"].items()
            for label, each in methods.items()
        ]
        text = "Rank correlations by seed: mean and 95 % interval over seeds."
        return [
            Section("Does C tell the critics' error?", [text, Table(["task", *ERRORS], errors)]),
            Section("Does Delta tell the error of the gradient?", [text, Table(["task", *SLOPES], slopes)]),
            Section(
                "Updates",
                [
                    Table(
                        [
                            "task",
                            "method",
                            "critic updates per actor update",
                            "low",
                            "high",
                            "of critics",
                            "of actors",
                        ],
                        updates,
                    )
                ],
            ),
            *super().sections(findings),
        ]


ERRORS: dict[str, tuple[str, str, str]] = {
    "over actors and time": ("trust", "value_error", ""),
    "of the error over the measured value": ("trust", "relative_error", ""),
    "among actors at one time": ("trust", "value_error", "frames"),
    "of time alone": ("frames", "value_error", ""),
}
SLOPES: dict[str, tuple[str, str, str]] = {
    "Delta, over actors and drift": ("delta", "error", ""),
    "growth, of the error over the slope": ("growth", "relative_error", ""),
    "growth, of the error, each actor by itself": ("growth", "error", "actor"),
    "updates since critics learned, each actor": ("after", "error", "actor"),
}
"""What is correlated with what, and whether within the same place only."""


def _label(run: Run) -> str:
    return run.label.removeprefix("trust, ")


def _metrics(runs: Trainings, run: Run) -> list[dict[str, Any]]:
    """A row for each actor and evaluation of a run: C, Delta, the critic's error, updates."""
    directory = RunDirectory(runs.folder / run.name)
    if directory.metrics.status() is None:
        return []
    rows = []
    for row in read_rows(directory.metrics):
        if row["kind"] != "behaviour" or "value_error_by_actor" not in row:
            continue
        ratio = [row.get(name, "") for name in ("critic_updates", "actor_updates")]
        for actor, trust in enumerate(row["trust_by_actor"]):
            each = {
                name: float(row[f"{name}_by_actor"][actor])
                for name in ("drift", "value_error", "value_measured", "outside")
            }
            told = {
                "task": run.task,
                "method": _label(run),
                "seed": row["seed"],
                "frames": row["env_steps"],
                "actor": actor,
            }
            size = abs(each["value_measured"]) + 0.1
            told |= {"trust": float(trust), **each, "relative_error": each["value_error"] / size}
            rows.append(told | dict(zip(("critic_updates", "actor_updates"), ratio, strict=True)))
    return rows


def _by_task(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["task"], []).append(row)
    return found


def _table_of_errors(metrics: list[dict[str, Any]]) -> dict[str, list[list[float]]]:
    plain = [row for row in metrics if row["method"] in PLAIN]
    return {
        task: [_told(_correlated(rows, *which)) for which in ERRORS.values()]
        for task, rows in _by_task(plain).items()
    }


def _table_of_gradients(slopes: list[dict[str, Any]]) -> dict[str, list[list[float]]]:
    rows = [row | {"relative_error": float(row["error"]) / (float(row["measured"]) + 1e-9)} for row in slopes]
    return {
        task: [_told(_correlated(each, *which)) for which in SLOPES.values()]
        for task, each in _by_task(rows).items()
    }


def _of_errors(metrics: list[dict[str, Any]]) -> list[Verdict]:
    verdicts = []
    for task, each in _table_of_errors(metrics).items():
        figures = dict(zip(ERRORS, each, strict=True))
        interval = statistics.Interval(*each[0])
        verdicts.append(
            _sign(f"C rises with the error of critics, over actors and time, {task}", interval, figures)
        )
    return verdicts


def _of_gradients(slopes: list[dict[str, Any]]) -> list[Verdict]:
    verdicts = []
    for task, each in _table_of_gradients(slopes).items():
        figures = dict(zip(SLOPES, each, strict=True))
        claim = f"Delta rises with the error of the gradient, over actors and drift, {task}"
        verdicts.append(_sign(claim, statistics.Interval(*each[0]), figures))
    return verdicts


FALLEN = 0.5
"""A seed has collapsed that ends below this share of what it has gained at its best."""


def _of_stability(panels: list[dict[str, Any]]) -> list[Verdict]:
    """Seeds that collapse, by method: has none of those that act on trust more than the plain ones at 1 to 1?"""
    shares: dict[str, list[int]] = {}
    for panel in panels:
        for method in panel["methods"]:
            curves = np.asarray(method["curve"]["seeds"])
            gained = curves - curves[:, :1]
            end, best = gained[:, -2:].mean(axis=1), gained.max(axis=1)
            counts = shares.setdefault(method["method"].removeprefix("trust, "), [0, 0])
            counts[0] += int((end < FALLEN * best).sum())
            counts[1] += len(curves)
    if "1 to 1" not in shares:
        return []
    figures = {label: f"{fallen} of {count}" for label, (fallen, count) in shares.items()}
    share = lambda label: shares[label][0] / max(shares[label][1], 1)
    rest = [label for label in shares if label not in PLAIN]
    verdicts = (
        [judged("At 1 to 1 more seeds collapse than at 2 to 1", share("1 to 1") > share("2 to 1"), figures)]
        if "2 to 1" in shares
        else []
    )
    return verdicts + [
        judged(f"With {label} fewer seeds collapse than at 1 to 1 without", share(label) < share("1 to 1"), figures)
        for label in rest
    ]


def _updates(runs: tuple[Run, ...], metrics: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Critic updates for each of an actor at the end, by task and method."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for run in runs:
        rows = [row for row in metrics if (row["task"], row["method"]) == (run.task, _label(run))]
        last = {row["seed"]: row for row in rows if row["critic_updates"] != ""}
        if not last:
            continue
        critic, actor = (
            np.array([float(row[name]) for row in last.values()]) for name in ("critic_updates", "actor_updates")
        )
        ratio = critic / np.maximum(actor, 1)
        interval = (
            statistics.interval(ratio[:, None], statistics.mean)
            if len(ratio) > 1
            else statistics.Interval(*[ratio[0]] * 3)
        )
        told = {"ratio": interval.value, "low": interval.low, "high": interval.high}
        found.setdefault(run.task, {})[_label(run)] = told | {
            "critic": float(critic.mean()),
            "actor": float(actor.mean()),
        }
    return found


def _of_ratio(updates: dict[str, dict[str, dict[str, float]]]) -> list[Verdict]:
    chosen = {task: methods["refresh"]["ratio"] for task, methods in updates.items() if "refresh" in methods}
    if not chosen:
        return []
    claim = (
        "With critics that rest below a growth of 2 and actors above their bound the ratio is 2 to 3 on each task"
    )
    return [judged(claim, all(2 <= ratio <= 3 for ratio in chosen.values()), chosen)]


def _at_equal_updates(
    runs: tuple[Run, ...], metrics: list[dict[str, Any]], scores: list[dict[str, Any]]
) -> list[Verdict]:
    """The score of each method beside 2 to 1 when both have made as many updates, of critics and of actors."""
    verdicts = []
    curves: dict[tuple[str, str, int], dict[int, float]] = {}
    for row in scores:
        curves.setdefault((row["task"], str(row["method"]).removeprefix("trust, "), row["seed"]), {})[
            row["frames"]
        ] = row["mean_actor"]
    spent: dict[tuple[str, str, int], dict[int, float]] = {}
    for row in metrics:
        if row["critic_updates"] != "":
            total = float(row["critic_updates"]) + float(row["actor_updates"])
            spent.setdefault((row["task"], row["method"], int(row["seed"])), {})[row["frames"]] = total
    for run in runs:
        label, rival = (
            _label(run),
            next((each for each in runs if each.task == run.task and _label(each) == "2 to 1"), None),
        )
        if label in PLAIN or rival is None:
            continue
        config = rival.config()
        learned = lambda frame, config=config: (
            3 * max(0, frame / config.frames_per_iteration - config.warmup_iterations)
        )
        ours, theirs = [], []
        for (task, method, seed), used in spent.items():
            other, mine = curves.get((task, "2 to 1", seed)), curves.get((task, method, seed))
            if (task, method) != (run.task, label) or not other or not mine:
                continue
            frames = sorted(other)
            most = min(used[max(used)], learned(frames[-1]))
            at = sorted(set(used) & set(mine))
            ours.append(float(np.interp(most, [used[frame] for frame in at], [mine[frame] for frame in at])))
            theirs.append(
                float(np.interp(most, [learned(frame) for frame in frames], [other[frame] for frame in frames]))
            )
        if len(ours) < 2:
            continue
        better = statistics.compared(np.array(ours), np.array(theirs))
        figures = {
            label: float(np.mean(ours)),
            "2 to 1": float(np.mean(theirs)),
            "P(a seed is better)": list(better.better),
            "p": better.p,
        }
        outcome = "holds" if better.better.low > 0.5 else "fails" if better.better.high < 0.5 else "open"
        verdicts.append(Verdict(f"{label} is better than 2 to 1 at equal updates, {run.task}", outcome, figures))
    return verdicts


def _as_csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    short = lambda value: float(f"{value:.5g}") if isinstance(value, float) else value
    writer.writerows({name: short(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _better(text: str, one: str, other: str) -> Better:
    return Better(text, f"trust, {one}", f"trust, {other}")


STUDY = TrustStudy(
    "trust",
    "Do C and Delta of networks tell where critics and their gradients are wrong, and what do agents gain that act "
    "on them: who acts, when actors and critics learn, how far actors step?",
    tuple(_run(task, label, changes) for task in TASKS for label, changes in VARIANTS.items()),
    quick_runs=tuple(_tiny(label, VARIANTS[label]) for label in ("2 to 1", "1 to 1", "all")),
    reference="trust, 2 to 1",
    claims=(
        _better("two critic updates are better than one", "2 to 1", "1 to 1"),
        *(
            _better(f"{what} at 1 to 1", label, "1 to 1")
            for label, what in (
                ("behaviour", "acting for coverage helps"),
                ("rests", "actors that rest above a bound of coverage help"),
                ("region", "a trust region of Delta helps"),
            )
        ),
        _better("refreshing critics when Delta has grown is better than 2 to 1", "refresh", "2 to 1"),
        _better("all together are better than 2 to 1", "all", "2 to 1"),
    ),
)
