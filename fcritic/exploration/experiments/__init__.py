"""The experiments on exploration. Each has a module of its own, whose `EXPERIMENT` runs, judges and draws."""

import importlib

from fcritic.errors import UsageError, did_you_mean
from fcritic.theory.experiments.base import Experiment

EXPERIMENTS: dict[str, str] = {
    "riverswim": "regret of posterior sampling, randomised values and ensembles in rivers of 6, 12 and 20 states",
    "deepsea": "episodes to solve DeepSea against its size, beside the 2^N of undirected search",
    "calibration": "what ensembles believe of every policy's return, beside the exact posterior",
    "sparse": "who finds a sparse reward: the deep agents, their baselines, priors, masks, one actor per episode",
}
"""Name, and in a line what it shows."""


def load(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS) or f"; known are {', '.join(EXPERIMENTS)}"
        raise UsageError(f"unknown experiment '{name}'{hint}")
    return importlib.import_module(f"{__name__}.{name}").EXPERIMENT
