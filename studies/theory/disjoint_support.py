"""A target and a behaviour that share no action: no importance ratio exists, yet functional features carry over."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from fcritic.errors import UsageError
from fcritic.results.plots import panels
from fcritic.study.spec import Findings, Study, Trainings, Verdict, judged
from fcritic.theory.evaluation import Task, evaluate, make_task, step_for, value_errors
from fcritic.theory.features import AbstractFeatures, Fixed, tabular
from fcritic.theory.mdp import FiniteMDP
from fcritic.theory.problems import disjoint_policies, linear_mdp, random_policy
from fcritic.theory.trust import coverage
from studies.theory.rivals import Emphatic, learn

OUTER, INNER = 60, 4000
LIMIT = 0.02
"""Of the value range 1 / (1 - gamma): the largest error that counts as converged."""
WHITE, PLAIN, FACTORS, TABULAR = "successor, whitened", "successor", "x(s, a)", "tabular"
RUNS = {
    "functional, as printed": (WHITE, {}),
    "functional, warm start": (WHITE, {"reset": False}),
    "functional, warm start, trajectory": (WHITE, {"reset": False, "sampling": "trajectory"}),
    "not whitened, warm start": (PLAIN, {"reset": False}),
    "x(s, a), warm start": (FACTORS, {"reset": False}),
    "tabular, warm start": (TABULAR, {"reset": False}),
}
"""Features and options of each run."""
CONVERGES = tuple(RUNS)[:3]


class DisjointSupport(Study):
    """Target on the lower half of the actions, behaviour on the upper half, in linear MDPs."""

    name = "disjoint-support"
    question = (
        "Where target and behaviour share no action, importance ratios do not exist and tabular features learn "
        "nothing, but Algorithm 2 with functional features still converges, because C(pi, mu) is finite."
    )

    def find(self, runs: Trainings, quick: bool) -> Findings:
        """Three MDPs with 30 seeds each; quick: one with 10."""
        problems, seeds = (1, 10) if quick else (3, 30)
        shares: dict[str, list[np.ndarray]] = {name: [] for name in RUNS}
        spread: dict[str, list[float]] = {name: [] for name in RUNS}
        covered: dict[str, list[float]] = {name: [] for name in (WHITE, FACTORS, TABULAR)}
        refused, scatter, elsewhere = [], {}, []
        for problem in range(problems):
            mdp, target, behaviour, features = _problem(problem)
            tasks = {name: make_task(mdp, behaviour, target, each(target)) for name, each in features.items()}
            refused.append(_ratios_refused(tasks[WHITE]))
            for name, each in covered.items():
                each.append(_coverage(tasks[name]))
            for name, (kind, options) in RUNS.items():
                weights = _weights(tasks[kind], seeds, problem, options)
                shares[name].append(value_errors(tasks[kind], weights) / mdp.value_range)
                spread[name].append(shares[name][-1][:, -1].max() * mdp.value_range / _spread(tasks[kind]))
                if problem == 0 and name in (CONVERGES[1], "tabular, warm start"):
                    scatter[name] = _scatter(tasks[kind], weights[0, -1])
                if name == CONVERGES[1]:
                    elsewhere.append(_elsewhere(mdp, features[WHITE], weights[:, -1]))
        paths = {name: np.concatenate(each) for name, each in shares.items()}
        data = {"share_of_range": {name: np.median(each, axis=0) for name, each in paths.items()},
                "coverage": covered, "scatter": scatter, "inner": INNER}  # fmt: skip
        rows = [
            {"run": name, "problem": index // seeds, "seed": index % seeds, "final_share_of_range": path[-1]}
            for name, each in paths.items()
            for index, path in enumerate(each)
        ]
        return Findings(_claims(paths, spread, covered, refused), rows, data, _notes(paths, elsewhere))

    def draw(self, findings: Findings, path: Path) -> None:
        """Error against transitions; learned against true values of the target's pairs."""
        data = findings.plot
        with panels(path, 2, "Disjoint support: target and behaviour share no action", width=5.6) as axes:
            for name, share in data["share_of_range"].items():
                transitions = data["inner"] * np.arange(len(share))
                axes[0].plot(
                    transitions, 100 * np.array(share), label=name, linestyle="-" if name in CONVERGES else "--"
                )
            axes[0].axhline(100 * LIMIT, color="grey", linewidth=0.8, linestyle=":", label="2 %")
            axes[0].set(yscale="log", xlabel="transitions", ylabel="median error, % of the value range")
            for index, (name, points) in enumerate(data["scatter"].items()):
                axes[1].plot(
                    points["truth"], points["learned"], "ox"[index], markersize=5, label=name, fillstyle="none"
                )
            axes[1].axline((0, 0), slope=1, color="grey", linewidth=0.8)
            axes[1].set(xlabel="Q of the target's pairs", ylabel="learned", title="one seed")
            for axis in axes:
                axis.legend(frameon=False, fontsize=8)


