"""Classic problems on which TD diverges: how often each method does, and what Algorithm 2 makes of them."""

from pathlib import Path

import jax
from jax import Array
import numpy as np

from fcritic.results.plots import panels
from fcritic.study.spec import Findings, Study, Trainings, Verdict, judged
from fcritic.theory.evaluation import Task, evaluate, evaluate_exact, task_of, value_errors
from fcritic.theory.mdp import float64
from fcritic.theory.problems import Problem, baird, kolter, tsitsiklis_van_roy
from studies.theory.rivals import AbstractRival, Corrected, Emphatic, SemiGradient, SoftTarget, learn_all, lstd

SEEDS, QUICK_SEEDS = 30, 10
DIVERGED = 1e5
"""A run has diverged where its error has ever passed this, as in published comparisons."""
SHARES = np.linspace(0.5, 0.9, 41)
OUTER, INNER, STEP = 800, 2000, 0.2
"""T, K and alpha of Algorithm 2. Its first error shrinks by gamma^T = 3e-4."""
RECORDS = 40
SEMI_GRADIENT = "semi-gradient TD"
PRINTED, WARM, FREE = "Algorithm 2", "Algorithm 2, warm start", "Algorithm 2, warm start, not truncated"
VARIANTS = {PRINTED: (True, True), WARM: (True, False), FREE: (False, False)}
"""Truncation and reset of each."""
STYLES = {
    PRINTED: {"linewidth": 5, "alpha": 0.4},
    WARM: {"linewidth": 2.4},
    FREE: {"linewidth": 1.4, "linestyle": ":"},
}


def problems() -> dict[str, Problem]:
    """Baird's star as it is known and with rewards, so that zero is not its value; and Tsitsiklis-Van Roy."""
    rewards = np.random.default_rng(0).uniform(size=7)
    return {"baird": baird(), "baird-rewards": baird(rewards=rewards), "tsitsiklis-van-roy": tsitsiklis_van_roy()}


def _rivals(quick: bool) -> dict[tuple[str, float], AbstractRival]:
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


def _run_all(problem: Problem, keys: Array, quick: bool) -> dict[tuple[str, float], np.ndarray]:
    """Errors of every method on a problem, [seeds, records + 1] by name and step size."""
    task = task_of(problem)
    weights = dict(zip([(name, STEP) for name in VARIANTS], _run_algorithm(task, keys, problem.first), strict=True))
    every = _length(SEMI_GRADIENT, quick) // RECORDS
    weights |= learn_all(_rivals(quick), task, keys, records=RECORDS, every=every, first=problem.first)
    return {name: value_errors(task, each) for name, each in weights.items()}


def _length(method: str, quick: bool) -> int:
    """Transitions of a run."""
    return OUTER * INNER // (8 if quick and method not in VARIANTS else 1)


def _oracles(problem: Problem) -> dict[str, float]:
    """Errors of solutions with the true distributions: TD's fixed point, and 3000 steps of fitted-Q."""
    task = task_of(problem)
    fitted = evaluate_exact(task, outer=3000, truncate=False, first=problem.first)[-1]
    last = float(np.nan_to_num(value_errors(task, fitted), nan=np.inf))  # infinity minus infinity
    return {"LSTD-Q": float(value_errors(task, lstd(task))), "fitted-Q": last}


