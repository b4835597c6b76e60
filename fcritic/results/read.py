"""Runs as numbers: curves, summaries, reports. Reads metrics only, never agents."""

from collections.abc import Callable
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from fcritic.errors import UsageError, one_line
from fcritic.logs.metrics import ASKED, CORRECTED, FIRST_REWARD, KNOWLEDGE, SIGNS, each_row
from fcritic.runs.directory import RunDirectory

if TYPE_CHECKING:
    from fcritic.config import TrainConfig
    from fcritic.training.evaluate import Evaluation

ROLLOUT_EPISODES = 10
"""The rollout return is the mean over this many last episodes of training."""


@dataclasses.dataclass(frozen=True)
class Curves:
    """The curves of a run: (frames, values) of each seed."""

    name: str
    task: str
    mean_actor: dict[int, tuple[list[int], list[float]]]
    best_actor: dict[int, tuple[list[int], list[float]]]
    rollout: dict[int, tuple[list[int], list[float]]]

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Behaviour:
    """Measures of the agents of a run, seed by seed."""

    name: str
    task: str
    measures: dict[str, dict[int, tuple[list[int], list[float]]]]
    """(frames, values) per seed, by the name of the measure; one that an agent does not have is empty."""
    first_reward: dict[int, int | None]
    """The frame of each seed's first reward; None where it has seen none."""
    frames: int
    """The frame of the last row."""
    actors: dict[str, dict[str, tuple[list[int], list[float]]]] = dataclasses.field(default_factory=dict)
    """The same of each actor, for measures of `TRUST`, by seed and actor: "0, 2"."""

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return dataclasses.asdict(self)


MOST_SEEDS = 10_000
"""Seeds of a run; more cannot be trained in one."""

EPISODES = ("success", "length")
"""What rows of evaluations hold of the episodes beside their returns."""

TRUST = ("trust", "drift", "value_error")
"""Coverage C, Delta and the critics' error, which rows of behaviour hold of each actor, too."""

MEASURES = ("diversity", "disagreement", "coverage", "saturation", *TRUST)
"""What rows of behaviour hold of each seed."""

KNOWN = tuple(f"{sign}_{kind}{after}" for after in ("", CORRECTED) for sign in SIGNS for kind in ASKED)
"""What rows of knowledge hold of each seed."""


def curves(run: RunDirectory) -> Curves:
    """The curves of a run, from its metrics."""
    series = {"mean_actor": {}, "best_actor": {}, "rollout": {}}

    def take(row: dict) -> None:
        if row["kind"] == "evaluation":
            _append(series["mean_actor"], row, "mean_actor")
            _append(series["best_actor"], row, "best_actor")
        elif row["kind"] == "episode":
            _append(series["rollout"], row, "return")

    _for_each_row(run, take)
    return Curves(*_name_and_task(run), **series)


def behaviour(run: RunDirectory) -> Behaviour:
    """What the agents of a run did, from its metrics."""
    measures: dict[str, dict] = {name: {} for name in (*MEASURES, *KNOWN, *EPISODES)}
    actors: dict[str, dict] = {name: {} for name in TRUST}
    rewarded: dict[int, int | None] = {}
    frames = [0]

    def take_all(row: dict, names: tuple[str, ...]) -> None:
        for name in row.keys() & {*names}:
            _append(measures[name], row, name)

    def take(row: dict) -> None:
        seed, frame = _count(row["seed"]), _count(row["env_steps"])
        frames.append(frame)
        rewarded.setdefault(seed, None)
        if row["kind"] == FIRST_REWARD:
            rewarded[seed] = frame
        elif row["kind"] == KNOWLEDGE:
            take_all(row, KNOWN)
        elif row["kind"] == "behaviour":
            take_all(row, MEASURES)
            for name in TRUST:
                for actor, value in enumerate(row.get(f"{name}_by_actor", ())):
                    _add(actors[name].setdefault(f"{seed}, {actor}", ([], [])), row, value)
        elif row["kind"] == "evaluation":
            take_all(row, EPISODES)

    _for_each_row(run, take)
    return Behaviour(*_name_and_task(run), measures, rewarded, max(frames), actors)


def _for_each_row(run: RunDirectory, take: Callable[[dict], None]) -> None:
    if run.metrics.status() is None:
        raise UsageError(f"{run.path} has no metrics yet; train it first")
    seeds: set[int] = set()
    for number, (_, row) in enumerate(each_row(run.metrics), start=1):
        try:
            seeds.add(_count(row["seed"]))
            if len(seeds) > MOST_SEEDS:
                raise ValueError(f"more than {MOST_SEEDS} seeds")
            take(row)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"{run.metrics} line {number} was edited; repair or remove it") from error


def _name_and_task(run: RunDirectory) -> tuple[str, str]:
    recipe, task = _recipe_and_task(run)
    return f"{recipe} ({run.path.name})", task


