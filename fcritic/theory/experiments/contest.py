"""All methods on one problem, from the same first weights and with as many transitions."""

import jax
from jax import Array
import numpy as np

from fcritic.theory.evaluation import evaluate, evaluate_exact
from fcritic.theory.precision import float64
from fcritic.theory.problems import Problem
from fcritic.theory.rivals import AbstractRival, Corrected, Emphatic, SemiGradient, SoftTarget, learn_all, lstd
from fcritic.theory.tasks import Task, task_of, value_errors

OUTER, INNER, STEP = 800, 2000, 0.2
"""T, K and alpha of Algorithm 2. Its first error shrinks by gamma^T = 3e-4."""
RECORDS = 40
SEMI_GRADIENT = "semi-gradient TD"
PRINTED, WARM, FREE = "Algorithm 2", "Algorithm 2, warm start", "Algorithm 2, warm start, not truncated"
VARIANTS = {PRINTED: (True, True), WARM: (True, False), FREE: (False, False)}
"""Truncation and reset of each."""


def rivals(quick: bool) -> dict[tuple[str, float], AbstractRival]:
    """Rivals by name and step size; in full, two step sizes each."""
    found: dict[tuple[str, float], AbstractRival] = {}
    for step in (0.01,) if quick else (0.01, 0.1):
        found |= {
            (SEMI_GRADIENT, step): SemiGradient(step),
            ("TDC", step): Corrected(step, 0.0),
            ("TDRC", step): Corrected(step),
            ("emphatic TD", step / 100): Emphatic(step / 100),
            ("soft target, ridge 0.01", step): SoftTarget(step, ridge=0.01),
            ("soft target, ridge 0.1", step): SoftTarget(step, ridge=0.1),
        }
    return found


@float64
def _run_algorithm(task: Task, keys: Array, first: np.ndarray) -> Array:
    """The weights of all variants of Algorithm 2, [variants, seeds, records + 1, d]."""

    def variant(truncate: Array, reset: Array) -> Array:
        options = {"truncate": truncate, "reset": reset, "sampling": "trajectory", "first": first}
        return evaluate(task, keys, outer=OUTER, inner=INNER, step=STEP, **options)[:, :: OUTER // RECORDS]

    truncate, reset = np.array(list(VARIANTS.values())).T
    return jax.vmap(variant)(truncate, reset)


def run_all(problem: Problem, keys: Array, quick: bool) -> dict[tuple[str, float], np.ndarray]:
    """Errors of every method on a problem, [seeds, records + 1] by name and step size."""
    task = task_of(problem)
    weights = dict(zip([(name, STEP) for name in VARIANTS], _run_algorithm(task, keys, problem.first), strict=True))
    every = length(SEMI_GRADIENT, quick) // RECORDS
    weights |= learn_all(rivals(quick), task, keys, records=RECORDS, every=every, first=problem.first)
    return {name: value_errors(task, each) for name, each in weights.items()}


def length(method: str, quick: bool) -> int:
    """Transitions of a run."""
    return OUTER * INNER // (8 if quick and method not in VARIANTS else 1)


def oracles(problem: Problem) -> dict[str, float]:
    """Errors of solutions with the true distributions: TD's fixed point, and 3000 steps of fitted-Q."""
    task = task_of(problem)
    fitted = evaluate_exact(task, outer=3000, truncate=False, first=problem.first)[-1]
    last = float(np.nan_to_num(value_errors(task, fitted), nan=np.inf))  # infinity minus infinity
    return {"LSTD-Q": float(value_errors(task, lstd(task))), "fitted-Q": last}
