"""Writes what an experiment has shown: a page for people, numbers for programs, pictures for papers."""

import csv
import io
import json
from pathlib import Path
from typing import Any

from fcritic.disk import replace_file
from fcritic.errors import UsageError, cannot_write
from fcritic.experiments.curve_files import read_stock
from fcritic.experiments.gather import Panel, gather
from fcritic.experiments.page import page
from fcritic.experiments.spec import Experiment
from fcritic.experiments.verdicts import judge_all
from fcritic.results.plots import panels_of_curves


def write_report(experiment: Experiment, runs: Path, out: Path, add: tuple[str, ...] = ()) -> dict[str, Any]:
    """`index.html`, `curves.csv`, `numbers.json`, `curves.png` and `curves.svg`; returns the numbers.

    `add` names files like that curves.csv, for runs that have no folder here.
    """
    panels = gather(experiment, runs, read_stock(add))
    if not any(panel.methods for panel in panels):
        raise UsageError(
            f"{experiment.name} has no run in {runs} yet; begin with fcritic experiment run {experiment.name}"
        )
    numbers = _numbers(experiment, panels)
    try:
        out.mkdir(parents=True, exist_ok=True)
        replace_file(out / "index.html", page(experiment, panels).encode())
        replace_file(out / "numbers.json", (json.dumps(numbers, indent=1) + "\n").encode())
        replace_file(out / "curves.csv", _table(panels).encode())
    except OSError as error:
        raise cannot_write("the report", out, error) from error
    drawn = [panel for panel in panels if panel.methods]
    for suffix in ("png", "svg"):
        panels_of_curves(drawn, out / f"curves.{suffix}")
    return numbers


def _numbers(experiment: Experiment, panels: list[Panel]) -> dict[str, Any]:
    return {
        "experiment": experiment.name,
        "verdicts": [verdict._asdict() for verdict in judge_all(experiment, panels)],
        "panels": [
            {
                "panel": panel.name,
                "missing": panel.missing,
                "methods": [method.summary() for method in panel.methods],
                "comparisons": panel.comparisons(
                    experiment.reference or (panel.methods[0].run.method if panel.methods else "")
                ),
            }
            for panel in panels
        ],
    }


def _table(panels: list[Panel]) -> str:
    """One row per evaluation of a seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["task", "envs", "method", "seed", "frames", "mean_actor"])
    for method in (method for panel in panels for method in panel.methods):
        first = method.run.config().seed
        for seed, values in enumerate(method.values.tolist()):
            for frame, value in zip(method.frames.tolist(), values, strict=True):
                writer.writerow(
                    [method.run.task, method.run.envs, method.run.method, first + seed, frame, f"{value:.2f}"]
                )
    return text.getvalue()
