"""From the folders of runs to the numbers of a report: curves, end scores, areas, comparisons."""

import csv
import dataclasses
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.errors import UsageError
from fcritic.experiments.curve_files import Curve, Stock
from fcritic.experiments.spec import Experiment, Run
from fcritic.results import read as results
from fcritic.results import statistics
from fcritic.runs.directory import RunDirectory

END = 0.1
"""A seed's end score is the mean of its evaluations in this last part of the frames: single ones are noisy."""
ENOUGH = 2
"""Seeds from which on an interval is given."""


@dataclasses.dataclass(frozen=True)
class Method:
    """What one run of a panel has reached."""

    run: Run
    frames: np.ndarray
    """At which all its seeds were evaluated, up to the last frame of the experiment."""
    values: np.ndarray
    """The mean actor's return, (seeds, frames)."""
    versions: dict[str, Any]
    place: int = 0
    """Among the runs of its panel, missing ones too: a method has the same colour in every panel."""

    @property
    def finished(self) -> bool:
        """Whether it was trained to the end."""
        return bool(self.frames.size and self.frames[-1] >= self.run.steps)

    @property
    def end_scores(self) -> np.ndarray:
        """One number per seed."""
        late = self.frames >= self.frames[-1] - END * self.frames[-1]
        return self.values[:, late].mean(axis=1)

    def summary(self) -> dict[str, Any]:
        """The row of a table."""
        scores = self.end_scores[:, None]
        areas = [statistics.area_under_curve(self.frames, seed) for seed in self.values]
        row = {
            "method": self.run.method,
            "seeds": len(self.values),
            "frames": int(self.frames[-1]),
            "finished": self.finished,
            "end_mean": statistics.mean(scores),
            "end_deviation": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
            "end_by_seed": self.end_scores.round(1).tolist(),
            "area": float(np.mean(areas)),
        }
        if len(scores) >= ENOUGH:
            row["end_interquartile"] = statistics.interval(scores)._asdict()
        return row

    def bands(self) -> list[statistics.Interval]:
        """Mean and interval over seeds at every frame."""
        if len(self.values) < ENOUGH:
            return [statistics.Interval(value, value, value) for value in self.values[0].tolist()]
        columns = self.values.T[:, :, None]
        return [statistics.interval(column, statistics.mean, resamples=400) for column in columns]


@dataclasses.dataclass(frozen=True)
class Panel:
    """Methods on one task with as many environments, and published figures for the task."""

    name: str
    methods: list[Method]
    missing: list[str]
    published: list[dict[str, Any]]

    def comparisons(self, reference: str) -> list[dict[str, Any]]:
        """Each method beside the reference, at the frames that both have reached."""
        by_name = {method.run.method: method for method in self.methods}
        if reference not in by_name:
            return []
        others = [method for name, method in by_name.items() if name != reference]
        return [self.compare(method, by_name[reference]) for method in others]

    @staticmethod
    def compare(method: Method, reference: Method) -> dict[str, Any]:
        """End scores of two methods, each at the frames that both have reached."""
        ours, theirs = _same_length(method, reference)
        chance = statistics.improvement_interval(ours.end_scores[:, None], theirs.end_scores[:, None])
        means = [float(side.end_scores.mean()) for side in (ours, theirs)]
        return {
            "method": method.run.method,
            "reference": reference.run.method,
            "frames": int(ours.frames[-1]),
            "ours": means[0],
            "theirs": means[1],
            "difference": means[0] - means[1],
            "probability_of_improvement": chance._asdict(),
        }


def gather(experiment: Experiment, folder: Path, stock: Stock | None = None) -> list[Panel]:
    """Every panel of an experiment; runs without an evaluation are named as missing.

    What has no folder is taken from `stock`, if it is there.
    """
    panels = []
    for name, runs in experiment.panels.items():
        found = {run.method: read_method(run, folder) or _from_stock(run, stock or {}) for run in runs}
        methods = [
            dataclasses.replace(method, place=place)
            for place, method in enumerate(found.values())
            if method is not None
        ]
        missing = [method for method, data in found.items() if data is None]
        panels.append(Panel(name, methods, missing, published(runs[0].task, max(run.steps for run in runs))))
    return panels


def read_method(run: Run, folder: Path) -> Method | None:
    """The curves of a run up to the last frame of the experiment, or nothing before its first evaluation."""
    directory = RunDirectory(folder / run.name)
    if directory.metrics.status() is None:
        return None
    curves = results.curves(directory).mean_actor.values()
    return _method(run, [dict(zip(*curve, strict=True)) for curve in curves], _versions(directory))


def _from_stock(run: Run, stock: Stock) -> Method | None:
    stored = stock.get((run.task, run.envs, run.method))
    return stored and _method(run, list(stored.curves.values()), {"read from": stored.source})


def _method(run: Run, grids: list[Curve], versions: dict[str, Any]) -> Method | None:
    """The seeds' curves at the frames that all of them have."""
    config = run.config()
    last = config.iterations * config.frames_per_iteration  # a longer experiment may have trained it further
    frames = sorted(frame for frame in set.intersection(*map(set, grids)) if frame <= last) if grids else []
    if not frames:
        return None
    values = np.array([[grid[frame] for frame in frames] for grid in grids])
    return Method(run, np.array(frames), values, versions)


def _versions(directory: RunDirectory) -> dict[str, Any]:
    try:
        return directory.versions()
    except UsageError:
        return {}


def _same_length(one: Method, other: Method) -> tuple[Method, Method]:
    """Both cut to the frames that both have reached."""
    last = min(one.frames[-1], other.frames[-1])
    cut = lambda method: dataclasses.replace(
        method, frames=method.frames[method.frames <= last], values=method.values[:, method.frames <= last]
    )
    ours, theirs = cut(one), cut(other)
    if not ours.frames.size or not theirs.frames.size:
        raise UsageError("two runs have no evaluation at common frames; train the shorter one further")
    return ours, theirs


def published(task: str, steps: int) -> list[dict[str, Any]]:
    """Published means for a task, with action repeat and updates per frame, up to the frames asked."""
    text = (files("fcritic.experiments") / "published.csv").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = {}
    for row in csv.DictReader(text.splitlines()):
        if row["task"] == task and int(row["frames"]) <= steps:
            facts = {name: row[name] for name in ("algorithm", "action_repeat", "updates_per_frame", "seeds")}
            points = found.setdefault(row["algorithm"], facts | {"points": []})["points"]
            points.append((int(row["frames"]), float(row["mean"]), float(row["deviation"])))
    return list(found.values())