def _problem(seed: int) -> tuple[FiniteMDP, np.ndarray, np.ndarray, dict[str, AbstractFeatures]]:
    mdp, features = linear_mdp(seed)
    target, behaviour = disjoint_policies(mdp, seed)
    kinds = {
        WHITE: features.whitened(mdp, target), PLAIN: features, FACTORS: Fixed(features.x), TABULAR: tabular(mdp)
    }  # fmt: skip
    return mdp, target, behaviour, kinds


def _weights(task: Task, seeds: int, stream: int, options: dict[str, Any]) -> np.ndarray:
    keys = jax.random.split(jax.random.key(stream), seeds)
    return evaluate(task, keys, outer=OUTER, inner=INNER, step=step_for(task, INNER), **options)


def _coverage(task: Task) -> float:
    return float(coverage(task.phi, task.target_pairs, task.pairs))


def _ratios_refused(task: Task) -> bool:
    """Whether a method with importance ratios finds that there are none."""
    try:
        learn(Emphatic(1e-3), task, jax.random.split(jax.random.key(0), 1), records=1, every=1)
    except UsageError:
        return bool(np.max(np.asarray(task.target) * np.asarray(task.behaviour)) == 0)
    return False


def _scatter(task: Task, weights: np.ndarray) -> dict[str, np.ndarray]:
    """True and learned values of the pairs that the target takes."""
    taken = task.target > 0
    return {"truth": task.mdp.q(task.target)[taken], "learned": (task.phi @ weights)[taken]}


def _spread(task: Task) -> float:
    """The standard deviation of Q^pi under the target's distribution: what is left to know besides its mean."""
    truth = task.mdp.q(task.target)
    mean = np.sum(task.target_pairs * truth)
    return float(np.sqrt(np.sum(task.target_pairs * (truth - mean) ** 2)))


def _elsewhere(mdp: FiniteMDP, features: AbstractFeatures, weights: np.ndarray, policies: int = 10) -> np.ndarray:
    """Errors of the same weights on other policies, [policies, seeds], as a share of the value range."""
    found = []
    for seed in range(policies):
        pi = random_policy(mdp, 1000 + seed)
        found.append(value_errors(make_task(mdp, pi, pi, features(pi)), weights) / mdp.value_range)
    return np.array(found)


def _claims(
    paths: dict[str, np.ndarray],
    spread: dict[str, list[float]],
    covered: dict[str, list[float]],
    refused: list[bool],
) -> list[Verdict]:
    claims = [
        judged("Importance ratios do not exist: emphatic TD is refused", all(refused), {"problems": len(refused)},
               "", "control"),
        judged(
            "C(pi, mu) is finite with functional features and infinite with tabular ones",
            bool(np.isfinite(covered[WHITE]).all() and np.isinf(covered[TABULAR]).all()),
            {"C": covered[WHITE], "C with x(s, a)": covered[FACTORS], "C tabular": covered[TABULAR]},
            "eq:eval_metric",
            "paper",
        ),
    ]  # fmt: skip
    for name in CONVERGES:
        final = paths[name][:, -1]
        figures = {"largest": final.max(), "median": np.median(final), "runs": len(final),
                   "largest, in standard deviations of Q": max(spread[name])}  # fmt: skip
        statement = f"Algorithm 2 ({name}) ends below 2 % of the value range in every run"
        claims.append(judged(statement, bool((final < LIMIT).all()), figures, "thm-evaluation", "paper"))
    path = paths["tabular, warm start"]
    figures = {"smallest final share of the range": path[:, -1].min(), "first": path[:, 0].min()}
    stays = bool((path[:, -1] > 0.99 * path[:, 0]).all())
    claims.append(
        judged("With tabular features the error stays where it began", stays, figures, "eq:eval_metric", "control")
    )
    return claims


def _notes(paths: dict[str, np.ndarray], elsewhere: list[np.ndarray]) -> list[str]:
    others = [
        f"{name} {np.median(paths[name][:, -1]):.2%}"
        for name in ("not whitened, warm start", "x(s, a), warm start")
    ]
    spread = np.concatenate(elsewhere)
    return [
        f"median final error as a share of the value range: {', '.join(others)}",
        f"the same weights on 10 random policies that were never evaluated: median {np.median(spread):.2%}, "
        f"largest {spread.max():.2%}",
    ]


STUDY = DisjointSupport()