def _recipe_and_task(run: RunDirectory) -> tuple[str, str]:
    config = run.config
    recipe, task = (one_line(str(config.get(name, "unknown")), 200) for name in ("recipe", "task"))
    return recipe, task


def _append(series: dict[int, tuple[list, list]], row: dict, name: str) -> None:
    _add(series.setdefault(_count(row["seed"]), ([], [])), row, row[name])


def _add(curve: tuple[list, list], row: dict, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    curve[0].append(_count(row["env_steps"]))
    curve[1].append(float(value))


def _count(value: Any) -> int:
    """The number of a seed or a frame."""
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError("not a number that counts anything")
    return value


def rollout_returns(run: RunDirectory) -> dict[int, float]:
    """The training return of each seed: the mean of its last episodes, exploration included."""
    return {seed: float(np.mean(values[-ROLLOUT_EPISODES:])) for seed, (_, values) in curves(run).rollout.items()}


def summary(run: RunDirectory) -> dict[str, Any]:
    """The outcome of a training, from its metrics: last evaluation and last rollouts of every seed."""
    found, rollouts = curves(run), rollout_returns(run)
    seeds = [
        {
            "seed": seed,
            "env_steps": frames[-1],
            "mean_actor": values[-1],
            "best_actor": found.best_actor[seed][1][-1],
            "rollout": rollouts.get(seed),
        }
        for seed, (frames, values) in found.mean_actor.items()
    ]
    return {"directory": str(run.path), "task": found.task, "recipe": _recipe_and_task(run)[0]} | _over(seeds)


def evaluation_report(
    run: RunDirectory, config: "TrainConfig", facts: dict[str, Any], evaluations: "list[Evaluation]"
) -> dict[str, Any]:
    """The outcome of `fcritic evaluate`: new episodes of every actor, beside the last rollouts of training."""
    rollouts = rollout_returns(run)
    seeds = [
        {"seed": seed} | evaluation.to_json() | {"rollout": rollouts.get(seed)}
        for seed, evaluation in zip(config.seed_numbers, evaluations, strict=True)
    ]
    for seed, frame in zip(seeds, facts.get("best", {}).get("frame", ()), strict=False):
        seed["best_frame"] = frame
    head = {"task": config.task, "recipe": config.recipe, "env_steps": facts["env_steps"]}
    return head | {"episodes_per_actor": evaluations[0].returns.shape[1]} | _over(seeds)


def _over(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, then the seeds themselves."""
    means = {}
    for name in ("mean_actor", "best_actor", "rollout"):
        values = [seed[name] for seed in seeds if seed[name] is not None]
        means[name] = float(np.mean(values)) if values else None
    for name in EPISODES:
        values = [seed[name] for seed in seeds if name in seed]
        means |= {name: float(np.mean(values))} if values else {}
    return means | {"seeds": seeds}


def summary_text(outcome: dict[str, Any]) -> str:
    """A summary or an evaluation for a person."""
    number = lambda value: "-" if value is None else f"{value:.1f}"
    head = f"{outcome['recipe']} on {outcome['task']}"
    line = " · ".join(
        [
            f"mean actor {number(outcome['mean_actor'])}",
            f"best actor {number(outcome['best_actor'])}",
            f"rollout {number(outcome['rollout'])}",
            *([f"success {outcome['success']:.0%}"] if "success" in outcome else []),
            *([f"length {number(outcome['length'])}"] if "length" in outcome else []),
        ]
    )
    seeds = [
        f"  seed {seed['seed']}: mean actor {number(seed['mean_actor'])}, best actor {number(seed['best_actor'])}, "
        f"rollout {number(seed['rollout'])}"
        for seed in outcome["seeds"]
    ]
    return "\n".join([f"{head}: {line}", *(seeds if len(seeds) > 1 else [])])


def evaluation_text(outcome: dict[str, Any]) -> str:
    """An evaluation for a person, with every actor."""
    actors = [f"  seed {seed['seed']} {_by_number(seed)}" for seed in outcome["seeds"]]
    notes = [
        f"at frame {outcome['env_steps']:,}, {outcome['episodes_per_actor']} episodes per actor",
        f"mean actor: over all actors; best actor: the highest of them, picked on these same episodes; "
        f"rollout: the last {ROLLOUT_EPISODES} training episodes; length: actions in an episode",
    ]
    return "\n".join([summary_text(outcome), *actors, *notes])


def _by_number(seed: dict[str, Any]) -> str:
    """The mean of every actor, and which number the highest has."""
    values, last = ", ".join(f"{value:.0f}" for value in seed["actors"]), len(seed["actors"]) - 1
    numbers, highest = f"actors 0 to {last}", f" (highest: actor {seed['best_actor_index']})"
    return f"{numbers if last else 'actor 0'}{_of_frame(seed)}: {values}{highest if last else ''}"


def _of_frame(seed: dict[str, Any]) -> str:
    return f" of frame {seed['best_frame']:,}, its best" if "best_frame" in seed else ""
