"""Figures. matplotlib is imported nowhere else."""

from collections.abc import Iterator
import contextlib
import io
import itertools
from pathlib import Path
from typing import Any
import warnings

import matplotlib

matplotlib.use("Agg")  # no display is ever needed

from matplotlib import pyplot as plt
import numpy as np
from PIL import Image

from fcritic.disk import Place
from fcritic.errors import UsageError, cannot_write
from fcritic.logs.metrics import ASKED, CORRECTED, KNOWLEDGE, SIGNS
from fcritic.results.read import Behaviour, Curves

FORMATS = (".png", ".svg", ".pdf")
MOST_BYTES = 150_000
"""Of a PNG of a study, which is committed."""

MOST_LINES = 200
"""Single seeds that are drawn beside the mean of all."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#444444")
"""Colours that differ also for colour-blind eyes (after Okabe and Ito)."""

DASHES = ((), (7, 4), (2, 3))
"""Lengths of strokes and gaps; methods beyond the colours have the same again, in other strokes."""

FRAMES_TAKEN = "environment frames, summed over environments"

LABELS = {
    "diversity": "mean distance between the actions of two actors",
    "disagreement": "deviation between the critics' values of a policy",
    "coverage": "cells of observations in the replay",
    "saturation": "share of actions at their bounds",
    "knowledge": "critics' values beside measured returns",
    "success": "share of successful episodes",
    "length": "actions in an episode",
    "first-reward": "share of seeds that have seen a reward",
}
"""What the vertical axis of each picture of behaviour shows."""


def line_of(place: int) -> dict[str, object]:
    """Colour and dashes of the method with this place in its panel, as matplotlib takes them."""
    dashes = DASHES[place // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": (0, dashes or None)}


def short_frames(frame: float) -> str:
    """A number of frames as on an axis: 200k, 1.5M."""
    return f"{frame / 1e6:g}M" if frame >= 1e6 else f"{frame / 1e3:g}k" if frame >= 1e3 else f"{frame:g}"


@contextlib.contextmanager
def panels(
    path: Path, count: int = 1, title: str = "", width: float = 4.6, rows: int = 1
) -> Iterator[list[plt.Axes]]:
    """Axes side by side in the picture of a study, `count` in each row, which is written to `path` at the end."""
    size = (max(width * count, 6), 4.4 * rows)
    # Text stays text in SVG, and the same picture is the same file.
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fcritic"}):
        figure, axes = plt.subplots(rows, count, figsize=size, layout="constrained", squeeze=False)
        try:
            yield list(axes.flat)
            for each in axes.flat:
                each.grid(alpha=0.25)
                each.spines[["top", "right"]].set_visible(False)
            if title:
                figure.suptitle(title, fontsize=11)
            place = Place.of(path)
            place.parent.make()
            place.replace(_small_png(figure) if path.suffix == ".png" else _svg(figure))
        except OSError as error:
            raise cannot_write("the picture", path, error) from error
        finally:
            plt.close(figure)


def _svg(figure: plt.Figure) -> bytes:
    """The figure as SVG, the same bytes for the same figure."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()


def _small_png(figure: plt.Figure) -> bytes:
    """The figure as a PNG of 256 colours, with as many dots per inch as its limit in bytes allows."""
    for dpi in (150, 120, 100, 80, 60):
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=dpi, format="png")
        small, kind = io.BytesIO(), Image.Quantize.MAXCOVERAGE
        few = Image.open(drawn).convert("RGB").quantize(256, kind, kmeans=1, dither=Image.Dither.NONE)
        few.save(small, "PNG", optimize=True)
        if small.tell() <= MOST_BYTES:
            break
    return small.getvalue()


def tuning(outcome: dict[str, Any], out: Path) -> None:
    """The curves of a search's trials, the best one strong, and their scores against each option."""
    rows = outcome["trials"]
    names = list(dict.fromkeys(name for row in rows for name in row["options"]))[:5]
    finished = [row for row in rows if row["score"] is not None]
    with panels(out, 1 + len(names), "a search for options") as axes:
        for row in reversed(rows):
            best = row["trial"] == outcome["best"]
            look = {"color": COLOURS[1], "linewidth": 2.2} if best else {"color": COLOURS[0], "linewidth": 0.8}
            look |= {"alpha": 1.0 if best else 0.6, "linestyle": "-" if row["state"] == "finished" else ":"}
            axes[0].plot(row["curve"]["frames"], row["curve"]["returns"], **look)
        axes[0].set(xlabel="frames", ylabel="return of the mean actor (dotted: ended early)")
        for name, each in zip(names, axes[1:], strict=True):
            values = [row["options"][name] for row in finished]
            numbers = all(type(value) in (int, float) for value in values)
            shown = values if numbers else [str(value) for value in values]
            each.scatter(shown, [row["score"] for row in finished], s=18, color=COLOURS[0])
            each.set(xlabel=name, ylabel="score")
            if numbers and values and min(values) > 0 and max(values) > 50 * min(values):
                each.set_xscale("log")


def learning_curves(runs: list[Curves], out: Path | Place) -> None:
    """Evaluation return against frames: one thin line per seed, one strong line for their mean."""
    with _picture(out, {run.task for run in runs}, "episode return") as (axes,):
        for index, run in enumerate(runs):
            _draw(axes, run, f"C{index}")


