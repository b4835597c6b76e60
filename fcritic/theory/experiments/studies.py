"""The sweeps behind the experiment on Theorem 1: one function per term of its bound."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array
import numpy as np

from fcritic.theory.evaluation import evaluate, evaluate_exact, fixed_point, projection
from fcritic.theory.precision import float64
from fcritic.theory.problems import Problem, disjoint_policies, linear_mdp, perturb, rare_action
from fcritic.theory.schedule import smallest_eigenvalue, step_for
from fcritic.theory.tasks import Task, make_task, task_of, value_errors
from fcritic.theory.trust import coverage


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """The slope of the straight line through log y over log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def slope_spread(x: np.ndarray, runs: np.ndarray) -> float:
    """The standard error of the slope of the mean of `runs`[places, seeds], by drawing seeds again 200 times."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, np.shape(runs)[1], (200, np.shape(runs)[1]))
    return float(np.std([slope(x, np.asarray(runs)[:, each].mean(1)) for each in drawn]))


def disjoint_task(seed: int) -> tuple[Task, np.ndarray]:
    """A linear MDP and two policies without a common action, with whitened features; and xi*."""
    mdp, features = linear_mdp(seed)
    target, behaviour = disjoint_policies(mdp, seed)
    features = features.whitened(mdp, target)
    return make_task(mdp, behaviour, target, features(target)), features.weights


def task_coverage(task: Task) -> float:
    """C(pi, mu) of a task."""
    return float(coverage(task.phi, task.target_pairs, task.pairs))


def keys_for(seeds: int, stream: int) -> Array:
    """Independent keys for a study."""
    return jax.random.split(jax.random.key(stream), seeds)


def outer_study(problems: int, outer: int) -> dict[str, Any]:
    """Squared error against T with an exact inner loop, on several problems; the corollary's identity beside it."""
    squared, identity = [], 0.0
    for seed in range(problems):
        task, weights = disjoint_task(seed)
        path = evaluate_exact(task, outer=outer)
        squared.append(value_errors(task, path) ** 2)
        gap = path - weights
        on_policy = np.einsum("sa,sai,saj->ij", task.target_pairs, task.phi, task.phi)
        in_weights = np.einsum("ti,ij,tj->t", gap, on_policy, gap)
        identity = max(identity, float(np.max(np.abs(in_weights - squared[-1])) / squared[-1][0]))
    squared, gamma = np.array(squared), float(task.gamma)
    allowed = gamma ** np.arange(outer + 1) * squared[:, :1]
    return {
        "gamma": gamma, "squared_error": squared, "largest_share_of_bound": np.max(squared / allowed),
        "factor_per_step": np.exp(np.polyfit(np.arange(outer + 1), np.log(squared).T, 1)[0]),
        "identity_gap": identity,
    }  # fmt: skip


@float64
def run_together(
    tasks: list[Task], keys: Array, *, outer: int, inner: int, steps: list[float], resets: list[bool], sampling: str
) -> Array:
    """Squared errors of Algorithm 2 on several tasks of one size at once, [tasks, seeds].

    The first target is the fixed point, so that gamma^T does not hide what noise adds.
    """

    def one(task: Task, first: Array, step: Array, reset: Array) -> Array:
        options = {"step": step, "reset": reset, "sampling": sampling, "first": first}
        return evaluate(task, keys, outer=outer, inner=inner, **options)[:, -1]

    stacked = jax.tree.map(lambda *arrays: np.stack(arrays), *tasks)
    first = np.stack([fixed_point(task) for task in tasks])
    weights = jax.vmap(one)(stacked, first, np.array(steps), np.array(resets))
    return np.stack([value_errors(task, each) ** 2 for task, each in zip(tasks, weights, strict=True)])


def inner_study(lengths: list[int], seeds: int, outer: int) -> dict[str, Any]:
    """Squared error against K, alpha = 10 / (lambda_min^+ K): as printed, with a warm start, along a trajectory."""
    task, _ = disjoint_task(0)
    uncovered = task_of(rare_action(0.0))
    found: dict[str, list] = {"printed": [], "warm": [], "uncovered": [], "trajectory": []}
    for index, inner in enumerate(lengths):
        keys = keys_for(seeds, index)
        step, other = step_for(task, inner), step_for(uncovered, inner)
        steps, resets = [step, step, other], [True, False, True]
        tasks, options = [task, task, uncovered], {"outer": outer, "inner": inner}
        squared = run_together(tasks, keys, steps=steps, resets=resets, sampling="independent", **options)
        path = run_together([task], keys, steps=[step], resets=[True], sampling="trajectory", **options)
        for name, each in zip(found, [*squared, *path], strict=True):
            found[name].append(each)
    spread = {name: slope_spread(lengths, each) for name, each in found.items()}
    means = {name: np.mean(each, 1) for name, each in found.items()}
    return {"inner": np.array(lengths), "rows": _rows(found, lengths), "slope_error": spread, **means}


