"""Figures. matplotlib is imported nowhere else."""

from collections.abc import Iterator
import contextlib
import io
import itertools
from pathlib import Path
from typing import TYPE_CHECKING
import warnings

import matplotlib

matplotlib.use("Agg")  # no display is ever needed

from matplotlib import pyplot as plt
import numpy as np

from fcritic.disk import Place
from fcritic.errors import UsageError, cannot_write
from fcritic.experiments.appearance import line_of, short_frames
from fcritic.results.read import Behaviour, Curves

if TYPE_CHECKING:
    from fcritic.experiments.gather import Panel

FORMATS = (".png", ".svg", ".pdf")

MOST_LINES = 200
"""Single seeds that are drawn beside the mean of all."""


LABELS = {
    "diversity": "mean distance between the actions of two actors",
    "disagreement": "deviation between the critics' values of a policy",
    "coverage": "cells of observations in the replay",
    "saturation": "share of actions at their bounds",
    "first-reward": "share of seeds that have seen a reward",
}
"""What the vertical axis of each picture of behaviour shows."""


def learning_curves(runs: list[Curves], out: Path | Place) -> None:
    """Evaluation return against frames: one thin line per seed, one strong line for their mean."""
    with _picture(out, {run.task for run in runs}, "episode return") as axes:
        for index, run in enumerate(runs):
            _draw(axes, run, f"C{index}")


def behaviour_curves(runs: list[Behaviour], what: str, out: Path | Place) -> None:
    """One measure of what the agents do against frames; of first rewards, the share of seeds that had one."""
    with _picture(out, {run.task for run in runs}, LABELS[what]) as axes:
        for index, run in enumerate(runs):
            if what == "first-reward":
                _draw_first_rewards(axes, run, f"C{index}")
            else:
                _draw_measure(axes, run, what, f"C{index}")


@contextlib.contextmanager
def _picture(out: Path | Place, tasks: set[str], label: str) -> Iterator[plt.Axes]:
    """Axes over frames in a picture that is written to `out` at the end."""
    if Path(str(out)).suffix.lower() not in FORMATS:
        raise UsageError(f"cannot write a picture to {out}; give --out a name that ends in {', '.join(FORMATS)}")
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an overflow ends in an error of one line
        try:
            yield axes
        except UsageError:
            plt.close(figure)
            raise
        axes.set_xlabel("environment frames, summed over environments")
        axes.set_ylabel(label)
        axes.set_title(_plain(", ".join(sorted(tasks))))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        axes.xaxis.set_major_formatter(lambda frame, _: f"{frame:g}" if frame < 1000 else f"{frame / 1000:g}k")
        axes.legend(frameon=False, fontsize=9)
        _save(figure, out)


def _plain(text: str) -> str:
    """A text in which nothing is a formula."""
    return text.replace("$", r"\$")


def _draw_measure(axes: plt.Axes, run: Behaviour, what: str, colour: str) -> None:
    seeds = run.measures[what]
    if not seeds:
        reason = "one actor alone has no diversity" if what == "diversity" else "train it further"
        raise UsageError(f"{run.name} has no row with {what}; {reason}")
    for frames, values in itertools.islice(seeds.values(), MOST_LINES):
        axes.plot(frames, values, color=colour, alpha=0.3, linewidth=1)
    label = _plain(run.name) + (f", mean of {len(seeds)} seeds" if len(seeds) > 1 else "")
    axes.plot(*_mean(seeds), "o-", color=colour, linewidth=2.2, markersize=3, label=label)


def _draw_first_rewards(axes: plt.Axes, run: Behaviour, colour: str) -> None:
    found = sorted(frame for frame in run.first_reward.values() if frame is not None)
    count = len(run.first_reward)
    steps = [0, *found, run.frames]
    shares = [number / max(count, 1) for number in [*range(len(found) + 1), len(found)]]
    axes.step(
        steps, shares, where="post", color=colour, linewidth=2, label=f"{_plain(run.name)}: {len(found)} of {count}"
    )
    axes.set_ylim(-0.03, 1.05)


def _save(figure: plt.Figure, out: Path | Place) -> None:
    place, picture = Place.of(out), io.BytesIO()
    try:
        figure.savefig(picture, dpi=150, format=place.path.suffix[1:].lower())
        place.parent.make()
        place.replace(picture.getvalue())
    except (ValueError, OverflowError) as error:  # numbers that leave no room for an axis
        raise UsageError(
            f"the curves cannot be drawn ({error}): a row of metrics has a number out of range"
        ) from error
    except OSError as error:
        raise cannot_write("the picture", place.path, error) from error
    finally:
        plt.close(figure)


def _draw(axes: plt.Axes, run: Curves, colour: str) -> None:
    if not run.mean_actor:
        raise UsageError(f"{run.name} has no evaluation yet; train it further")
    for frames, values in itertools.islice(run.rollout.values(), MOST_LINES):
        axes.plot(frames, values, ".", color=colour, alpha=0.2, markersize=3)
    for seeds, style in ((run.best_actor, "--"), (run.mean_actor, "-")):
        for frames, values in itertools.islice(seeds.values(), MOST_LINES):
            axes.plot(frames, values, style, color=colour, alpha=0.3, linewidth=1)
    count = len(run.mean_actor)
    label = f"{_plain(run.name)}: mean actor" + (f", mean of {count} seeds" if count > 1 else "")
    axes.plot(*_mean(run.mean_actor), "-", color=colour, linewidth=2.2, label=label)
    axes.plot(*_mean(run.best_actor), "--", color=colour, linewidth=1.4, label="best actor")
    axes.plot([], [], ".", color=colour, alpha=0.5, label="training episodes")


def _mean(seeds: dict[int, tuple[list[int], list[float]]]) -> tuple[list[int], np.ndarray]:
    """The mean over seeds at the frames that all of them have."""
    length = min(len(frames) for frames, _ in seeds.values())
    frames = next(iter(seeds.values()))[0][:length]
    return frames, np.mean([values[:length] for _, values in seeds.values()], axis=0)


def panels_of_curves(panels: "list[Panel]", out: Path) -> None:
    """One picture with a panel for each task: means over seeds, intervals, single seeds; crosses are published."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(6.5 * columns, 4 * rows), layout="constrained", squeeze=False
    )
    for place, panel in zip(axes.flat, panels, strict=False):
        last = max(float(method.frames[-1]) for method in panel.methods)
        points = [point for entry in panel.published for point in entry["points"] if point[0] <= last]
        place.plot([point[0] for point in points], [point[1] for point in points], "x", color="0.45", zorder=3)
        for method in panel.methods:
            bands, (colour, dashes) = method.bands(), line_of(method.place)
            place.plot(method.frames, method.values.T, color=colour, alpha=0.3, linewidth=0.8)
            place.fill_between(
                method.frames, [b.low for b in bands], [b.high for b in bands], color=colour, alpha=0.15
            )
            line = {"color": colour, "linestyle": (0, dashes or None), "linewidth": 2}
            place.plot(method.frames, [b.value for b in bands], label=method.run.method, **line)
        place.set_title(panel.name)
        place.set_xlabel("frames, summed over environments" + (" (crosses: published)" if points else ""))
        place.xaxis.set_major_formatter(lambda frame, _: short_frames(frame))
        place.set_ylabel("return of the mean actor")
        place.grid(alpha=0.25)
        place.legend(frameon=False, fontsize=9, handlelength=3)
    for place in axes.flat[len(panels) :]:
        place.set_visible(False)
    _save(figure, out)
