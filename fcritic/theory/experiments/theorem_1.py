"""Theorem 1, term by term: how the error of Algorithm 2 falls with T and K, and grows with C and E_approx."""

from pathlib import Path
from typing import Any

import numpy as np

from fcritic.theory.experiments import studies
from fcritic.theory.experiments.base import Claim, Experiment, Outcome
from fcritic.theory.pictures import panels
from fcritic.theory.problems import idle_behaviour, rare_action
from fcritic.theory.schedule import printed_choice

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


class TheoremOne(Experiment):
    """Judges the bound gamma^T + C (epsilon^2 + E_approx^2) + E_approx^2 by the slope of each term."""

    name = "theorem-1"
    statement = (
        "The squared error of Algorithm 2 under the target's distribution is at most of the order of "
        "gamma^T + C(pi, mu) (1/K + E_approx^2) + E_approx^2, and nothing is promised where C is infinite."
    )

    def run(self, quick: bool) -> Outcome:
        """Five studies on linear MDPs with d = 6, gamma 0.9; 50 seeds; quick has fewer places and iterations."""
        plan = QUICK if quick else FULL
        outer = studies.outer_study(*plan["outer"])
        inner = studies.inner_study(*plan["inner"])
        covered = {name: studies.coverage_study(family, *plan[name]) for name, family in FAMILIES.items()}
        injected = studies.approximation_study(*plan["approximation"])
        plateau = studies.plateau_study(outer=200)
        claims = [
            *_outer_claims(outer), *_inner_claims(inner), *_coverage_claims(covered),
            *_approximation_claims(injected), *_plateau_claims(plateau, inner),
        ]  # fmt: skip
        rows = inner.pop("rows") + [row for each in covered.values() for row in each.pop("rows")]
        data = {"outer": outer, "inner": inner, "coverage": covered, "approximation": injected, "plateau": plateau}
        return Outcome(claims, data, rows, [_remark_note(), *_coverage_notes(covered)])

    def draw(self, outcome: Outcome, path: Path) -> None:
        """One panel per term."""
        data = outcome.data
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


def _outer_claims(outer: dict[str, Any]) -> list[Claim]:
    share, factors = outer["largest_share_of_bound"], outer["factor_per_step"]
    return [
        Claim(
            "Over outer iterations the squared error falls at least as fast as gamma^T (exact inner loop)",
            bool(share <= 1 + 1e-9),
            {"largest error / (gamma^T first error)": share, "factor per step": [factors.min(), factors.max()],
             "gamma": outer["gamma"], "gamma squared": outer["gamma"] ** 2, "problems": len(factors)},
            "thm-evaluation",
        ),
        Claim(
            "The value error under d_pi equals the distance of the weights in the norm of A_pi",
            bool(outer["identity_gap"] < 1e-9), {"largest relative gap": outer["identity_gap"]}, "cor:weight_conv",
        ),
    ]  # fmt: skip


def _inner_claims(inner: dict[str, Any]) -> list[Claim]:
    claims = []
    names = {"printed": "as printed", "warm": "with a warm start", "trajectory": "as printed, along a trajectory"}
    for name, words in names.items():
        found = studies.slope(inner["inner"], inner[name])
        ends = [inner[name][0], inner[name][-1]]
        figures = {"slope": found, "standard error": inner["slope_error"][name], "squared error": ends}
        statement = f"Over the inner length K the squared error falls as 1/K: slope -1 within 0.15, {words}"
        claims.append(Claim(statement, bool(abs(found + 1) <= 0.15), figures, "thm-evaluation"))
    return claims


def _coverage_claims(covered: dict[str, Any]) -> list[Claim]:
    claims = []
    names = {"related": "alpha = 5 / (lambda_min^+ K)", "least_squares": "inner loop by least squares"}
    for family, study in covered.items():
        for name, words in names.items():
            found = studies.slope(study["coverage"], study[name])
            other = studies.slope(1 / study["smallest"], study[name])
            figures = {"slope": found, "standard error": study["slope_error"][name], "C": study["coverage"],
                       "slope over 1 / lambda_min^+": other}  # fmt: skip
            statement = f"At one K the squared error grows as C: slope 1 within 0.25, {words}, {family}"
            claims.append(Claim(statement, bool(abs(found - 1) <= 0.25), figures, "thm-evaluation"))
    return claims


def _approximation_claims(injected: dict[str, Any]) -> list[Claim]:
    slopes = [studies.slope(x**2, y) for x, y in zip(injected["injected"], injected["squared_error"], strict=True)]
    share = np.max(injected["squared_error"] / injected["bound"])
    return [
        Claim(
            "Over injected error the squared error grows as E_approx^2: slope 1 within 0.25 in every problem",
            bool(max(abs(each - 1) for each in slopes) <= 0.25), {"slopes": slopes}, "thm-evaluation",
        ),
        Claim(
            "It never passes ((1 + sqrt C) E_approx / (1 - gamma))^2, which has no lambda_min^+ in it",
            bool(share <= 1), {"largest error / bound": share}, "our constant, see docs/theory.md",
        ),
    ]  # fmt: skip


def _plateau_claims(plateau: dict[str, Any], inner: dict[str, Any]) -> list[Claim]:
    end, half = plateau["uncovered"][-1], plateau["uncovered"][len(plateau["uncovered"]) // 2]
    stays = np.isinf(plateau["coverage"]) and end > 0.99 * half and end > 1e-2
    found = studies.slope(inner["inner"], inner["uncovered"])
    return [
        Claim(
            "Where C is infinite the error stays, for T, K to infinity; with a share of 5 % it vanishes",
            bool(stays and plateau["covered"][-1] < 1e-6),
            {"squared error": end, "at half as many iterations": half, "with 5 %": plateau["covered"][-1],
             "root, as a share of the value range": np.sqrt(end) / plateau["value_range"]},
            "eq:eval_metric",
        ),
        Claim(
            "Where C is infinite more samples do not help: slope over K above -0.15",
            bool(found > -0.15), {"slope": found}, "eq:eval_metric",
        ),
    ]  # fmt: skip


def _remark_note() -> str:
    task, _ = studies.disjoint_task(0)
    choice = printed_choice(task, 0.01)
    return (
        f"the remark's explicit choice for epsilon 0.01 is alpha {choice.step:.1e} and K {choice.inner:.1e} "
        f"(lambda_min^+ {choice.smallest:.2g}, rho {choice.rate:.2g}): never run"
    )


def _coverage_notes(covered: dict[str, Any]) -> list[str]:
    return [
        f"{family}: with one alpha for all behaviours the slope over C is "
        f"{studies.slope(study['coverage'], study['common']):.2f}"
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
        label = f"{label}: slope {studies.slope(lengths, np.array(inner[name])):.2f}"
        axis.plot(lengths, inner[name], "o-", markersize=4, label=label, linewidth=1.2)
    axis.plot(lengths, inner["printed"][0] * lengths[0] / lengths, "k:", label="slope -1")
    axis.set(xscale="log", yscale="log", xlabel="inner length K", title="K")


def _draw_coverage(axis, covered: dict[str, Any]) -> None:
    names = {"related": "alpha = 5 / (lambda K)", "least_squares": "least squares", "common": "one alpha"}
    for family, style in zip(covered, ("o-", "x--"), strict=True):
        at = np.array(covered[family]["coverage"])
        for index, (name, label) in enumerate(names.items()):
            runs = np.array(covered[family][name])
            label = f"{label}, {family}: slope {studies.slope(at, runs):.2f}"
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


EXPERIMENT = TheoremOne()
