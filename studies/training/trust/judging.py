"""What the runs of the study `trust` tell: rows of errors beside metrics, and the verdicts that they come to."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from fcritic.logs.metrics import read_rows
from fcritic.results import statistics
from fcritic.runs.directory import RunDirectory
from fcritic.study.spec import Run, Trainings, Verdict, judged
from fcritic.training.knowledge import rank_correlation

Rows = list[dict[str, Any]]

PLAIN = ("2 to 1", "1 to 1")
"""Methods that measure C and Delta and do not act on them."""
FALLEN = 0.5
"""A seed has collapsed that ends below this share of what it has gained at its best."""


def label(run: Run) -> str:
    """The method of a run without the study's name."""
    return run.label.removeprefix("trust, ")


# C and the error of critics, Delta and the error of gradients


def of_actors(runs: Trainings, run: Run) -> Rows:
    """A row for each actor and evaluation after the warm-up: C, Delta, the critic's error, updates so far."""
    directory = RunDirectory(runs.folder / run.name)
    if directory.metrics.status() is None:
        return []
    found, warmup = [], run.config().warmup
    for row in read_rows(directory.metrics):
        if "value_error_by_actor" not in row or row["env_steps"] <= warmup:
            continue
        for actor, trust in enumerate(row["trust_by_actor"]):
            each = {name: row[f"{name}_by_actor"][actor] for name in ("drift", "value_error", "value_measured")}
            place = {"task": run.task, "method": label(run), "seed": row["seed"], "frames": row["env_steps"]}
            updates = {name: row.get(name, "") for name in ("critic_updates", "actor_updates")}
            relative = each["value_error"] / (abs(each["value_measured"]) + 0.1)
            found.append(place | {"actor": actor, "trust": trust, **each, "relative_error": relative, **updates})
    return found


ERRORS = {
    "over actors and time": ("trust", "value_error", ""),
    "of the error over the measured value": ("trust", "relative_error", ""),
    "among actors at one time": ("trust", "value_error", "frames"),
    "of time with the error": ("frames", "value_error", ""),
}
SLOPES = {
    "over actors and drift": ("delta", "error", ""),
    "of growth with the error over the slope": ("growth", "relative_error", ""),
    "among actors at one drift": ("delta", "error", "after"),
    "as critics rest, each actor by itself": ("growth", "error", "actor"),
    "of updates since critics learned with the error, each actor": ("after", "error", "actor"),
}
"""What is correlated with what, and whether among rows alone that are alike in something."""


def correlations(rows: Rows, pairs: dict[str, tuple[str, str, str]]) -> dict[str, dict[str, list[float]]]:
    """Rank correlations by task: mean over seeds, with its interval."""
    return {
        task: {name: list(_correlated(each, *pair)) for name, pair in pairs.items()}
        for task, each in _grouped(rows, "task").items()
    }


def signs(claims: dict[str, str], found: dict[str, dict[str, list[float]]]) -> list[Verdict]:
    """A verdict for each task and claim about a correlation: decided where its interval is on one side of zero."""
    verdicts = []
    for task, each in found.items():
        for name, claim in claims.items():
            _, low, high = each[name]
            told = f"{claim}, {task}"
            decided = low > 0 or high < 0
            verdicts.append(judged(told, low > 0, each) if decided else Verdict(told, "open", each))
    return verdicts


def _correlated(rows: Rows, one: str, other: str, within: str) -> statistics.Interval:
    found = []
    for seed in _grouped(_finite(rows, one, other), "method", "seed").values():
        parts = _grouped(seed, within).values() if within else [seed]
        known = [rank_correlation(*_columns(part, one, other)) for part in parts if len(part) > 2]
        if numbers := [each for each in known if each is not None]:
            found.append(float(np.mean(numbers)))
    if len(found) < 2:
        return statistics.Interval(*[float("nan")] * 3)
    return statistics.interval(np.array(found)[:, None], statistics.mean)


def _columns(rows: Rows, *names: str) -> Iterable[np.ndarray]:
    return (np.array([float(row[name]) for row in rows]) for name in names)


def _finite(rows: Rows, *names: str) -> Rows:
    return [row for row in rows if all(np.isfinite(float(row[name])) for name in names)]


def _grouped(rows: Rows, name: str, *others: str) -> dict[Any, Rows]:
    """Rows by what they have in one column, or by tuples of what they have in several."""
    found: defaultdict[Any, Rows] = defaultdict(list)
    for row in rows:
        found[(row[name], *(row[each] for each in others)) if others else row[name]].append(row)
    return dict(found)


# What is gained