def behaviour_curves(runs: list[Behaviour], what: str, out: Path | Place) -> None:
    """One measure of what the agents do against frames; of first rewards, the share of seeds that had one."""
    labels = SIGNS.values() if what == KNOWLEDGE else [LABELS[what]]
    with _picture(out, {run.task for run in runs}, *labels) as (axes, *more):
        for index, run in enumerate(runs):
            if what == KNOWLEDGE:
                _draw_knowledge([axes, *more], run, f"C{index}")
            elif what == "first-reward":
                _draw_first_rewards(axes, run, f"C{index}")
            else:
                _draw_measure(axes, run, what, f"C{index}")


TRUST_LABELS = {
    "trust": "coverage C over its least",
    "drift": "Delta",
    "value_error": "error of critics",
}
"""What is drawn of trust: why critics may be wrong, by how much that turns gradients, how wrong they are."""


def trust_curves(runs: list[Behaviour], out: Path | Place, across: str = FRAMES_TAKEN) -> None:
    """C, Delta and the critics' error: thin lines are actors, strong ones the mean of seeds.

    Runs of Algorithm 3 on a finite MDP are drawn in the same way, `across` its steps.
    """
    with _picture(out, {run.task for run in runs}, *TRUST_LABELS.values(), across=across) as each:
        for axes, what in zip(each, TRUST_LABELS, strict=True):
            for index, run in enumerate(runs):
                for frames, values in itertools.islice(run.actors.get(what, {}).values(), MOST_LINES):
                    axes.plot(frames, values, color=f"C{index}", alpha=0.3, linewidth=0.6)
                _draw_measure(axes, run, what, f"C{index}")
            axes.set_yscale("log")
        each[0].axhline(1.0, color="#444444", linewidth=0.8, linestyle=":")  # data that are the actor's own
        each[1].axhline(2.0, color="#444444", linewidth=0.8, linestyle=":")  # where the paper ends an epoch


@contextlib.contextmanager
def _picture(
    out: Path | Place, tasks: set[str], *labels: str, across: str = FRAMES_TAKEN
) -> Iterator[list[plt.Axes]]:
    """Axes over frames, one for each label, in a picture that is written to `out` at the end."""
    if Path(str(out)).suffix.lower() not in FORMATS:
        raise UsageError(f"cannot write a picture to {out}; give --out a name that ends in {', '.join(FORMATS)}")
    size = (8, 4.5) if len(labels) == 1 else (5 * len(labels), 4.5)
    figure, grid = plt.subplots(1, len(labels), figsize=size, layout="constrained", squeeze=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an overflow ends in an error of one line
        try:
            yield list(grid.flat)
        except UsageError:
            plt.close(figure)
            raise
        for axes, label in zip(grid.flat, labels, strict=True):
            axes.set_xlabel(across)
            axes.set_ylabel(label)
            axes.set_title(_plain(", ".join(sorted(tasks))))
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
            if axes.get_yscale() == "linear":
                axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
            axes.xaxis.set_major_formatter(lambda frame, _: f"{frame:g}" if frame < 1000 else f"{frame / 1000:g}k")
        grid.flat[0].legend(frameon=False, fontsize=9)
        _save(figure, out)


def _plain(text: str) -> str:
    """A text in which nothing is a formula."""
    return text.replace("$", r"\$")


def _draw_measure(axes: plt.Axes, run: Behaviour, what: str, colour: str) -> None:
    seeds = run.measures[what]
    if not seeds:
        reasons = {
            "diversity": "one actor alone has no diversity",
            "trust": "train with --trust.measure",
            "drift": "train with --trust.measure",
            "value_error": "train with --trust.measure",
            "success": "its task does not report it (is_success in Gymnasium's info)",
        }
        reason = reasons.get(what, "train it further")
        raise UsageError(f"{run.name} has no row with {what}; {reason}")
    for frames, values in itertools.islice(seeds.values(), MOST_LINES):
        axes.plot(frames, values, color=colour, alpha=0.3, linewidth=1)
    label = _plain(run.name) + (f", mean of {len(seeds)} seeds" if len(seeds) > 1 else "")
    axes.plot(*_mean(seeds), "o-", color=colour, linewidth=2.2, markersize=3, label=label)


def _draw_knowledge(axes: list[plt.Axes], run: Behaviour, colour: str) -> None:
    """Each sign on axes of its own, each kind of policies in strokes of its own.

    Strong lines are means of seeds of corrected values, faint ones of what critics say, thin ones are seeds.
    """
    if not run.measures["rank_past"]:
        raise UsageError(f"{run.name} has no row with knowledge; train with --knowledge 16")
    for sign, each in zip(SIGNS, axes, strict=True):
        for (kind, said), strokes in zip(ASKED.items(), ("-", "--", ":", "-."), strict=True):
            plain, corrected = (run.measures[f"{sign}_{kind}{after}"] for after in ("", CORRECTED))
            if corrected:  # older runs have none
                each.plot(*_mean(plain), strokes, color=colour, alpha=0.4, linewidth=1.5)
            if seeds := corrected or plain:
                for frames, values in itertools.islice(seeds.values(), MOST_LINES):
                    each.plot(frames, values, strokes, color=colour, alpha=0.15, linewidth=1)
                label = _plain(f"{run.name}: {said}")
                each.plot(*_mean(seeds), strokes, color=colour, linewidth=2, label=label)
    axes[1].set_yscale("symlog", linthresh=2.0)
    axes[1].axhline(1.0, color="#444444", linewidth=0.8)  # where values have the size of returns


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