class Counterexamples(Study):
    """Runs every method on every counterexample from the same first weights, with as many transitions."""

    name = "counterexamples"
    question = (
        "Algorithm 2 converges where semi-gradient TD diverges and features are complete (Baird); without "
        "completeness, truncation keeps it bounded but wrong (Tsitsiklis-Van Roy)."
    )

    def find(self, runs: Trainings, quick: bool) -> Findings:
        """30 seeds of 1.6 million transitions for each method; quick: 10, and an eighth as long for rivals."""
        keys = jax.random.split(jax.random.key(0), QUICK_SEEDS if quick else SEEDS)
        errors: dict[tuple[str, str, float], np.ndarray] = {}
        for name, problem in problems().items():
            errors |= {(name, *method): each for method, each in _run_all(problem, keys, quick).items()}
        shares = _kolter_errors()
        summary = {key: _summary(each) for key, each in errors.items()}
        claims = [*_baird_claims(errors), *_tsitsiklis_claims(errors), *_kolter_claims(shares)]
        rows = [
            {"problem": key[0], "method": key[1], "step": key[2], "seed": seed, "final_error": path[-1],
             "diverged": bool(_diverged(path))}
            for key, paths in errors.items() for seed, path in enumerate(paths)
        ]  # fmt: skip
        table = [
            {
                "problem": name,
                "method": method,
                "step": step,
                "transitions": _length(method, quick),
                **figures,
            }
            for (name, method, step), figures in summary.items()
        ]
        oracles = {name: _oracles(problem) for name, problem in problems().items()}
        data = {"methods": table, "oracles": oracles, "kolter": shares}
        return Findings(claims, rows, data, [*_notes(summary), f"errors of the oracles: {_oracle_text(oracles)}"])

    def draw(self, findings: Findings, path: Path) -> None:
        """Error against transitions for two problems; Kolter's fixed points."""
        with panels(path, 3, "Counterexamples: error of Q under the target's distribution", width=5.2) as axes:
            for axis, problem in zip(axes, ("baird-rewards", "tsitsiklis-van-roy"), strict=False):
                _draw_paths(axis, findings.plot, problem)
            _draw_kolter(axes[2], findings.plot["kolter"])


