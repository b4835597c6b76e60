"""The green curves, computed: the exact posterior over J(pi_p) beside what each ensemble believes."""

from pathlib import Path
from typing import Any

import numpy as np

from fcritic.envs.exact import river_swim
from fcritic.exploration.known import Prior
from fcritic.results.plots import panels
from fcritic.study.spec import Findings, Study, Trainings, Verdict, judged
from studies.exploration.family import (
    DRAWS,
    GRID,
    LINE,
    PLANE,
    SIDE,
    Points,
    collect,
    ensemble_curves,
    measures,
    posterior_curves,
    prior_spread,
    true_curve,
)
from studies.exploration.judging import Gap, gap
from studies.exploration.methods import PRIORS, Method

PRIOR = Prior()
MEMBERS = 20
SHOWN = 20
"""Episodes of data behind the picture and the verdicts."""
KINDS = ("shared", "independent", "functional", "refitted")
EXACT, REFITTED = "20 posterior draws", "refitted"
SHOWN_METHODS = ("posterior", *KINDS, EXACT, *(f"{kind}+anchored+masks" for kind in KINDS))
"""In the picture: above without, below with a prior and masks."""
PLANE_KINDS = ("functional", "refitted", "independent", "shared")
"""With two parameters, all with an anchored prior."""
MEASURES = ("mean_error", "std_error", "std_ratio", "wasserstein", "correlation_error", "argmax_distance")


