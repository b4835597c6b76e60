"""Who finds a sparse reward in continuous control: deep agents with and without priors, masks and commitment."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.results import read as results
from fcritic.results.plots import panels
from fcritic.runs.directory import RunDirectory
from fcritic.study.comparison import read_rows
from fcritic.study.spec import Findings, Run, Study, Trainings, Verdict, judged
from studies.exploration.judging import gap

SEEDS, QUICK_SEEDS = 4, 2
REPORTED = ("diversity", "disagreement", "coverage")
"""Measures of behaviour that go into sparse.csv."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a task is run. All numbers were fixed before the first run."""

    frames: int
    discount: float
    prior: float
    """Scale of priors, of the order of the task's values."""
    found: float
    """A reward above this is what is looked for."""
    solved: float
    """A seed has learned the task when its mean actor's return is above this."""
    action_repeat: int = 1
    envs: int = 4
    """For each seed."""
    normalize: bool = True
    evaluation_episodes: int = 2


TASKS: dict[str, Setting] = {
    "trap": Setting(800, 0.9, 1.0, 0.5, 0.5, normalize=False),
    "riverswim-6": Setting(3_000, 0.95, 3.0, 0.5, 1.7, normalize=False, evaluation_episodes=10),
    "deepsea-10": Setting(5_000, 0.99, 1.0, 0.5, 0.5, normalize=False, evaluation_episodes=5),
    "MountainCarContinuous-v0": Setting(16_000, 0.99, 30.0, 50.0, 0.0, action_repeat=4),
}
"""Minutes each on two cores."""
LARGE_TASKS: dict[str, Setting] = {
    "cartpole-swingup_sparse": Setting(240_000, 0.99, 30.0, 0.5, 100.0, action_repeat=4, envs=8),
    "pendulum-swingup": Setting(240_000, 0.99, 30.0, 0.5, 100.0, action_repeat=4, envs=8),
    "acrobot-swingup_sparse": Setting(320_000, 0.99, 30.0, 0.5, 20.0, action_repeat=4, envs=8),
    "hopper-hop": Setting(320_000, 0.99, 30.0, 0.5, 20.0, action_repeat=4, envs=8),
}
"""7,500 or 10,000 iterations each, for a GPU."""
SETTINGS = TASKS | LARGE_TASKS

_LIGHT: dict[str, Any] = {
    "batch_size": 64,
    "actor_hidden": (32, 32),
    "state_action_hidden": (64,),
    "joint_hidden": (64,),
    "encoder.probes": 16,
    "encoder.width": 16,
    "encoder.code": 16,
}
_BASELINE: dict[str, Any] = {
    "batch_size": 64,
    "actor_hidden": (64, 64),
    "critic_hidden": (64, 64),
    "learning_rate": 1e-3,
}
"""Small agents that learn at the rate of `fac-small`."""

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "functional": ("fac-small", {}),
    "functional, prior": ("fac-small", {"prior": True}),
    "functional, prior, per step": ("fac-small", {"prior": True, "explore.per_step": True}),
    "plain": ("fac-small", {"functional": False}),
    "plain, prior": ("fac-small", {"functional": False, "prior": True}),
    "sac": ("sac", {}),
    "td3": ("td3", {}),
    "sac+": ("sac+", {}),
}
"""By name: the recipe and what is changed in it; `prior` stands for the scale that fits the task."""
RECORDED = ("functional, prior, masks",)
"""Methods of an option that is retired (`fcritic.config.RETIRED`); their recorded trainings still count."""
SHOWN = (*METHODS, *RECORDED)
"""All methods, in the order of tables and pictures."""
QUICK_FRAMES = {"riverswim-6": 800}
QUICK_METHODS = ("functional", "functional, prior", "sac")