def _diverged(paths: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return ~np.all(np.isfinite(paths) & (paths < DIVERGED), axis=-1)


def _summary(paths: np.ndarray) -> dict:
    return {
        "diverged": _diverged(paths).mean(),
        "final_error_median": np.median(paths[:, -1]),
        "final_error_largest": paths[:, -1].max(),
        "median_path": np.median(paths, axis=0),
    }


def _kolter_errors() -> dict[str, np.ndarray]:
    """Errors on Kolter's example as the data move to one state: best fit, TD's fixed point, exact Algorithm 2."""
    best, fixed, target = [], [], []
    for share in SHARES:
        task = task_of(kolter(share))
        phi = task.phi[:, 0, 0]
        truth = task.mdp.q(task.target)[:, 0]
        best.append(np.sqrt(np.mean((phi * (phi @ truth) / (phi @ phi) - truth) ** 2)))
        fixed.append(float(value_errors(task, lstd(task))))
        target.append(float(value_errors(task, evaluate_exact(task, outer=10_000)[-1])))
    return {"share": SHARES, "best": np.array(best), "td": np.array(fixed), "algorithm_2": np.array(target)}


def _of(errors: dict, problem: str, method: str) -> np.ndarray:
    """The errors of all step sizes of a method, [runs, records]."""
    return np.concatenate([each for key, each in errors.items() if key[:2] == (problem, method)])


def _baird_claims(errors: dict) -> list[Verdict]:
    claims = []
    for problem in ("baird", "baird-rewards"):
        semi = _diverged(_of(errors, problem, SEMI_GRADIENT))
        statement = f"{problem}: semi-gradient TD diverges in every run"
        claims.append(
            judged(statement, bool(semi.all()), {"diverged": semi.mean(), "runs": len(semi)}, "folklore", "control")
        )
        for method, how in ((PRINTED, "as printed"), (WARM, "with a warm start")):
            final = _of(errors, problem, method)[:, -1]
            figures = {"largest_error": final.max(), "median_error": np.median(final), "seeds": len(final)}
            statement = f"{problem}: Algorithm 2 {how} ends below 0.05 in every seed"
            claims.append(judged(statement, bool((final < 0.05).all()), figures, "thm-evaluation", "paper"))
    return claims


def _tsitsiklis_claims(errors: dict) -> list[Verdict]:
    problem = "tsitsiklis-van-roy"
    gamma = tsitsiklis_van_roy().mdp.gamma
    cut, free = _of(errors, problem, WARM), _diverged(_of(errors, problem, FREE))
    figures = {
        "largest_error_ever": cut.max(),
        "smallest_final_error": cut[:, -1].min(),
        "mean_final_error": cut[:, -1].mean(),
        "where_the_exact_iteration_rests": 1.2 * gamma / (1 - gamma),  # 6 gamma / 5 of the upper limit
        "value_range": 1 / (1 - gamma),
    }
    wrong = not _diverged(cut).any() and (cut[:, -1] > 0.1 / (1 - gamma)).all()
    return [
        judged(
            f"{problem}: truncated, Algorithm 2 stays bounded, and ends wrong by over 10 % of the value range",
            bool(wrong), figures, "assumption-closeness fails",
        ),
        judged(
            f"{problem}: not truncated, Algorithm 2 diverges in every seed",
            bool(free.all()), {"diverged": free.mean(), "seeds": len(free)}, "assumption-closeness fails",
        ),
    ]  # fmt: skip


def _kolter_claims(shares: dict[str, np.ndarray]) -> list[Verdict]:
    worst = int(np.argmax(shares["td"]))
    figures = {
        "share": shares["share"][worst], "fixed_point_error": shares["td"][worst],
        "best_fit_error": shares["best"][worst], "algorithm_2_largest_error": shares["algorithm_2"].max(),
    }  # fmt: skip
    return [
        judged(
            "kolter: somewhere TD's fixed point is 100 times worse than the best fit",
            bool(shares["td"][worst] > 100 * shares["best"][worst]), figures,
            "assumption-closeness fails", "control",
        )
    ]  # fmt: skip


def _notes(summary: dict) -> list[str]:
    notes = []
    for problem in dict.fromkeys(key[0] for key in summary):
        parts = [
            f"{method} (step {step:g}) {figures['diverged']:.0%}"
            for (name, method, step), figures in summary.items() if name == problem and figures["diverged"] > 0
        ]  # fmt: skip
        notes.append(f"diverged on {problem}: {', '.join(parts) or 'none'}; all others 0 %")
    return notes


def _oracle_text(oracles: dict[str, dict[str, float]]) -> str:
    return "; ".join(
        f"{name}: {', '.join(f'{oracle} {error:.2g}' for oracle, error in found.items())}"
        for name, found in oracles.items()
    )


def _draw_paths(axis, data: dict, problem: str) -> None:
    shown = [each for each in data["methods"] if each["problem"] == problem]
    first_of = {}
    for each in shown:  # of several step sizes the first
        first_of.setdefault(each["method"], each)
    for index, (method, each) in enumerate(first_of.items()):
        path = np.nan_to_num(np.array(each["median_path"], float), nan=DIVERGED)
        label = f"{method}: {each['diverged']:.0%} diverged"
        style = STYLES.get(method, {"linestyle": "--", "linewidth": 1.2})
        transitions = np.linspace(0, each["transitions"], len(path))
        axis.plot(transitions, np.clip(path, 1e-4, DIVERGED), color=f"C{index}", label=label, **style)
    axis.axhline(0.05, color="grey", linewidth=0.8, linestyle=":")
    axis.set(yscale="log", xlabel="transitions", ylabel="median error (cut at 1e5)", title=problem)
    axis.xaxis.set_major_formatter(lambda count, _: f"{count / 1e6:g}M")
    axis.legend(frameon=False, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)


def _draw_kolter(axis, shares: dict) -> None:
    labels = {
        "td": "fixed point of TD (LSTD-Q)",
        "algorithm_2": "Algorithm 2, exact, truncated",
        "best": "best fit",
    }
    for name, label in labels.items():
        axis.plot(shares["share"], np.clip(shares[name], 1e-4, None), label=label)
    axis.set(yscale="log", xlabel="share of the data in the first state", ylabel="error", title="kolter")
    axis.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 0.08))


STUDY = Counterexamples()
