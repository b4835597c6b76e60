"""What a handful of seeds says: robust means, their intervals, and comparisons between methods.

Scores are arrays (runs, tasks): one column per task, one row per seed. Seeds are the unit that is resampled, within
each task, since tasks are fixed and seeds are chance (Agarwal et al. 2021).
"""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Float
import numpy as np

Scores = Float[np.ndarray, "runs tasks"]
Summary = Callable[[Scores], float]


class Interval(NamedTuple):
    """A figure with the range in which 95 % of its resamples lie."""

    value: float
    low: float
    high: float


def mean(scores: Scores) -> float:
    """The plain mean."""
    return float(np.mean(scores))


def interquartile_mean(scores: Scores) -> float:
    """The mean without the lowest and the highest quarter: a lucky or a failed seed moves it little."""
    ordered = np.sort(np.asarray(scores, np.float64), axis=None)
    cut = ordered.size // 4
    return float(ordered[cut : ordered.size - cut].mean())


def interval(
    scores: Scores, summary: Summary = interquartile_mean, resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Interval:
    """A summary with its stratified bootstrap interval: seeds are drawn with replacement, task by task."""
    scores = np.asarray(scores, np.float64)
    generator = np.random.default_rng(seed)
    drawn = np.array([summary(_resampled(scores, generator)) for _ in range(resamples)])
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(summary(scores), float(low), float(high))


def _resampled(scores: Scores, generator: np.random.Generator) -> Scores:
    rows = generator.integers(len(scores), size=scores.shape)
    return np.take_along_axis(scores, rows, axis=0)


def probability_of_improvement(ours: Scores, theirs: Scores) -> float:
    """P(a seed of ours is better than one of theirs), ties counting half, averaged over tasks."""
    if ours.shape[1] != theirs.shape[1]:
        raise ValueError(f"the tasks differ: {ours.shape[1]} and {theirs.shape[1]}")
    difference = ours[:, None] - theirs[None]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def improvement_interval(
    ours: Scores, theirs: Scores, resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The probability of improvement with its interval; both sides are resampled."""
    generator = np.random.default_rng(seed)
    drawn = [
        probability_of_improvement(_resampled(ours, generator), _resampled(theirs, generator))
        for _ in range(resamples)
    ]
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(probability_of_improvement(ours, theirs), float(low), float(high))


def performance_profile(scores: Scores, levels: Float[np.ndarray, " levels"]) -> Float[np.ndarray, " levels"]:
    """The share of runs that exceed each level."""
    return (np.asarray(scores).reshape(-1, 1) > np.asarray(levels)[None]).mean(axis=0)


def area_under_curve(frames: Float[np.ndarray, " points"], values: Float[np.ndarray, " points"]) -> float:
    """The mean height of a curve over its frames: what a method earned on the way, not only at the end."""
    frames, values = np.asarray(frames, np.float64), np.asarray(values, np.float64)
    if frames.size < 2:
        return float(values.mean())
    if not (np.diff(frames) > 0).all():
        raise ValueError("frames must rise")
    return float(np.trapezoid(values, frames) / (frames[-1] - frames[0]))
