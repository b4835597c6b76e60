"""Whether the coefficients of eq. (9) bound the error of the gradient along the paths of Algorithm 3.

Protocol. Algorithm 3 runs with critics fitted on sampled transitions, on several linear MDPs, with tabular and with
log-linear softmax policies, once with epochs that end by drift and once with a single epoch, so that the actor goes
far from its reference. At every step the error of the gradient, and the largest one that any weight error of the
same A_k-norm could cause, are compared with each reading of the bound.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.results.plots import panels
from fcritic.study.spec import Findings, Study, Trainings, Verdict, judged
from fcritic.theory.control import Control, Fitted, LogLinear, Settings, actor_critic, assess, coefficients
from fcritic.theory.problems import linear_mdp, uniform_policy

ROUNDING = 1 + 1e-9
STATES, ACTIONS, DIM = 10, 3, 4
CRITIC = Fitted(1000)
SETTINGS = {
    "drift ends epochs": Settings(steps=1, step_size=2.0, trigger="feature-distance", threshold=0.25),
    "one epoch": Settings(steps=1, step_size=2.0, trigger="feature-distance", threshold=math.inf),
}


def problems(count: int) -> dict[str, Control]:
    """Linear MDPs, each with a tabular softmax policy and with one of five features."""
    made, size = {}, STATES * ACTIONS
    for seed in range(count):
        mdp, features = linear_mdp(seed, STATES, ACTIONS, DIM)
        first = uniform_policy(mdp)
        basis = np.random.default_rng(seed).normal(size=(STATES, ACTIONS, 5))
        # Both have the same number of columns, so that they share their compiled programs.
        padded = np.concatenate([basis, np.zeros((STATES, ACTIONS, size - 5))], axis=-1)
        bases = {"tabular": np.eye(size).reshape(STATES, ACTIONS, size), "log-linear": padded}
        for name, each in bases.items():
            whitened = features.whitened(mdp, first)
            made[f"MDP {seed}, {name}"] = Control(mdp, whitened, LogLinear(each), mdp.stationary(first))
    return made


def measure_path(problem: Control, settings: Settings, seeds: int) -> dict[str, np.ndarray]:
    """Errors and bounds at every step of every seed, flat; errors are divided by the weight error."""
    trace = actor_critic(problem, settings, CRITIC, np.zeros(problem.policy.size), seeds)
    found, bound = assess(problem, trace), coefficients(problem, trace)
    parts = {
        "largest": found.error_largest / found.weight_error,
        "length": found.error_length / found.weight_error,
        "first term": found.first_largest / found.weight_error,
        "start": np.diff(trace.epoch, prepend=-1, axis=1) > 0,
        "parameters": np.full(trace.epoch.shape, np.any(problem.policy.basis != 0, axis=(0, 1)).sum()),
    }
    parts |= {name: getattr(bound, name) for name in bound._fields}
    parts |= {"delta": bound.delta(), "delta printed": bound.delta("printed")}
    return {name: np.asarray(values).ravel() for name, values in parts.items()}


def violations(error: np.ndarray, bound: np.ndarray) -> dict[str, float]:
    """How often and how far an error exceeds its bound."""
    ratio = error / bound
    return {"share of steps": float(np.mean(ratio > ROUNDING)), "largest ratio": float(np.max(ratio))}


class MetricValidity(Study):
    """The bounds of eq. (9), corrected and as printed."""

    name = "metric-validity"
    question = (
        "Along the paths of Algorithm 3 the error of the gradient stays below C_1 + C_2, at most 2 Delta, times "
        "the weight error, with the corrected C_1. The printed C_1 and use of Delta are judged beside it."
    )

    def find(self, runs: Trainings, quick: bool) -> Findings:
        """All problems and both settings."""
        count, seeds, steps = (2, 3, 60) if quick else (6, 10, 200)
        rows, every = [], []
        for name, problem in problems(count).items():
            for setting, settings in SETTINGS.items():
                path = measure_path(problem, dataclasses.replace(settings, steps=steps), seeds)
                every.append(path)
                rows.append({"problem": name, "setting": setting} | _summary(path))
        joined = {name: np.concatenate([path[name] for path in every]) for name in every[0]}
        return Findings(_claims(joined), rows, _data(joined), _notes(joined))

    def draw(self, findings: Findings, path: Path) -> None:
        """Errors against bounds: below the diagonal the bound holds."""
        shown = {
            "largest component": ("corrected bound C_1 + C_2", "largest", "corrected", "exact"),
            "largest component of G_1": ("printed C_1", "first term", "printed", "first_exact"),
            "length": ("C_1 + C_2", "length", "corrected", "euclidean"),
        }
        points = {name: np.array(values) for name, values in findings.plot["points"].items()}
        with panels(path, 3, "Error of the gradient per unit of weight error, at every step", width=4.4) as axes:
            for axis, (what, (bound, error, limit, worst)) in zip(axes, shown.items(), strict=True):
                axis.loglog(
                    points[limit], points[worst], ".", ms=3, color="C1", label="worst weight error", rasterized=True
                )
                axis.loglog(
                    points[limit],
                    points[error],
                    ".",
                    ms=3,
                    color="C0",
                    label="actual weight error",
                    rasterized=True,
                )
                ends = np.array([points[limit].min(), points[limit].max()])
                axis.loglog(ends, ends, "k-", lw=1, label="error = bound")
                axis.set_xlabel(bound)
                axis.set_ylabel(f"error, {what}")
                ticks = [
                    tick
                    for tick in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
                    if ends[0] <= tick <= ends[1]
                ]
                axis.tick_params(axis="x", which="minor", labelbottom=False)
                axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes[0].legend(frameon=False, fontsize=8, loc="lower right", markerscale=3)


def _summary(path: dict[str, np.ndarray]) -> dict[str, float]:
    starts = path["start"] > 0
    return {
        "Delta at references": float(np.median(path["delta"][starts])),
        "Delta, largest": float(path["delta"].max()),
        "error over C_1 + C_2, largest": float((path["largest"] / (path["first"] + path["second"])).max()),
        "worst error over C_1 + C_2, largest": float((path["exact"] / (path["first"] + path["second"])).max()),
        "worst G_1 over printed C_1, largest": float((path["first_exact"] / path["first_printed"]).max()),
        "actual G_1 over printed C_1, largest": float((path["first term"] / path["first_printed"]).max()),
    }


def _data(joined: dict[str, np.ndarray]) -> dict[str, Any]:
    chosen = np.random.default_rng(0).permutation(joined["largest"].size)[:600]
    points = {
        name: joined[name][chosen]
        for name in ("largest", "exact", "first term", "first_exact", "length", "euclidean")
    }
    points["printed"] = joined["first_printed"][chosen]
    points["corrected"] = (joined["first"] + joined["second"])[chosen]
    return {"steps": joined["largest"].size, "points": points}


def _notes(joined: dict[str, np.ndarray]) -> list[str]:
    bound = joined["first"] + joined["second"]
    return [
        f"The actual error is {np.median(bound / joined['largest']):.3g} times below C_1 + C_2 in the median and "
        f"{np.min(bound / joined['largest']):.3g} times at the closest.",
        f"Delta is {np.median(joined['delta'][joined['start'] > 0]):.3g} at a reference in the median and exceeds "
        f"the printed threshold of 2 in {np.mean(joined['delta'] > 2):.1%} of all steps.",
    ]


def _claims(joined: dict[str, np.ndarray]) -> list[Verdict]:
    bound = joined["first"] + joined["second"]
    sides = np.sqrt(joined["parameters"])
    stated = [
        ("The largest component of the error is below C_1 + C_2 times the weight error, C_1 with absolute values.",
         joined["largest"], joined["exact"], bound, "eq: delta, corrected"),
        ("It is below 2 Delta times the weight error.",
         joined["largest"], joined["exact"], 2 * joined["delta"], "eq: delta, corrected"),
        ("The largest component of G_1 is below C_1 times the weight error, C_1 as printed.",
         joined["first term"], joined["first_exact"], joined["first_printed"], "eq: delta"),
        ("The largest component of the error is below Delta times the weight error, as printed.",
         joined["largest"], joined["exact"], joined["delta printed"], "text after eq: delta"),
        ("The length of the error is below C_1 + C_2 times the weight error, as the proof of Theorem 2 needs.",
         joined["length"], joined["euclidean"], bound, "eq-appendix: err-bound-grad"),
        ("The length of the error is below sqrt(dim theta) (C_1 + C_2) times the weight error.",
         joined["length"], joined["euclidean"], sides * bound, "thm-main-convergence, corrected"),
    ]  # fmt: skip
    return [
        judged(
            statement,
            bool(np.all(worst <= limit * ROUNDING) and np.all(actual <= limit * ROUNDING)),
            {"actual weight errors": violations(actual, limit), "worst weight errors": violations(worst, limit)},
            source,
            "corrected" if "corrected" in source else "paper",
        )
        for statement, actual, worst, limit, source in stated
    ]


STUDY = MetricValidity()