def coverage_study(
    family: Callable[[float], Problem], shares: list[float], inner: int, seeds: int, outer: int
) -> dict[str, Any]:
    """Squared error against C at one K: alpha from the remark's relation, one alpha for all, least squares.

    With a warm start, so that a slow direction need not be learned anew in each inner loop.
    """
    tasks = [task_of(family(share)) for share in shares]
    related = [step_for(task, inner, decay=5.0) for task in tasks]
    common = [max(related)] * len(tasks)  # a smaller one would not forget its start everywhere
    options = {"outer": outer, "inner": inner, "sampling": "independent"}
    both = run_together(
        tasks * 2, keys_for(seeds, 100), steps=related + common, resets=[False] * 2 * len(tasks), **options
    )
    found = {
        "related": both[: len(tasks)], "common": both[len(tasks) :],
        "least_squares": np.stack([_least_squares(task, inner, seeds, outer) for task in tasks]),
    }  # fmt: skip
    covered = np.array([task_coverage(task) for task in tasks])
    rows = _rows({f"{family.__name__} {name}": each for name, each in found.items()}, covered)
    smallest = np.array([smallest_eigenvalue(task) for task in tasks])
    means = {name: each.mean(1) for name, each in found.items()}
    means["slope_error"] = {name: slope_spread(covered, each) for name, each in found.items()}
    return {"share": shares, "coverage": covered, "smallest": smallest, "steps": related, "rows": rows, **means}


def _least_squares(task: Task, inner: int, seeds: int, outer: int) -> np.ndarray:
    """Squared errors of fitted-Q: each outer step solves its regression on K new transitions."""
    joint = (task.pairs[:, :, None] * task.P).ravel()
    phi = task.phi.reshape(-1, task.phi.shape[-1])
    squared = []
    for seed in range(seeds):
        rng, weights = np.random.default_rng(seed), fixed_point(task)
        for _ in range(outer):
            counts = rng.multinomial(inner, joint / joint.sum()).reshape(len(phi), -1)
            values = np.clip(phi @ weights, 0, 1 / (1 - task.gamma)).reshape(task.r.shape)
            targets = counts.sum(1) * task.r.ravel() + task.gamma * counts @ (values * task.target).sum(1)
            weights = np.linalg.pinv((phi.T * counts.sum(1)) @ phi, hermitian=True) @ (phi.T @ targets)
        squared.append(float(value_errors(task, weights)) ** 2)
    return np.array(squared)


def approximation_study(sizes: np.ndarray, problems: int, outer: int) -> dict[str, Any]:
    """Squared error of the exact iteration against the error E_approx that was put into the features.

    E_approx is the largest misfit, over pairs and iterations, of the least-squares fit to the target's backup.
    """
    injected, squared, bounds = np.zeros((problems, len(sizes))), np.zeros((problems, len(sizes))), []
    for seed in range(problems):
        mdp, features = linear_mdp(seed)
        target, behaviour = disjoint_policies(mdp, seed)
        features = features.whitened(mdp, target)
        for index, size in enumerate(sizes):
            task = make_task(mdp, behaviour, target, perturb(mdp, features, size, seed)(target))
            path = evaluate_exact(task, outer=outer)
            injected[seed, index] = _misfit(task, path)
            squared[seed, index] = value_errors(task, path[-1]) ** 2
            bounds.append(((1 + np.sqrt(task_coverage(task))) / (1 - mdp.gamma) * injected[seed, index]) ** 2)
    bounds = np.array(bounds).reshape(problems, len(sizes))
    return {"size": sizes, "injected": injected, "squared_error": squared, "bound": bounds}


def _misfit(task: Task, path: np.ndarray) -> float:
    """E_approx along a path of targets."""
    even = task._replace(
        states=np.full(len(task.states), 1 / len(task.states)), behaviour=np.full(task.r.shape, 1 / task.r.shape[1])
    )
    fit, phi = np.asarray(projection(even)), task.phi.reshape(-1, task.phi.shape[-1])
    largest = 0.0
    for weights in path[:: max(1, len(path) // 50)]:
        values = np.clip(phi @ weights, 0, 1 / (1 - task.gamma)).reshape(task.r.shape)
        backup = task.mdp.backup(task.target, values).ravel()
        largest = max(largest, float(np.max(np.abs(phi @ (fit @ backup) - backup))))
    return largest


def plateau_study(outer: int) -> dict[str, Any]:
    """The exact iteration where C is infinite, and beside it where the missing action has a share of 5 %."""
    missing, covered = task_of(rare_action(0.0)), task_of(rare_action(0.05))
    return {
        "coverage": task_coverage(missing),
        "uncovered": value_errors(missing, evaluate_exact(missing, outer=outer)) ** 2,
        "covered": value_errors(covered, evaluate_exact(covered, outer=outer)) ** 2,
        "value_range": missing.mdp.value_range,
    }


def _rows(found: dict[str, Any], at: Any) -> list[dict[str, Any]]:
    """One row for each study, place and seed."""
    return [
        {"study": name, "at": place, "seed": seed, "squared_error": squared}
        for name, each in found.items()
        for place, seeds in zip(at, each, strict=True)
        for seed, squared in enumerate(seeds)
    ]
