"""The sweeps behind the experiment on Theorem 1: one function per term of its bound."""

from typing import Any

import jax
import numpy as np

from fcritic.theory.evaluation import evaluate, evaluate_exact, projection
from fcritic.theory.problems import disjoint_policies, linear_mdp, perturb, rare_action
from fcritic.theory.schedule import smallest_eigenvalue, step_for
from fcritic.theory.tasks import Task, make_task, task_of, value_errors
from fcritic.theory.trust import coverage


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """The slope of the straight line through log y over log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def disjoint_task(seed: int) -> tuple[Task, np.ndarray]:
    """A linear MDP and two policies without a common action, with whitened features; and xi*."""
    mdp, features = linear_mdp(seed)
    target, behaviour = disjoint_policies(mdp, seed)
    features = features.whitened(mdp, target)
    return make_task(mdp, behaviour, target, features(target)), features.weights


def task_coverage(task: Task) -> float:
    """C(pi, mu) of a task."""
    return float(coverage(task.phi, task.target_pairs, task.pairs))


def keys_for(seeds: int, stream: int) -> jax.Array:
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


def inner_study(lengths: list[int], seeds: int, outer: int) -> dict[str, Any]:
    """Squared error against K, alpha = 10 / (lambda_min^+ K): as printed, with a warm start, along a trajectory."""
    task, _ = disjoint_task(0)
    uncovered = task_of(rare_action(0.0))
    found: dict[str, list] = {"printed": [], "warm": [], "trajectory": [], "uncovered": []}
    rows = []
    for index, inner in enumerate(lengths):
        runs = {
            "printed": (task, {}),
            "warm": (task, {"reset": False}),
            "trajectory": (task, {"sampling": "trajectory"}),
            "uncovered": (uncovered, {}),
        }
        for name, (each, options) in runs.items():
            step = step_for(each, inner)
            weights = evaluate(each, keys_for(seeds, index), outer=outer, inner=inner, step=step, **options)
            squared = value_errors(each, weights[:, -1]) ** 2
            found[name].append(squared.mean())
            rows += [_row(name, inner, seed, value) for seed, value in enumerate(squared)]
    return {"inner": np.array(lengths), "rows": rows, **{name: np.array(each) for name, each in found.items()}}


def coverage_study(shares: list[float], inner: int, seeds: int, outer: int) -> dict[str, Any]:
    """Squared error against C at one K: alpha from the remark's relation, one alpha for all, least squares."""
    tasks = [task_of(rare_action(share)) for share in shares]
    common = min(step_for(task, inner) for task in tasks)
    found: dict[str, list] = {"related": [], "common": [], "least_squares": []}
    rows, covered = [], [task_coverage(task) for task in tasks]
    for index, task in enumerate(tasks):
        keys = keys_for(seeds, 100 + index)
        for name, step in {"related": step_for(task, inner), "common": common}.items():
            weights = evaluate(task, keys, outer=outer, inner=inner, step=step, reset=False)
            found[name].append(value_errors(task, weights[:, -1]) ** 2)
        found["least_squares"].append(_least_squares(task, inner, seeds, outer))
        for name, each in found.items():
            rows += [_row(f"C {name}", covered[index], seed, value) for seed, value in enumerate(each[-1])]
    means = {name: np.mean(each, axis=1) for name, each in found.items()}
    smallest = [smallest_eigenvalue(task) for task in tasks]
    return {"share": shares, "coverage": np.array(covered), "smallest": smallest, "rows": rows, **means}


def _least_squares(task: Task, inner: int, seeds: int, outer: int) -> np.ndarray:
    """Squared errors of fitted-Q: each outer step solves its regression on K new transitions."""
    joint = (task.pairs[:, :, None] * task.P).ravel()
    phi = task.phi.reshape(-1, task.phi.shape[-1])
    squared = []
    for seed in range(seeds):
        rng, weights = np.random.default_rng(seed), np.zeros(phi.shape[1])
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


def _row(study: str, at: float, seed: int, squared: float) -> dict[str, Any]:
    return {"study": study, "at": at, "seed": seed, "squared_error": squared}