class Calibration(Study):
    """RiverSwim with six states, data of the uniformly random policy, policies that go right with probability p.

    Then with two parameters: a probability for the left and one for the right half of the river.
    """

    name = "calibration"
    question = (
        "An ensemble of functional critics carries a distribution over the return of every policy, as posterior "
        "sampling does; ensembles of standard critics do not."
    )

    def find(self, runs: Trainings, quick: bool) -> Findings:
        """20 data sets after 5, 20 and 100 episodes; quick: 8 after 20."""
        seeds, lengths = (8, (SHOWN,)) if quick else (20, (5, SHOWN, 100))
        task = river_swim(6)
        scale = prior_spread(task, PRIOR, np.random.default_rng(0))
        rows, shown = [], {}
        for length in lengths:
            for seed in range(seeds):
                curves = _all_curves(task, length, seed, scale)
                exact = curves["posterior"]
                for name, each in curves.items():
                    if name != "posterior":
                        found = measures(each, exact, GRID)
                        rows.append({"method": name, "episodes": length, "seed": seed, **found})
                if seed == 0 and length == SHOWN:
                    shown = {name: curves[name][:100] for name in SHOWN_METHODS}
        plane_rows, surfaces = _plane(task, seeds, scale)
        table = _table(rows, SHOWN)
        data = {"grid": GRID, "truth": true_curve(task), "curves": shown, "prior_scale": scale,
                "table": {length: _table(rows, length) for length in lengths},
                "plane": {"side": SIDE, "surfaces": surfaces, "table": _table(plane_rows, SHOWN)}}  # fmt: skip
        told = [{"parameters": 1, **row} for row in rows] + [{"parameters": 2, **row} for row in plane_rows]
        return Findings(_claims(rows) + _plane_claims(plane_rows), told, data, _notes(table, scale))

    def draw(self, findings: Findings, path: Path) -> None:
        """One panel per method: the posterior in grey, curves in green, best policies as ticks; then surfaces."""
        data = findings.plot
        exact = data["curves"]["posterior"]
        names = list(data["curves"])
        low, high = np.quantile(exact, [0.05, 0.95], axis=0)
        title = f"J of policies that go right with probability p, after {SHOWN} episodes (bands: exact posterior)"
        with panels(path, len(names) // 2, title, width=3.6, rows=4) as axes:
            _draw_plane(data["plane"], axes[len(names) :])
            for axis, name in zip(axes, names, strict=False):
                axis.fill_between(data["grid"], low, high, color="0.85")
                axis.plot(data["grid"], np.mean(exact, axis=0), color="0.5", linewidth=1)
                curves = np.asarray(data["curves"][name])[:20]
                axis.plot(data["grid"], curves.T, color="tab:green", linewidth=0.8, alpha=0.8)
                best = curves.argmax(axis=1)
                axis.plot(data["grid"][best], curves[np.arange(len(curves)), best], "k|", markersize=7)
                axis.plot(data["grid"], data["truth"], "r--", linewidth=1)
                axis.set(title=name, xlabel="p", ylabel="J", ylim=_limits(low, high))


def _all_curves(task: Any, length: int, seed: int, scale: float) -> dict[str, np.ndarray]:
    random = np.random.default_rng([seed, length])
    data, record = collect(task, length, random)
    curves = {
        "posterior": posterior_curves(task, data, PRIOR, DRAWS, random),
        EXACT: posterior_curves(task, data, PRIOR, MEMBERS, random),
    }
    for kind in KINDS:
        for prior in PRIORS:
            for mask in (False, True):
                method = Method(_stands_for(kind), prior, mask)
                name = method.name.replace("actors", REFITTED)
                curves[name] = _believed(task, record, method, scale, seed, kind, LINE)
    return curves


def _stands_for(kind: str) -> str:
    """Refitted critics are those with actors, whose policies are given."""
    return "actors" if kind == REFITTED else kind


def _believed(
    task: Any, record: Any, method: Method, scale: float, seed: int, kind: str, points: Points
) -> np.ndarray:
    return ensemble_curves(task, record, method, scale, MEMBERS, seed, kind == REFITTED, points)


def _plane(task: Any, seeds: int, scale: float) -> tuple[list[dict[str, Any]], dict[str, dict[str, np.ndarray]]]:
    """Measures with two parameters for each data set, and mean and spread over the plane for the first one."""
    rows, shown = [], {}
    for seed in range(seeds):
        random = np.random.default_rng([seed, SHOWN])
        data, record = collect(task, SHOWN, random)
        exact = posterior_curves(task, data, PRIOR, DRAWS, random, PLANE)
        found = {EXACT: posterior_curves(task, data, PRIOR, MEMBERS, random, PLANE)}
        for kind in PLANE_KINDS:
            found[f"{kind}+anchored"] = _believed(task, record, Method(_stands_for(kind), "anchored"), scale, seed,
                                                  kind, PLANE)  # fmt: skip
        for name, each in found.items():
            told = measures(each, exact, PLANE[:, 0])
            rows.append({"method": name, "episodes": SHOWN, "seed": seed, **told})
        if seed == 0:
            kept = {"posterior": exact} | {name: each for name, each in found.items() if name != EXACT}
            shown = {name: {"mean": each.mean(axis=0), "spread": each.std(axis=0)} for name, each in kept.items()}
    return rows, shown


def _draw_plane(plane: dict[str, Any], axes: list[Any]) -> None:
    """Means above, spreads below; colours of a mean reach as far as the posterior's spread around its own mean."""
    side, surfaces = np.asarray(plane["side"]), plane["surfaces"]
    middle, widest = np.mean(surfaces["posterior"]["mean"]), np.max(surfaces["posterior"]["spread"])
    for row, (what, low) in enumerate((("mean", middle - widest), ("spread", 0.0))):
        levels = np.linspace(low, middle + widest if what == "mean" else widest, 13)
        for axis, (name, each) in zip(axes[row * len(surfaces) :], surfaces.items(), strict=False):
            heights = np.asarray(each[what]).reshape(len(side), len(side)).T
            drawn = axis.contourf(side, side, heights, levels, extend="both")
            axis.set(title=f"{what} of J, {name}", xlabel="p, left half", ylabel="p, right half")
        axis.figure.colorbar(drawn, ax=axis, format="%.2f")


def _limits(low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    margin = 0.6 * (high.max() - low.min())
    return low.min() - margin, high.max() + margin


def _table(rows: list[dict[str, Any]], length: int) -> dict[str, dict[str, float]]:
    names = dict.fromkeys(row["method"] for row in rows)
    return {name: {each: float(np.mean(_values(rows, name, each, length))) for each in MEASURES} for name in names}


def _values(rows: list[dict[str, Any]], name: str, measure: str, length: int = SHOWN) -> np.ndarray:
    return np.array([row[measure] for row in rows if row["method"] == name and row["episodes"] == length])


def _compare(rows: list[dict[str, Any]], first: str, second: str, measure: str = "wasserstein") -> Gap:
    return gap(_values(rows, first, measure), _values(rows, second, measure))


def _claims(rows: list[dict[str, Any]]) -> list[Verdict]:
    ours = "functional+anchored+masks"
    claims = []
    for rival in ("shared", "independent"):
        for measure in ("wasserstein", "correlation_error"):
            found = _compare(rows, ours, f"{rival}+anchored+masks", measure)
            statement = (
                f"Functional critics are closer to the posterior than {rival} ones in {measure}, options equal"
            )
            claims.append(judged(statement, found.below, found.figures(ours, rival), "fig:psrl", "paper"))
    found = _compare(rows, f"{REFITTED}+anchored+masks", ours)
    claims.append(
        judged(
            "Standard critics trained anew for each policy are no further from the posterior than functional ones",
            not found.above,
            found.figures(REFITTED, ours),
            "the tension with randomised value functions",
        )
    )
    ratio = {
        name: float(_values(rows, name, "std_ratio").mean()) for name in ("functional", "functional+masks", ours)
    }
    statement = "Without a prior function the paper's ensemble has less than half of the posterior's spread"
    claims.append(judged(statement, ratio["functional"] < 0.5, ratio, "no prior in alg-ensemble-algorithm"))
    for prior in PRIORS[1:]:
        found = _compare(rows, f"functional+{prior}", "functional")
        statement = f"The prior ({prior}) brings functional critics closer to the posterior"
        claims.append(judged(statement, found.below, found.figures(prior, "none")))
    found = _compare(rows, ours, "functional+anchored")
    claims.append(
        judged(
            "Masks bring functional critics closer to the posterior", found.below, found.figures("masks", "none")
        )
    )
    return claims


def _plane_claims(rows: list[dict[str, Any]]) -> list[Verdict]:
    claims = []
    for rival in ("shared", "independent"):
        found = _compare(rows, "functional+anchored", f"{rival}+anchored")
        statement = f"With two parameters functional critics are closer to the posterior than {rival} ones in W1"
        claims.append(judged(statement, found.below, found.figures("functional", rival), "fig:psrl", "paper"))
    return claims


def _notes(table: dict[str, dict[str, float]], scale: float) -> list[str]:
    closest = sorted(table, key=lambda name: table[name]["wasserstein"])[:4]
    listed = ", ".join(f"{name} {table[name]['wasserstein']:.2f}" for name in closest)
    return [
        f"prior functions have the standard deviation of J under the exact prior, {scale:.2f}",
        f"smallest Wasserstein distances after {SHOWN} episodes, in posterior standard deviations: {listed}",
    ]


STUDY = Calibration()
