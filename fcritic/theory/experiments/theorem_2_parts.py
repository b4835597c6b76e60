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
ERRORS = (0.003, 0.006, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
"""Weight errors epsilon, and sizes of the features' error in Q."""
PARTS = {"smallest four": slice(0, 4), "0.0125 to 0.1": slice(2, 6), "all": slice(None)}
"""The errors that a slope is taken over. The theorem's O() is about small ones; large ones saturate."""


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
    """Whether the saving depends on lucky settings, and whether C_max controls the critic's error."""
    better = [row for row in table if row["samples to goal"] < rival["samples to goal"]]
    cells = {
        f"{row['data']}, kappa {row['kappa']:g}, threshold {row['threshold']:g}": row["samples to goal"]
        for row in table
    }
    fresh = [row for row in table if row["data"] == "fresh"]
    errors = {
        kappa: float(np.mean([row["mean squared weight error"] for row in fresh if row["kappa"] == kappa]))
        for kappa in sorted({row["kappa"] for row in fresh})
    }
    finite = [error for kappa, error in errors.items() if math.isfinite(kappa)]
    return [
        Claim(
            "RiverSwim: most settings of kappa and the drift threshold need fewer samples than refreshing always "
            "(median over seeds).",
            2 * len(better) > len(table),
            {
                "settings": len(table),
                "better": len(better),
                "better, and every seed reaches the goal": sum(row["share at goal"] == 1 for row in better),
                "refreshing every step": rival["samples to goal"],
                "samples": cells,
            },
            "alg-linear-AC, C_max and the threshold",
        ),
        Claim(
            "RiverSwim: C_max controls the critic's error: it is larger for the largest finite kappa than for the "
            "smallest, and larger still without the test.",
            finite[0] < finite[-1] < errors[math.inf],
            {"mean squared weight error by kappa": {f"{kappa:g}": error for kappa, error in errors.items()}},
            "thm-main-convergence, Coverage Control",
        ),
    ]


def floor_of(problem: Control, settings: Settings, error: float, seeds: int) -> tuple[float, float]:
    """The mean squared gradient and the mean squared error of the gradient over the last quarter of the steps."""
    trace = actor_critic(problem, settings, Exact(error), np.full(problem.policy.size, 0.5), seeds)
    found, last = assess(problem, trace), settings.steps // 4
    return float(found.squared_gradient[:, -last:].mean()), float((found.error_length[:, -last:] ** 2).mean())


def measure_floor(quick: bool) -> dict[str, Any]:
    """The floor against the critic's error and against the features' error, and what is left without either."""
    steps, seeds = (300, 4) if quick else (1500, 16)
    plain = periodic_control(0)
    size = safe_step(plain, np.full(plain.policy.size, 0.5))
    settings = Settings(steps, size, kappa=2.0, trigger="feature-distance", threshold=0.1, epoch_limit=10)
    moved = lambda error: dataclasses.replace(plain, features=perturb(plain.mdp, plain.features, error))
    critic = [floor_of(moved(0.0), settings, error, seeds) for error in ERRORS]
    features = [floor_of(moved(error), settings, 0.0, seeds) for error in ERRORS]
    return {
        "errors": list(ERRORS),
        "critic": [floor for floor, _ in critic],
        "critic, squared error": [error for _, error in critic],
        "features": [floor for floor, _ in features],
        "features, squared error": [error for _, error in features],
        "none": floor_of(moved(0.0), settings, 0.0, seeds)[0],
    }


def floor_claims(floor: dict[str, Any]) -> list[Claim]:
    """Whether both floors lie below the gradient's error, and fall with the square of the error."""
    names = {"critic": "critic's weight error epsilon", "features": "features' error E_approx"}
    shares = {name: np.divide(floor[name], floor[f"{name}, squared error"]) for name in names}
    claims = [
        Claim(
            "The squared gradient comes to rest below the mean squared error of the gradient, whatever the error.",
            # Where the estimated gradient is zero both are the same number, up to rounding.
            all(bool(np.all(share <= 1 + 1e-6)) for share in shares.values()),
            {"floor over squared error, largest": {name: float(share.max()) for name, share in shares.items()}},
            "eq: global-convergence",
        )
    ]
    for name, what in names.items():
        slopes = {
            part: slope(np.array(ERRORS[places]), np.array(floor[name][places])) for part, places in PARTS.items()
        }
        claims.append(
            Claim(
                f"As the {what} becomes small, this floor falls with its square (slope 2 within 0.3).",
                abs(slopes["smallest four"] - 2) <= 0.3,
                {
                    "slope": slopes,
                    "floors": dict(zip(map(str, ERRORS), floor[name], strict=True)),
                    "without error": floor["none"],
                },
                "eq: global-convergence",
            )
        )
    return claims
