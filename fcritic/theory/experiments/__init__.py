"""The experiments of the theory. Each has a module of its own, whose `EXPERIMENT` runs, judges and draws."""

import importlib

from fcritic.errors import UsageError, did_you_mean
from fcritic.theory.experiments.base import Experiment

EXPERIMENTS: dict[str, str] = {
    "counterexamples": "Baird, Tsitsiklis-Van Roy, Kolter: which methods diverge",
    "theorem-1": "the error of Algorithm 2 against T, K, C and approximation error",
    "disjoint-support": "target and behaviour share no action",
    "theorem-2": "Algorithm 3 against its rivals, the samples that trust saves, and the floor",
    "metric-validity": "whether the coefficients of Delta bound the error of the gradient",
    "second-term": "the direction of the off-policy gradient with and without its second term",
}
"""Name, and in a line what it shows. The module has the name with underscores."""


def load(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS) or f"; known are {', '.join(EXPERIMENTS)}"
        raise UsageError(f"unknown experiment '{name}'{hint}")
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}").EXPERIMENT