def of_stability(panels: list[dict[str, Any]]) -> list[Verdict]:
    """Seeds that collapse, by method: has any that acts on trust fewer than 1 to 1 without?

    Only methods that have run on as many tasks as 1 to 1.
    """
    fallen: dict[str, list[bool]] = {}
    for method in (each for panel in panels for each in panel["methods"]):
        curves = np.asarray(method["curve"]["seeds"])
        gained = curves - curves[:, :1]
        collapsed = gained[:, -2:].mean(axis=1) < FALLEN * gained.max(axis=1)
        fallen.setdefault(method["method"].removeprefix("trust, "), []).extend(collapsed.tolist())
    if "1 to 1" not in fallen:
        return []
    fallen = {name: each for name, each in fallen.items() if len(each) == len(fallen["1 to 1"])}
    figures = {name: f"{sum(each)} of {len(each)}" for name, each in fallen.items()}
    share = {name: sum(each) / len(each) for name, each in fallen.items()}
    verdicts = []
    if "2 to 1" in share:
        verdicts = [
            judged("At 1 to 1 more seeds collapse than at 2 to 1", share["1 to 1"] > share["2 to 1"], figures)
        ]
    return verdicts + [
        judged(f"With {name} fewer seeds collapse than at 1 to 1 without", each < share["1 to 1"], figures)
        for name, each in share.items()
        if name not in PLAIN
    ]


def of_updates(rows: Rows) -> dict[str, dict[str, dict[str, float]]]:
    """Updates at the end and critic updates for each of an actor, by task and method; where they are counted."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    counted = [row for row in rows if row["critic_updates"] != ""]
    for (task, method), each in _grouped(counted, "task", "method").items():
        critic, actor = _columns(
            list({row["seed"]: row for row in each}.values()), "critic_updates", "actor_updates"
        )
        ratio = critic / np.maximum(actor, 1)
        told = {"ratio": ratio.mean(), "lowest": ratio.min(), "highest": ratio.max()}
        told |= {"critic": critic.mean(), "actor": actor.mean()}
        found.setdefault(task, {})[method] = {name: float(value) for name, value in told.items()}
    return found


def of_ratio(updates: dict[str, dict[str, dict[str, float]]], methods: Iterable[str]) -> list[Verdict]:
    """Whether the ratio that a method comes to is the paper's 2 to 3."""
    verdicts = []
    for method in methods:
        chosen = {task: each[method]["ratio"] for task, each in updates.items() if method in each}
        if chosen:
            inside = all(2 <= ratio <= 3 for ratio in chosen.values())
            verdicts.append(judged(f"With {method} the ratio comes to be 2 to 3 on each task", inside, chosen))
    return verdicts


def at_equal_updates(runs: tuple[Run, ...], rows: Rows, scores: Rows) -> list[Verdict]:
    """The return of each method beside that of 2 to 1 when both had made as many updates of critics and actors."""
    reached = {
        (task, method.removeprefix("trust, "), seed): {row["frames"]: row["mean_actor"] for row in each}
        for (task, method, seed), each in _grouped(scores, "task", "method", "seed").items()
    }
    counted = [row for row in rows if row["critic_updates"] != ""]
    spent = {
        place: {row["frames"]: float(row["critic_updates"]) + float(row["actor_updates"]) for row in each}
        for place, each in _grouped(counted, "task", "method", "seed").items()
    }
    rivals = {run.task: run.config() for run in runs if label(run) == "2 to 1"}
    beside: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for (task, method, seed), mine in spent.items():
        score, other = reached.get((task, method, seed)), reached.get((task, "2 to 1", seed))
        if score and other:
            frames, config = sorted(other), rivals[task]
            theirs = [3 * max(0, each / config.frames_per_iteration - config.warmup_iterations) for each in frames]
            at = sorted(set(mine) & set(score))
            most = min(mine[at[-1]], theirs[-1])
            ours = np.interp(most, [mine[each] for each in at], [score[each] for each in at])
            beside[task, method].append(
                (float(ours), float(np.interp(most, theirs, [other[each] for each in frames])))
            )
    verdicts = []
    for (task, method), pairs in beside.items():
        if len(pairs) < 2:
            continue
        ours, theirs = np.array(pairs).T
        chance, p = statistics.compared(ours, theirs)
        figures = {method: ours.mean(), "2 to 1": theirs.mean(), "P(a seed is better)": list(chance), "p": p}
        outcome = "holds" if chance.low > 0.5 else "fails" if chance.high < 0.5 else "open"
        verdicts.append(Verdict(f"{method} is better than 2 to 1 at equal updates, {task}", outcome, figures))
    return verdicts
