"""Who finds a sparse reward in continuous control: deep agents with and without priors, masks and commitment."""

import dataclasses
from pathlib import Path
import tempfile
from typing import Any

import numpy as np

from fcritic.errors import UsageError, did_you_mean
from fcritic.exploration.experiments.judging import gap
from fcritic.exploration.experiments.sparse_files import Table, read_found, rows_of
from fcritic.exploration.experiments.sparse_runs import METHODS, SEEDS, SETTINGS, TASKS, conduct_run, is_finished
from fcritic.theory.experiments.base import Claim, Experiment, Outcome
from fcritic.theory.pictures import panels

RUNS = Path("runs/sparse")
"""Where the trainings are kept; those that are finished are not repeated."""
QUICK = {"riverswim-6": 800}
QUICK_METHODS = ("functional", "functional, prior", "sac")
QUICK_SEEDS = 2

EARLIER = [
    ("functional, prior", "plain, prior", "The functional form: {0} before {1}", "sec-psrl"),
    ("functional", "plain", "The functional form, without priors: {0} before {1}", "sec-psrl"),
    ("functional, prior", "functional", "A prior: {0} before {1}", ""),
    ("plain, prior", "plain", "A prior: {0} before {1}", ""),
    ("functional, prior", "functional, prior, per step", "One actor per episode: {0} before {1}", "alg-nn, line 7"),
    ("functional, prior", "sac", "Beside baselines: {0} before {1}", ""),
    ("functional, prior", "td3", "Beside baselines: {0} before {1}", ""),
    ("functional, prior", "sac+", "Beside baselines: {0} before {1}", ""),
]
"""Who is said to find the reward before whom, the statement and its source."""


@dataclasses.dataclass(frozen=True)
class Sparse(Experiment):
    """Trains every method on every task with the same frames, and compares when the reward was first seen."""

    tasks: tuple[str, ...] = tuple(TASKS)
    methods: tuple[str, ...] = tuple(METHODS)
    finished: bool = False
    """Report the trainings that are finished and begin none."""
    add: tuple[str, ...] = ()
    """Files sparse.csv of other machines, whose trainings are reported as well."""

    name = "sparse"
    statement = (
        "Ensembles of functional critics find sparse rewards in continuous control earlier than plain ensembles, "
        "SAC and TD3; priors and one actor per episode help."
    )

    def __post_init__(self) -> None:
        for kind, asked, known in (("task", self.tasks, SETTINGS), ("method", self.methods, METHODS)):
            for name in asked:
                if name not in known:
                    hint = did_you_mean(name, known) or f"; known are {'; '.join(known)}"
                    raise UsageError(f"explore sparse has no {kind} '{name}'{hint}")

    def run(self, quick: bool) -> Outcome:
        """Four seeds; quick: two seeds, one short river, three methods, and nothing is kept."""
        if quick:
            with tempfile.TemporaryDirectory() as folder:
                found = {
                    (task, method): conduct_run(task, method, frames, QUICK_SEEDS, Path(folder))
                    for task, frames in QUICK.items()
                    for method in QUICK_METHODS
                }
            return outcome_of(found, QUICK)
        frames = {task: SETTINGS[task].frames for task in self.tasks}
        found = {
            (task, method): conduct_run(task, method, frames[task], SEEDS, RUNS)
            for task in self.tasks
            for method in self.methods
            if not self.finished or is_finished(task, method, frames[task], SEEDS, RUNS)
        }
        for file in self.add:
            found = read_found(Path(file)) | found
        if not found:
            raise UsageError(f"no training under {RUNS} is finished; leave out --finished to begin")
        known = [task for task in SETTINGS if any(each == task for each, _ in found)]
        ordered = {
            (task, method): found[task, method] for task in known for method in METHODS if (task, method) in found
        }
        return outcome_of(ordered, {task: SETTINGS[task].frames for task in known})

    def draw(self, outcome: Outcome, path: Path) -> None:
        """For each task and method a dot at each seed's first reward; crosses never saw one."""
        found, frames = outcome.data["first_reward"], outcome.data["frames"]
        title = "Frame of the first reward, one mark per seed (crosses: none until the end)"
        columns = min(4, len(frames))
        with panels(path, columns, title, width=4.2, rows=-(-len(frames) // columns)) as axes:
            for unused in axes[len(frames) :]:
                unused.set_visible(False)
            for number, (axis, (task, methods)) in enumerate(zip(axes, found.items(), strict=False)):
                names = list(METHODS)
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


def outcome_of(found: Table, frames: dict[str, int]) -> Outcome:
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
    return Outcome(_claims(found, frames), data, rows_of(found, frames), _notes(data))


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


def _claims(found: Table, frames: dict[str, int]) -> list[Claim]:
    """A method is earlier when the gap of search times, on tasks that both have run, exceeds its uncertainty."""
    claims = []
    for first, second, statement, source in EARLIER:
        if tasks := _both(found, frames, (first, second)):
            difference = gap(*(search_times(found, tasks, method) for method in (first, second)))
            figures = difference.figures(first, second) | {"tasks": list(tasks)}
            claims.append(Claim(statement.format(first, second), difference.below, figures, source))
    return claims


def _notes(data: dict[str, Any]) -> list[str]:
    notes = []
    for task, shares in data["found_share"].items():
        told = [f"{name} {share:.0%} ({data['solved_share'][task][name]:.0%})" for name, share in shares.items()]
        notes.append(f"{task}, seeds that found the reward (and have learned the task): " + ", ".join(told))
    return notes


EXPERIMENT = Sparse()
