"""What `fcritic theory` and `fcritic explore` share: run experiments, judge their claims, print the outcome."""

from collections.abc import Callable, Iterable
import json
from pathlib import Path
from typing import Any

import fcritic
from fcritic.errors import UsageError
from fcritic.theory.experiments.base import conduct, report_text

EVIDENCE = Path(fcritic.__file__).resolve().parents[1] / "results"
"""The results that are committed, which no command writes over."""

Brief = Callable[[dict[str, Any]], dict[str, Any]]


def without_data(report: dict[str, Any]) -> dict[str, Any]:
    """A report without the data of its picture."""
    return {name: value for name, value in report.items() if name != "data"}


def judge(options: Any, known: Iterable[str], load: Callable[[str], Any], brief: Brief = without_data) -> None:
    """Runs the experiment that the options name, or all that are known, and prints what was found."""
    names = list(known) if options.name == "all" else [options.name]
    if options.out and Path(options.out).resolve().is_relative_to(EVIDENCE):
        raise UsageError(f"--out {options.out} holds committed results; choose a folder outside {EVIDENCE}")
    reports = []
    for experiment in [load(name) for name in names]:
        out = Path(options.out or f"reports/{experiment.name}")
        reports.append(conduct(experiment, options.quick, out))
        if not options.json:
            print(report_text(reports[-1]), flush=True)
    if options.json:
        told = [brief(report) for report in reports]
        print(json.dumps(told if options.name == "all" else told[0], indent=2))
