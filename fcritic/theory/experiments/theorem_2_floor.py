"""The floor of Theorem 2: the squared gradient that is left when the critic keeps an error of a known size.

Protocol. Policies are periodic in their parameters, so their optimum is at a finite place. The critic is the truth
plus an error of a given A_k-norm in a new random direction in every epoch, or exact on features with an error.
The floor is the mean squared gradient over the last quarter of the steps.
"""

import dataclasses
from typing import Any

import numpy as np

from fcritic.theory.actor_critic import Settings, actor_critic
from fcritic.theory.assessment import assess
from fcritic.theory.critics import Exact, NoisyTruth
from fcritic.theory.experiments.base import Claim
from fcritic.theory.experiments.control import periodic_control, safe_step, slope
from fcritic.theory.policy_gradients import Control
from fcritic.theory.problems import perturb

ERRORS = (0.05, 0.1, 0.2, 0.4)
"""Weight errors epsilon, and sizes of the features' error in Q."""
PARAMETERS = 4


def floor_of(problem: Control, settings: Settings, critic: Any, seeds: int) -> float:
    """The mean squared gradient over the last quarter of the steps and all seeds."""
    trace = actor_critic(problem, settings, critic, np.full(PARAMETERS, 0.5), seeds)
    return float(assess(problem, trace).squared_gradient[:, -(settings.steps // 4) :].mean())


def measure_floor(quick: bool) -> dict[str, Any]:
    """The floor against the critic's error and against the features' error, and what is left without either."""
    steps, seeds = (400, 4) if quick else (1500, 16)
    problem = periodic_control(0)
    size = safe_step(problem, np.full(PARAMETERS, 0.5))
    settings = Settings(steps, size, kappa=2.0, trigger="feature-distance", threshold=0.1, epoch_limit=10)
    features = {error: perturb(problem.mdp, problem.features, error) for error in ERRORS}
    moved = {error: dataclasses.replace(problem, features=each) for error, each in features.items()}
    return {
        "errors": list(ERRORS),
        "critic": [floor_of(problem, settings, NoisyTruth(error), seeds) for error in ERRORS],
        "features": [floor_of(moved[error], settings, Exact(), 1) for error in ERRORS],
        "none": floor_of(problem, settings, Exact(), 1),
    }


def floor_claims(floor: dict[str, Any]) -> list[Claim]:
    """Whether both floors are quadratic in the error."""
    names = {"critic": "critic's weight error epsilon", "features": "features' error E_approx"}
    return [
        Claim(
            f"The squared gradient comes to rest at a floor that is quadratic in the {what} (slope 2 within 0.3).",
            abs(slope(np.array(ERRORS), np.array(floor[name])) - 2) <= 0.3,
            {
                "slope": slope(np.array(ERRORS), np.array(floor[name])),
                "floors": dict(zip(map(str, ERRORS), floor[name], strict=True)),
                "without error": floor["none"],
            },
            "thm-main-convergence, eq: global-convergence",
        )
        for name, what in names.items()
    ]
