"""All methods on one problem, from the same first weights and with as many transitions."""

import jax
from jax import Array
import numpy as np

from fcritic.theory.evaluation import evaluate, evaluate_exact
from fcritic.theory.precision import float64
from fcritic.theory.problems import Problem
from fcritic.theory.rivals import AbstractRival, Corrected, Emphatic, SemiGradient, SoftTarget, learn, lstd
from fcritic.theory.tasks import Task, task_of, value_errors

OUTER, INNER, STEP = 800, 2000, 0.2
"""T, K and alpha of Algorithm 2. Its first error shrinks by gamma^T = 3e-4."""
RECORDS = 40
SEMI_GRADIENT = "semi-gradient TD"
PRINTED, WARM, FREE = "Algorithm 2", "Algorithm 2, warm start", "Algorithm 2, warm start, not truncated"
VARIANTS = {PRINTED: (True, True), WARM: (True, False), FREE: (False, False)}
"""Truncation and reset of each."""


def _steps(quick: bool) -> tuple[float, ...]:
    return (0.01,) if quick else (0.01, 0.1)


def rivals(quick: bool) -> list[dict[tuple[str, float], AbstractRival]]:
    """Settings by name and step size; those in one dict are of one kind and run together."""
    steps = _steps(quick)
    return [
        {(SEMI_GRADIENT, step): SemiGradient(step) for step in steps},
        {("TDC", step): Corrected(step, 0.0) for step in steps}
        | {("TDRC", step): Corrected(step) for step in steps},
        {("emphatic TD", step / 100): Emphatic(step / 100) for step in steps},
        {
            (f"soft target, ridge {ridge:g}", step): SoftTarget(step, ridge=ridge)
            for ridge in (0.01, 0.1)
            for step in steps
        },
    ]


@float64
def _run_algorithm(task: Task, keys: Array, first: np.ndarray) -> Array:
    """The weights of all variants of Algorithm 2, [variants, seeds, records + 1, d]."""

    def variant(truncate: Array, reset: Array) -> Array:
        options = {"truncate": truncate, "reset": reset, "sampling": "trajectory", "first": first}
        return evaluate(task, keys, outer=OUTER, inner=INNER, step=STEP, **options)[:, :: OUTER // RECORDS]

    truncate, reset = np.array(list(VARIANTS.values())).T
    return jax.vmap(variant)(truncate, reset)


@float64
def _run_rivals(settings: list[AbstractRival], task: Task, keys: Array, first: np.ndarray, every: int) -> Array:
    """The weights of rivals of one kind, [settings, seeds, records + 1, d]."""
    stacked = jax.tree.map(lambda *numbers: np.array(numbers), *settings)
    return jax.vmap(lambda rival: learn(rival, task, keys, records=RECORDS, every=every, first=first))(stacked)


def run_all(problem: Problem, keys: Array, quick: bool) -> dict[tuple[str, float], np.ndarray]:
    """Errors of every method on a problem, [seeds, records + 1] by name and step size."""
    task = task_of(problem)
    weights = dict(zip([(name, STEP) for name in VARIANTS], _run_algorithm(task, keys, problem.first), strict=True))
    every = length(SEMI_GRADIENT, quick) // RECORDS
    for kind in rivals(quick):
        found = _run_rivals(list(kind.values()), task, keys, problem.first, every)
        weights |= dict(zip(kind, found, strict=True))
    return {name: value_errors(task, each) for name, each in weights.items()}


def length(method: str, quick: bool) -> int:
    """Transitions of a run."""
    return OUTER * INNER // (4 if quick and method not in VARIANTS else 1)


def oracles(problem: Problem) -> dict[str, float]:
    """Errors of solutions with the true distributions: TD's fixed point, and 5000 steps of fitted-Q."""
    task = task_of(problem)
    fitted = evaluate_exact(task, outer=5000, truncate=False, first=problem.first)[-1]
    return {"LSTD-Q": float(value_errors(task, lstd(task))), "fitted-Q": float(value_errors(task, fitted))}