def training(task: str, method: str, frames: int, seeds: int) -> Run:
    """A few environments per seed, whose first actions are already the agent's own: no uniform warm-up."""
    setting, (recipe, changes) = SETTINGS[task], METHODS[method]
    agent = (_LIGHT if recipe == "fac-small" else _BASELINE) | {"discount": setting.discount} | changes
    if agent.pop("prior", False):
        agent["prior_scale"] = setting.prior
    options = {f"agent.{name}": value for name, value in agent.items()} | {
        "action_repeat": setting.action_repeat,
        "warmup": min(200, frames // 4) * setting.action_repeat,
        "warmup_actions": "policy",
        "replay": max(1, min(frames // (setting.envs * setting.action_repeat), 100_000)),
        "normalize": setting.normalize,
        "eval_every": max(1, frames // 4),
        "eval_episodes": setting.evaluation_episodes,
        "first_reward_above": setting.found,
        "save_every": frames,
        "log_every": max(1, frames // 4),
    }
    return Run(recipe, task, setting.envs, seeds, frames, label=method, options=tuple(options.items()))


@dataclasses.dataclass(frozen=True)
class Found:
    """What one method did on one task; an entry per seed."""

    first_reward: np.ndarray
    """Frames; infinite where no reward was found."""
    mean_actor: np.ndarray
    """Return of the last evaluation."""
    measures: dict[str, np.ndarray]
    """Behaviour at the last evaluation; NaN where an agent does not have it."""


Table = dict[tuple[str, str], Found]
"""By task and method."""


def found_in(run: Run, folder: Path) -> Found | None:
    """What this very training has found, if it is at its end."""
    config, directory = run.config(), RunDirectory(folder / run.name)
    if directory.newest_frame() < config.iterations * config.frames_per_iteration:
        return None
    if TrainConfig.from_json(directory.config) != config:
        return None
    did, curves = results.behaviour(directory), results.curves(directory)
    frames_of = lambda seed: np.inf if did.first_reward[seed] is None else did.first_reward[seed]
    last = lambda series: np.array(
        [series[seed][1][-1] if seed in series else np.nan for seed in config.seed_numbers]
    )
    return Found(
        np.array([frames_of(seed) for seed in config.seed_numbers], float),
        last(curves.mean_actor),
        {name: last(did.measures[name]) for name in REPORTED},
    )


def rows_of(found: Table, frames: dict[str, int]) -> list[dict[str, Any]]:
    """One row for each seed."""
    return [
        {"task": task, "method": method, "frames": frames[task], "seed": seed,
         "first_reward": each.first_reward[seed], "mean_actor": each.mean_actor[seed],
         **{name: values[seed] for name, values in each.measures.items()}}
        for (task, method), each in found.items()
        for seed in range(len(each.mean_actor))
    ]  # fmt: skip


def read_found(path: Path) -> Table:
    """The trainings in a sparse.csv. Those with other frames than a task has now are refused."""
    columns = ("first_reward", "mean_actor", *REPORTED)
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in read_rows(path, ", ".join(("task", "method", "frames", *columns))):
        known = row["method"] in SHOWN and row["task"] in SETTINGS
        if not known or row["frames"] != str(SETTINGS[row["task"]].frames):
            told = f"{row['task']}, {row['method']}, {row['frames']} frames"
            raise UsageError(f"--add: {path} has a training that is not of this study: {told}")
        groups.setdefault((row["task"], row["method"]), []).append(row)
    try:
        values = {
            key: {name: np.array([float(row[name]) for row in rows]) for name in columns}
            for key, rows in groups.items()
        }
    except ValueError as error:
        raise UsageError(f"--add: {path} has a row that cannot be read ({error})") from error
    return {
        key: Found(each["first_reward"], each["mean_actor"], {name: each[name] for name in REPORTED})
        for key, each in values.items()
    }


EARLIER = [
    ("functional, prior", "plain, prior", "The functional form: {0} before {1}", "sec-psrl"),
    ("functional", "plain", "The functional form, without priors: {0} before {1}", "sec-psrl"),
    ("functional, prior", "functional", "A prior: {0} before {1}", ""),
    ("plain, prior", "plain", "A prior: {0} before {1}", ""),
    ("functional, prior, masks", "functional, prior", "Masks: {0} before {1}", ""),
    ("functional, prior", "functional, prior, per step", "One actor per episode: {0} before {1}", "alg-nn, line 7"),
    ("functional, prior", "sac", "Beside baselines: {0} before {1}", ""),
    ("functional, prior", "td3", "Beside baselines: {0} before {1}", ""),
    ("functional, prior", "sac+", "Beside baselines: {0} before {1}", ""),
]
"""Who is said to find the reward before whom, the statement and its source."""


class Sparse(Study):
    """Trains every method on every task with the same frames, and compares when the reward was first seen."""

    name = "sparse"
    question = (
        "Ensembles of functional critics find sparse rewards in continuous control earlier than plain ensembles, "
        "SAC and TD3; priors and one actor per episode help."
    )
    runs = tuple(training(task, method, SETTINGS[task].frames, SEEDS) for task in SETTINGS for method in METHODS)
    quick_runs = tuple(
        training(task, method, frames, QUICK_SEEDS)
        for task, frames in QUICK_FRAMES.items()
        for method in QUICK_METHODS
    )
    shown = ("found_share", "solved_share", "first_reward")

    def find(self, runs: Trainings, quick: bool) -> Findings:
        """Four seeds; quick: two seeds, one short river, three methods. Unfinished trainings do not count."""
        found = {(run.task, run.method): found_in(run, runs.folder) for run in self.trainings(quick)}
        found = {key: each for key, each in found.items() if each is not None}
        for file in runs.added:
            found = read_found(file) | found
        if not found:
            raise UsageError(
                f"no training of sparse in {runs.folder} is finished; begin with: fcritic explore sparse"
            )
        frames = QUICK_FRAMES if quick else {task: setting.frames for task, setting in SETTINGS.items()}
        known = {task: count for task, count in frames.items() if any(each == task for each, _ in found)}
        ordered = {
            (task, method): found[task, method] for task in known for method in SHOWN if (task, method) in found
        }
        return findings_of(ordered, known)

    def draw(self, findings: Findings, path: Path) -> None:
        """For each task and method a dot at each seed's first reward; crosses never saw one."""
        found, frames = findings.plot["first_reward"], findings.plot["frames"]
        title = "Frame of the first reward, one mark per seed (crosses: none until the end)"
        columns = min(4, len(frames))
        with panels(path, columns, title, width=4.2, rows=-(-len(frames) // columns)) as axes:
            for unused in axes[len(frames) :]:
                unused.set_visible(False)
            for number, (axis, (task, methods)) in enumerate(zip(axes, found.items(), strict=False)):
                names = list(SHOWN)
                for place, name in [(place, name) for place, name in enumerate(names) if name in methods]:
                    for seed, first in enumerate(methods[name]):
                        height = place + 0.14 * (seed - (len(methods[name]) - 1) / 2)
                        missed = not np.isfinite(first)
                        x = frames[task] if missed else first
                        axis.plot(x, height, "x" if missed else "o", color="0.6" if missed else f"C{place}", ms=5)
                labels = names if number % columns == 0 else [""] * len(names)
                axis.set_yticks(range(len(names)), labels, fontsize=8)
                axis.set_ylim(len(names) - 0.5, -0.5)
                axis.set(title=task, xlabel="frames", xlim=(-0.03 * frames[task], 1.05 * frames[task]))
                axis.locator_params(axis="x", nbins=5)


def findings_of(found: Table, frames: dict[str, int]) -> Findings:
    """Verdicts, figures and rows of what was found."""
    data = {
        "frames": frames,
        "first_reward": _nested(found, lambda task, each: each.first_reward.tolist()),
        "found_share": _nested(found, lambda task, each: float(np.isfinite(each.first_reward).mean())),
        "median_first_reward": _nested(found, lambda task, each: float(np.median(each.first_reward))),
        "solved_share": _nested(found, lambda task, each: float(np.mean(each.mean_actor > SETTINGS[task].solved))),
        "mean_actor": _nested(found, lambda task, each: float(each.mean_actor.mean())),
        **{
            name: _nested(found, lambda task, each, name=name: float(each.measures[name].mean()))
            for name in next(iter(found.values())).measures
        },
    }
    return Findings(_claims(found, frames), rows_of(found, frames), data, _notes(data))


def _nested(found: Table, value: Any) -> dict[str, dict[str, Any]]:
    """By task, then by method."""
    nested: dict[str, dict[str, Any]] = {}
    for (task, method), each in found.items():
        nested.setdefault(task, {})[method] = value(task, each)
    return nested


def search_times(found: Table, frames: dict[str, int], method: str) -> np.ndarray:
    """By seed, mean over tasks: the share of the frames that passed before the first reward, 1 where none was."""
    shares = [np.minimum(found[task, method].first_reward / budget, 1.0) for task, budget in frames.items()]
    return np.mean(shares, axis=0)


def _both(found: Table, frames: dict[str, int], methods: tuple[str, str]) -> dict[str, int]:
    """The tasks that both methods have run, with their frames."""
    return {task: budget for task, budget in frames.items() if all((task, each) in found for each in methods)}


def _claims(found: Table, frames: dict[str, int]) -> list[Verdict]:
    """A method is earlier when the gap of search times, on tasks that both have run, exceeds its uncertainty."""
    claims = []
    for first, second, statement, source in EARLIER:
        if tasks := _both(found, frames, (first, second)):
            difference = gap(*(search_times(found, tasks, method) for method in (first, second)))
            figures = difference.figures(first, second) | {"tasks": list(tasks)}
            claims.append(
                judged(
                    statement.format(first, second),
                    difference.below,
                    figures,
                    source,
                    "paper" if source == "sec-psrl" else "ours",
                )
            )
    return claims


def _notes(data: dict[str, Any]) -> list[str]:
    notes = []
    for task, shares in data["found_share"].items():
        told = [f"{name} {share:.0%} ({data['solved_share'][task][name]:.0%})" for name, share in shares.items()]
        notes.append(f"{task}, seeds that found the reward (and have learned the task): " + ", ".join(told))
    return notes


STUDY = Sparse()
