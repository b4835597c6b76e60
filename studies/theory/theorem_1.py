"""Theorem 1, term by term: how the error of Algorithm 2 falls with T and K, and grows with C and E_approx."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax import Array
import numpy as np

from fcritic.results.plots import panels
from fcritic.study.spec import Findings, Study, Trainings, Verdict, judged
from fcritic.theory.evaluation import (
    Task,
    evaluate,
    evaluate_exact,
    fixed_point,
    make_task,
    printed_choice,
    projection,
    smallest_eigenvalue,
    step_for,
    task_of,
    value_errors,
)
from fcritic.theory.mdp import float64
from fcritic.theory.problems import Problem, disjoint_policies, idle_behaviour, linear_mdp, perturb, rare_action
from fcritic.theory.trust import coverage
from studies.theory.control import slope

FAMILIES = {"all but one direction rare": idle_behaviour, "one direction rare": rare_action}
"""Two ways in which behaviour can cover little."""
FULL = {
    "outer": (10, 100),
    "inner": ([2000, 4000, 8000, 16_000, 32_000, 64_000], 50, 30),
    "all but one direction rare": ([0.6, 0.3, 0.15, 0.08, 0.04], 64_000, 50, 30),
    "one direction rare": ([0.25, 0.1, 0.05, 0.02, 0.01, 0.005], 64_000, 50, 30),
    "approximation": (np.geomspace(1e-4, 0.1, 7), 5, 300),
}
QUICK = {
    "outer": (4, 100),
    "inner": ([2000, 4000, 8000, 16_000], 60, 4),
    "all but one direction rare": ([0.6, 0.2, 0.06], 64_000, 30, 3),
    "one direction rare": ([0.2, 0.05, 0.01], 64_000, 30, 3),
    "approximation": (np.geomspace(1e-4, 0.1, 4), 3, 300),
}
"""Arguments of each study: places, K, seeds, T."""


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


class TheoremOne(Study):
    """Judges the bound gamma^T + C (epsilon^2 + E_approx^2) + E_approx^2 by the slope of each term."""

    name = "theorem-1"
    question = (
        "The squared error of Algorithm 2 under the target's distribution is at most of the order of "
        "gamma^T + C(pi, mu) (1/K + E_approx^2) + E_approx^2, and nothing is promised where C is infinite."
    )

    def find(self, runs: Trainings, quick: bool) -> Findings:
        """Five studies on linear MDPs with d = 6, gamma 0.9; 50 seeds; quick has fewer places and iterations."""
        plan = QUICK if quick else FULL
        outer = outer_study(*plan["outer"])
        inner = inner_study(*plan["inner"])
        covered = {name: coverage_study(family, *plan[name]) for name, family in FAMILIES.items()}
        injected = approximation_study(*plan["approximation"])
        plateau = plateau_study(outer=200)
        claims = [
            *_outer_claims(outer), *_inner_claims(inner), *_coverage_claims(covered),
            *_approximation_claims(injected), *_plateau_claims(plateau, inner),
        ]  # fmt: skip
        rows = inner.pop("rows") + [row for each in covered.values() for row in each.pop("rows")]
        data = {"outer": outer, "inner": inner, "coverage": covered, "approximation": injected, "plateau": plateau}
        return Findings(claims, rows, data, [_remark_note(), *_coverage_notes(covered)])

    def draw(self, findings: Findings, path: Path) -> None:
        """One panel per term."""
        data = findings.plot
        title = "Theorem 1: squared error of Algorithm 2 under the target's distribution"
        with panels(path, 2, title, width=6.4, rows=2) as axes:
            _draw_outer(axes[0], data["outer"])
            _draw_inner(axes[1], data["inner"])
            _draw_coverage(axes[2], data["coverage"])
            _draw_approximation(axes[3], data["approximation"])
            for axis in axes:
                axis.set_ylabel("squared error")
                axis.legend(frameon=False, fontsize=8)
                axis.xaxis.set_minor_formatter("")


def _outer_claims(outer: dict[str, Any]) -> list[Verdict]:
    share, factors = outer["largest_share_of_bound"], outer["factor_per_step"]
    return [
        judged(
            "Over outer iterations the squared error falls at least as fast as gamma^T (exact inner loop)",
            bool(share <= 1 + 1e-9),
            {"largest error / (gamma^T first error)": share, "factor per step": [factors.min(), factors.max()],
             "gamma": outer["gamma"], "gamma squared": outer["gamma"] ** 2, "problems": len(factors)},
            "thm-evaluation", "paper",
        ),
        judged(
            "The value error under d_pi equals the distance of the weights in the norm of A_pi",
            bool(outer["identity_gap"] < 1e-9), {"largest relative gap": outer["identity_gap"]},
            "cor:weight_conv", "paper",
        ),
    ]  # fmt: skip


def _inner_claims(inner: dict[str, Any]) -> list[Verdict]:
    claims = []
    names = {"printed": "as printed", "warm": "with a warm start", "trajectory": "as printed, along a trajectory"}
    for name, words in names.items():
        found = slope(inner["inner"], inner[name])
        ends = [inner[name][0], inner[name][-1]]
        figures = {"slope": found, "standard error": inner["slope_error"][name], "squared error": ends}
        statement = f"Over the inner length K the squared error falls as 1/K: slope -1 within 0.15, {words}"
        claims.append(judged(statement, bool(abs(found + 1) <= 0.15), figures, "thm-evaluation", "paper"))
    return claims


def _coverage_claims(covered: dict[str, Any]) -> list[Verdict]:
    claims = []
    names = {"related": "alpha = 5 / (lambda_min^+ K)", "least_squares": "inner loop by least squares"}
    for family, study in covered.items():
        for name, words in names.items():
            found = slope(study["coverage"], study[name])
            other = slope(1 / study["smallest"], study[name])
            figures = {"slope": found, "standard error": study["slope_error"][name], "C": study["coverage"],
                       "slope over 1 / lambda_min^+": other}  # fmt: skip
            statement = f"At one K the squared error grows as C: slope 1 within 0.25, {words}, {family}"
            claims.append(judged(statement, bool(abs(found - 1) <= 0.25), figures, "thm-evaluation", "paper"))
    return claims


def _approximation_claims(injected: dict[str, Any]) -> list[Verdict]:
    slopes = [slope(x**2, y) for x, y in zip(injected["injected"], injected["squared_error"], strict=True)]
    share = np.max(injected["squared_error"] / injected["bound"])
    return [
        judged(
            "Over injected error the squared error grows as E_approx^2: slope 1 within 0.25 in every problem",
            bool(max(abs(each - 1) for each in slopes) <= 0.25), {"slopes": slopes}, "thm-evaluation", "paper",
        ),
        judged(
            "It never passes ((1 + sqrt C) E_approx / (1 - gamma))^2, which has no lambda_min^+ in it",
            bool(share <= 1), {"largest error / bound": share}, "our constant, see docs/theory.md",
        ),
    ]  # fmt: skip


def _plateau_claims(plateau: dict[str, Any], inner: dict[str, Any]) -> list[Verdict]:
    end, half = plateau["uncovered"][-1], plateau["uncovered"][len(plateau["uncovered"]) // 2]
    stays = np.isinf(plateau["coverage"]) and end > 0.99 * half and end > 1e-2
    found = slope(inner["inner"], inner["uncovered"])
    return [
        judged(
            "Where C is infinite the error stays, for T, K to infinity; with a share of 5 % it vanishes",
            bool(stays and plateau["covered"][-1] < 1e-6),
            {"squared error": end, "at half as many iterations": half, "with 5 %": plateau["covered"][-1],
             "root, as a share of the value range": np.sqrt(end) / plateau["value_range"]},
            "eq:eval_metric", "paper",
        ),
        judged(
            "Where C is infinite more samples do not help: slope over K above -0.15",
            bool(found > -0.15), {"slope": found}, "eq:eval_metric", "paper",
        ),
    ]  # fmt: skip


def _remark_note() -> str:
    task, _ = disjoint_task(0)
    choice = printed_choice(task, 0.01)
    return (
        f"the remark's explicit choice for epsilon 0.01 is alpha {choice.step:.1e} and K {choice.inner:.1e} "
        f"(lambda_min^+ {choice.smallest:.2g}, rho {choice.rate:.2g}): never run"
    )


def _coverage_notes(covered: dict[str, Any]) -> list[str]:
    return [
        f"{family}: with one alpha for all behaviours the slope over C is "
        f"{slope(study['coverage'], study['common']):.2f}"
        for family, study in covered.items()
    ]


def _draw_outer(axis, outer: dict[str, Any]) -> None:
    squared = np.array(outer["squared_error"])
    steps = np.arange(squared.shape[1])
    highest = squared[:, 0].max()
    axis.plot(steps, squared.T, color="C0", linewidth=1)
    axis.plot([], [], color="C0", label="exact inner loop, one line a problem")
    axis.plot(steps, highest * outer["gamma"] ** steps, "k--", label="gamma^T")
    axis.plot(steps, highest * outer["gamma"] ** (2 * steps), "k:", label="gamma^(2 T)")
    axis.set(yscale="log", xlabel="outer iterations T", title="T")


def _draw_inner(axis, inner: dict[str, Any]) -> None:
    lengths = np.array(inner["inner"])
    names = {"printed": "as printed", "warm": "warm start", "trajectory": "as printed, trajectory"}
    for name, label in {**names, "uncovered": "C infinite"}.items():
        label = f"{label}: slope {slope(lengths, np.array(inner[name])):.2f}"
        axis.plot(lengths, inner[name], "o-", markersize=4, label=label, linewidth=1.2)
    axis.plot(lengths, inner["printed"][0] * lengths[0] / lengths, "k:", label="slope -1")
    axis.set(xscale="log", yscale="log", xlabel="inner length K", title="K")


def _draw_coverage(axis, covered: dict[str, Any]) -> None:
    names = {"related": "alpha = 5 / (lambda K)", "least_squares": "least squares", "common": "one alpha"}
    for family, style in zip(covered, ("o-", "x--"), strict=True):
        at = np.array(covered[family]["coverage"])
        for index, (name, label) in enumerate(names.items()):
            runs = np.array(covered[family][name])
            label = f"{label}, {family}: slope {slope(at, runs):.2f}"
            axis.plot(at, runs, style, color=f"C{index}", markersize=4, label=label, linewidth=1.2)
        axis.plot(at, covered[family]["least_squares"][0] * at / at[0], "k:", linewidth=1)
    axis.plot([], [], "k:", label="slope 1")
    axis.set(xscale="log", yscale="log", xlabel="coverage C(pi, mu)", title="C at one K")
    axis.set_ylim(top=100 * axis.get_ylim()[1])  # room for the legend


def _draw_approximation(axis, injected: dict[str, Any]) -> None:
    errors, found, bounds = (np.transpose(injected[name]) for name in ("injected", "squared_error", "bound"))
    axis.plot(errors, found, "o-", color="C0", markersize=3, linewidth=1)
    axis.plot(errors, bounds, "k:")
    axis.plot([], [], "o-", color="C0", markersize=3, label="error, one line a problem")
    axis.plot([], [], "k:", label="((1 + sqrt C) E / (1 - gamma))^2")
    axis.set(xscale="log", yscale="log", xlabel="injected error E_approx", title="E_approx, exact inner loop")


STUDY = TheoremOne()
