"""Theorem 2 and Algorithm 3: convergence, its floor, and how many samples the two trust tests save.

Protocol, fixed before the runs. One linear MDP, tabular softmax policies from the uniform one, the step size
1 / (8 L) of the proof. Every evaluation is Algorithm 2 with T = 40, K = 250, the target kept between epochs. The
headline method has kappa = 2 and ends an epoch when features have moved by a quarter of their length. A goal is
reached when a tenth of the first gap to the optimum is left. Seeds differ in the sampled transitions.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.theory.actor_critic import Settings, actor_critic
from fcritic.theory.assessment import assess
from fcritic.theory.control_rivals import RIVALS
from fcritic.theory.critics import Sampled
from fcritic.theory.experiments.base import Claim, Experiment, Outcome
from fcritic.theory.experiments.control import ACTIONS, STATES, safe_step, samples_until, slope, tabular_control
from fcritic.theory.experiments.theorem_2_floor import floor_claims, measure_floor
from fcritic.theory.experiments.theorem_2_picture import draw
from fcritic.theory.policy_gradients import Control

CRITIC = Sampled(outer=40, inner=250, step=0.3, reset=False, warm=True)
KAPPAS = (1.0, 1.5, 2.0, 5.0, math.inf)
THRESHOLDS = (0.1, 0.25, 0.5, 1.0)
GOAL = 0.1
START = np.zeros(STATES * ACTIONS)


def headline(problem: Control, steps: int) -> Settings:
    """Algorithm 3 as it competes."""
    return Settings(steps, safe_step(problem, START), kappa=2.0, trigger="feature-distance", threshold=0.25)


def methods(settings: Settings) -> dict[str, Settings]:
    """Algorithm 3 in three forms and all rivals."""
    printed = dataclasses.replace(settings, trigger="delta", threshold=2.0)
    return {
        "dual trust": settings,
        "dual trust, data kept": dataclasses.replace(settings, keep_data=True),
        "Delta > 2, as printed": printed,
    } | {name: change(settings) for name, change in RIVALS.items()}


def race(problem: Control, settings: Settings, seeds: int) -> dict[str, np.ndarray]:
    """One method: true figures along its steps, [seeds, steps] each."""
    trace = actor_critic(problem, settings, CRITIC, START, seeds)
    found = assess(problem, trace, settings.gradient)
    gap = (problem.optimum - found.objective) / (problem.optimum - found.objective[0, 0])
    return {
        "samples": trace.samples * (settings.gradient != "exact"),
        "gap": gap,
        "squared gradient": found.squared_gradient,
        "squared error": found.error_length**2,
        "weight error": found.weight_error,
        "coverage": trace.coverage,
        "epochs": trace.epoch + 1,
        "refreshes": trace.refreshes,
    }


def summary(path: dict[str, np.ndarray]) -> dict[str, float]:
    """One method in a line. The samples are the median over seeds; infinite where most never reach the goal."""
    return {
        "samples to goal": float(np.median(samples_until(path["gap"] <= GOAL, path["samples"]))),
        "samples": float(path["samples"][:, -1].mean()),
        "epochs": float(path["epochs"][:, -1].mean()),
        "refreshes": float(path["refreshes"][:, -1].mean()),
        "final gap": float(path["gap"][:, -1].mean()),
        "final squared gradient": float(path["squared gradient"][:, -1].mean()),
        "mean squared gradient": float(path["squared gradient"].mean()),
        "mean squared gradient error": float(path["squared error"].mean()),
        "mean squared weight error": float((path["weight error"] ** 2).mean()),
    }


def sweep(problem: Control, settings: Settings, seeds: int, thin: bool) -> list[dict[str, Any]]:
    """The samples to the goal over kappa and the drift threshold, with fresh and with kept data."""
    kappas, thresholds = (KAPPAS[::2], THRESHOLDS[1::2]) if thin else (KAPPAS, THRESHOLDS)
    rows = []
    for keep in (False, True):
        for kappa in kappas:
            for threshold in thresholds:
                changed = dataclasses.replace(settings, kappa=kappa, threshold=threshold, keep_data=keep)
                rows.append(
                    {"data": "kept" if keep else "fresh", "kappa": kappa, "threshold": threshold}
                    | summary(race(problem, changed, seeds))
                )
    return rows


class Theorem2(Experiment):
    """Algorithm 3 against its rivals."""

    name = "theorem-2"
    statement = (
        "Algorithm 3 drives the squared gradient down to a floor set by the critic's error, with fewer samples "
        "than methods that evaluate or refresh before every step."
    )

    def run(self, quick: bool) -> Outcome:
        """The race of all methods, the sweep of both thresholds, and the floor."""
        steps, seeds, swept = (60, 6, 4) if quick else (200, 20, 10)
        problem = tabular_control(0)
        settings = headline(problem, steps)
        paths = {name: race(problem, each, seeds) for name, each in methods(settings).items()}
        table = sweep(problem, settings, swept, quick)
        floor = measure_floor(quick)
        lines = {name: summary(path) for name, path in paths.items()}
        first = 2 * (problem.optimum - float(problem.objective(START))) / (settings.step_size * steps)
        claims = [*_bound_claims(lines, first), *_sample_claims(lines, table), *_drift_claims(paths)]
        rows = [
            {"method": name, "seed": seed} | _by_seed(path, seed)
            for name, path in paths.items()
            for seed in range(seeds)
        ]
        data = {
            "step size": settings.step_size,
            "goal": GOAL,
            "samples of an evaluation": CRITIC.samples,
            "methods": lines,
            "curves": {name: _curve(path) for name, path in paths.items()},
            "sweep": table,
            "floor": floor,
        }
        return Outcome(claims + floor_claims(floor), data, rows)

    def draw(self, outcome: Outcome, path: Path) -> None:
        """Both measures against samples, the sweep, and the floor."""
        draw(outcome.data, path)


def _curve(path: dict[str, np.ndarray]) -> dict[str, Any]:
    """Means and a band over seeds at every step."""
    shown = {"samples": path["samples"].mean(0)}
    for name in ("gap", "squared gradient"):
        shown[name] = path[name].mean(0)
        shown[f"{name}, low"], shown[f"{name}, high"] = np.quantile(path[name], (0.1, 0.9), axis=0)
    return shown


def _by_seed(path: dict[str, np.ndarray], seed: int) -> dict[str, float]:
    return summary({name: values[seed : seed + 1] for name, values in path.items()})


def _bound_claims(lines: dict[str, dict], first: float) -> list[Claim]:
    exact, dual = lines["exact policy gradient"], lines["dual trust"]
    tops = {
        name: line["mean squared gradient"] / (first + line["mean squared gradient error"])
        for name, line in lines.items()
    }
    return [
        Claim(
            "With exact gradients the mean squared gradient is below 2 (J* - J_0) / (eta M).",
            exact["mean squared gradient"] <= first,
            {"mean squared gradient": exact["mean squared gradient"], "bound": first},
            "thm-main-convergence, no error",
        ),
        Claim(
            "It is below 2 (J* - J_0) / (eta M) plus the mean squared error of the gradient, for Algorithm 3 and "
            "all rivals.",
            max(tops.values()) <= 1,
            {"share of the bound": tops, "dual trust, squared error": dual["mean squared gradient error"]},
            "thm-main-convergence, with the measured error",
        ),
    ]


def _sample_claims(lines: dict[str, dict], table: list[dict]) -> list[Claim]:
    need = {name: line["samples to goal"] for name, line in lines.items()}
    claims = []
    for form in ("dual trust", "dual trust, data kept"):
        ratios = {rival: need[rival] / need[form] for rival in ("on-policy actor-critic", "refreshing every step")}
        claims.append(
            Claim(
                f"To leave a tenth of the gap, {form} needs fewer samples than the on-policy actor-critic and than "
                "refreshing every step.",
                bool(math.isfinite(need[form]) and min(ratios.values()) > 1),
                {"samples": need, "times fewer": ratios},
                "Algorithm 3, sample efficiency",
            )
        )
    cells = {
        f"{row['data']}, kappa {row['kappa']:g}, threshold {row['threshold']:g}": row["samples to goal"]
        for row in table
    }
    rival = need["refreshing every step"]
    claims.append(
        Claim(
            "So does every setting of kappa and the drift threshold.",
            max(cells.values()) < rival,
            {"refreshing every step": rival, "samples": cells},
            "Algorithm 3, sample efficiency",
        )
    )
    return claims


def _drift_claims(paths: dict[str, dict]) -> list[Claim]:
    never = paths["never refreshing"]
    starts = np.diff(never["epochs"], prepend=0, axis=1) > 0
    coverage, error = never["coverage"][starts], never["weight error"][starts] ** 2
    printed = paths["Delta > 2, as printed"]["epochs"][:, -1]
    return [
        Claim(
            "Where behaviour is never refreshed, the squared weight error grows no faster than C "
            "(slope at most 1.25 in log-log).",
            slope(coverage, error) <= 1.25,
            {"slope": slope(coverage, error), "C": [float(coverage.min()), float(coverage.max())]},
            "eq: xi-k-error",
        ),
        Claim(
            "The printed test Delta > 2 ends an epoch in these runs.",
            bool(printed.max() > 1),
            {"epochs": float(printed.mean())},
            "alg-linear-AC, line 15",
        ),
    ]


EXPERIMENT = Theorem2()
