"""Two parts of the experiment on Theorem 2: the sweep of both thresholds, and the floor.

The floor is the squared gradient that is left when the critic keeps an error of a known size: the mean over the
last quarter of the steps. Policies are periodic in their parameters there, so their optimum is at a finite place.
The critic is Algorithm 2 without statistical error: on exact features with an error of a given A_k-norm added in a
new random direction in every epoch, or on features with an error.
"""

from collections.abc import Callable
import dataclasses
import math
from typing import Any

import numpy as np

from fcritic.theory.actor_critic import Settings, actor_critic
from fcritic.theory.assessment import assess
from fcritic.theory.critics import Exact
from fcritic.theory.experiments.base import Claim
from fcritic.theory.experiments.control import periodic_control, safe_step, slope
from fcritic.theory.policy_gradients import Control
from fcritic.theory.problems import perturb

KAPPAS = (1.0, 1.5, 2.0, 5.0, math.inf)
THRESHOLDS = (0.1, 0.25, 0.5, 1.0)
ERRORS = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
"""Weight errors epsilon, and sizes of the features' error in Q."""
ENDS = {"small errors": 4, "all errors": len(ERRORS)}
"""How many errors a slope is taken over. Large ones saturate, for a gradient is bounded."""


def sweep(run: Callable[[Settings], dict], settings: Settings, quick: bool) -> list[dict[str, Any]]:
    """Every kappa with every drift threshold, with fresh and with kept data."""
    kappas, thresholds = (KAPPAS[::2], THRESHOLDS[1:3]) if quick else (KAPPAS, THRESHOLDS)
    return [
        {"data": data, "kappa": kappa, "threshold": threshold}
        | run(dataclasses.replace(settings, kappa=kappa, threshold=threshold, keep_data=data == "kept"))
        for data in ("fresh", "kept")
        for kappa in kappas
        for threshold in thresholds
    ]


def sweep_claims(table: list[dict[str, Any]], rival: dict[str, float]) -> list[Claim]:
    """Whether the saving depends on lucky settings."""
    better = [row for row in table if row["samples to goal"] < rival["samples to goal"]]
    cells = {
        f"{row['data']}, kappa {row['kappa']:g}, threshold {row['threshold']:g}": row["samples to goal"]
        for row in table
    }
    return [
        Claim(
            "RiverSwim: most settings of kappa and the drift threshold need fewer samples than refreshing always.",
            2 * len(better) > len(table),
            {"settings": len(table), "better": len(better), "refreshing every step": rival["samples to goal"]}
            | {"samples": cells},
            "alg-linear-AC, C_max and the threshold",
        )
    ]


def floor_of(problem: Control, settings: Settings, critic: Any, seeds: int) -> float:
    """The mean squared gradient over the last quarter of the steps and all seeds."""
    trace = actor_critic(problem, settings, critic, np.full(problem.policy.size, 0.5), seeds)
    return float(assess(problem, trace).squared_gradient[:, -(settings.steps // 4) :].mean())


def measure_floor(quick: bool) -> dict[str, Any]:
    """The floor against the critic's error and against the features' error, and what is left without either."""
    steps, seeds = (300, 4) if quick else (1500, 16)
    plain = periodic_control(0)
    size = safe_step(plain, np.full(plain.policy.size, 0.5))
    settings = Settings(steps, size, kappa=2.0, trigger="feature-distance", threshold=0.1, epoch_limit=10)
    moved = lambda error: dataclasses.replace(plain, features=perturb(plain.mdp, plain.features, error))
    return {
        "errors": list(ERRORS),
        "critic": [floor_of(moved(0.0), settings, Exact(error), seeds) for error in ERRORS],
        "features": [floor_of(moved(error), settings, Exact(), seeds) for error in ERRORS],
        "none": floor_of(moved(0.0), settings, Exact(), seeds),
    }


def floor_claims(floor: dict[str, Any]) -> list[Claim]:
    """Whether both floors are quadratic in the error."""
    names = {"critic": "critic's weight error epsilon", "features": "features' error E_approx"}
    slopes = {
        name: {part: slope(np.array(ERRORS[:end]), np.array(floor[name][:end])) for part, end in ENDS.items()}
        for name in names
    }
    return [
        Claim(
            f"The squared gradient comes to rest at a floor that is quadratic in the {what}, where that is small "
            "(slope 2 within 0.3).",
            abs(slopes[name]["small errors"] - 2) <= 0.3,
            {
                "slope": slopes[name],
                "floors": dict(zip(map(str, ERRORS), floor[name], strict=True)),
                "without error": floor["none"],
            },
            "eq: global-convergence",
        )
        for name, what in names.items()
    ]
