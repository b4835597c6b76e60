"""Theorem 2 and Algorithm 3: convergence, its floor, and how many samples the two trust tests save.

Protocol. Two problems: RiverSwim, where coverage is what counts, with an evaluation that is Algorithm 2 run to its
end on 2000 transitions; and a linear MDP, with Algorithm 2 as it samples (T = 40, K = 100). Policies are tabular
softmax ones and begin uniform, as does behaviour. The step size is 1 / (8 L), as in the proof. Algorithm 3 competes
with kappa = 2 and an epoch ends when features have moved by a quarter of their length. The goal is to leave a tenth
of the first gap to the optimum. Seeds differ in the sampled transitions.

The floor is the squared gradient that is left when the critic keeps an error of a known size: the mean over the
last quarter of the steps. Policies are periodic in their parameters there, so their optimum is at a finite place.
The critic is Algorithm 2 without statistical error: on exact features with an error of a given A_k-norm added in a
new random direction in every epoch, or on features with an error.
"""

from collections.abc import Callable
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.results.plots import panels
from fcritic.study.spec import Findings, Study, Trainings, Verdict, judged
from fcritic.theory.control import AbstractCritic, Control, Exact, Fitted, Sampled, Settings, actor_critic, assess
from fcritic.theory.problems import perturb
from studies.theory.control import periodic_control, river_control, safe_step, samples_until, slope, tabular_control
from studies.theory.rivals import RIVALS

GOAL = 0.1
EVERY_STEP = ("on-policy actor-critic", "refreshing every step")
PRINTED = "Delta > 2, as printed"


@dataclasses.dataclass(frozen=True)
class Arena:
    """A problem with the critic that all methods share."""

    problem: Control
    critic: AbstractCritic
    settings: Settings

    def race(self, settings: Settings, seeds: int) -> dict[str, np.ndarray]:
        """One method: true figures along its steps, [seeds, steps] each."""
        trace = actor_critic(self.problem, settings, self.critic, np.zeros(self.problem.policy.size), seeds)
        found = assess(self.problem, trace)
        optimum = self.problem.optimum
        return {
            "samples": trace.samples * (settings.gradient != "exact"),
            "gap": (optimum - found.objective) / (optimum - found.objective[0, 0]),
            "squared gradient": found.squared_gradient,
            "squared error": found.error_length**2,
            "weight error": found.weight_error,
            "value size": found.value_size,
            "coverage": trace.coverage,
            "epochs": trace.epoch + 1,
            "refreshes": trace.refreshes,
        }

    @property
    def bound(self) -> float:
        """2 (J* - J_0) / (eta M), the first term of Theorem 2."""
        first = float(self.problem.objective(np.zeros(self.problem.policy.size)))
        return 2 * (self.problem.optimum - first) / (self.settings.step_size * self.settings.steps)


def arenas(quick: bool) -> dict[str, Arena]:
    """Both problems with the settings of Algorithm 3."""
    river, linear = river_control(), tabular_control(0)
    sampled = Sampled(outer=40, inner=100, step=0.3, reset=False, warm=True)
    made = {"RiverSwim": (river, Fitted(2000)), "linear MDP": (linear, sampled)}
    settings = lambda problem: Settings(
        steps=160 if quick else 200,
        step_size=safe_step(problem, np.zeros(problem.policy.size)),
        kappa=2.0,
        trigger="feature-distance",
        threshold=0.25,
    )
    return {name: Arena(problem, critic, settings(problem)) for name, (problem, critic) in made.items()}


def methods(settings: Settings) -> dict[str, Settings]:
    """Algorithm 3 with fresh and with kept data, and all rivals."""
    kept = {"dual trust, data kept": dataclasses.replace(settings, keep_data=True)}
    return {"dual trust": settings} | kept | {name: change(settings) for name, change in RIVALS.items()}


def summary(path: dict[str, np.ndarray]) -> dict[str, float]:
    """One method in a line. The samples are the median over seeds; infinite where most never reach the goal."""
    need = samples_until(path["gap"] <= GOAL, path["samples"])
    return {
        "samples to goal": float(np.quantile(need, 0.5, method="higher")),
        "share at goal": float(np.isfinite(need).mean()),
        "samples": float(path["samples"][:, -1].mean()),
        "epochs": float(path["epochs"][:, -1].mean()),
        "refreshes": float(path["refreshes"][:, -1].mean()),
        "final gap": float(path["gap"][:, -1].mean()),
        "final squared gradient": float(path["squared gradient"][:, -1].mean()),
        "mean squared gradient": float(path["squared gradient"].mean()),
        "mean squared gradient error": float(path["squared error"].mean()),
        "mean squared weight error": float((path["weight error"] ** 2).mean()),
    }


KAPPAS = (1.0, 1.5, 2.0, 5.0, math.inf)
THRESHOLDS = (0.1, 0.25, 0.5, 1.0)
ERRORS = (0.003, 0.006, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
"""Weight errors epsilon, and sizes of the features' error in Q."""
PARTS = {"smallest four": slice(0, 4), "0.0125 to 0.1": slice(2, 6), "all": slice(None)}
"""The errors that a slope is taken over. The theorem's O() is about small ones; large ones saturate."""


def sweep(run: Callable[[Settings], dict], settings: Settings, quick: bool) -> list[dict[str, Any]]:
    """Every kappa with every drift threshold, with fresh and with kept data."""
    kappas, thresholds = (KAPPAS[::2], THRESHOLDS[1:3]) if quick else (KAPPAS, THRESHOLDS)
    return [
        {"data": data, "kappa": kappa, "threshold": threshold}
        | run(dataclasses.replace(settings, kappa=kappa, threshold=threshold, keep_data=data == "kept"))
        for data in ("fresh", "kept")
        for kappa in kappas
        for threshold in thresholds
    ]


def sweep_claims(table: list[dict[str, Any]], rival: dict[str, float]) -> list[Verdict]:
    """Whether the saving depends on lucky settings, and whether C_max controls the critic's error."""
    better = [row for row in table if row["samples to goal"] < rival["samples to goal"]]
    cells = {
        f"{row['data']}, kappa {row['kappa']:g}, threshold {row['threshold']:g}": row["samples to goal"]
        for row in table
    }
    fresh = [row for row in table if row["data"] == "fresh"]
    errors = {
        kappa: float(np.mean([row["mean squared weight error"] for row in fresh if row["kappa"] == kappa]))
        for kappa in sorted({row["kappa"] for row in fresh})
    }
    finite = [error for kappa, error in errors.items() if math.isfinite(kappa)]
    return [
        judged(
            "RiverSwim: most settings of kappa and the drift threshold need fewer samples than refreshing always "
            "(median over seeds).",
            2 * len(better) > len(table),
            {
                "settings": len(table),
                "better": len(better),
                "better, and every seed reaches the goal": sum(row["share at goal"] == 1 for row in better),
                "refreshing every step": rival["samples to goal"],
                "samples": cells,
            },
            "alg-linear-AC, C_max and the threshold",
        ),
        judged(
            "RiverSwim: C_max controls the critic's error: it is larger for the largest finite kappa than for the "
            "smallest, and larger still without the test.",
            finite[0] < finite[-1] < errors[math.inf],
            {"mean squared weight error by kappa": {f"{kappa:g}": error for kappa, error in errors.items()}},
            "thm-main-convergence, Coverage Control",
            "paper",
        ),
    ]


def floor_of(problem: Control, settings: Settings, error: float, seeds: int) -> tuple[float, float]:
    """The mean squared gradient and the mean squared error of the gradient over the last quarter of the steps."""
    trace = actor_critic(problem, settings, Exact(error), np.full(problem.policy.size, 0.5), seeds)
    found, last = assess(problem, trace), settings.steps // 4
    return float(found.squared_gradient[:, -last:].mean()), float((found.error_length[:, -last:] ** 2).mean())


def measure_floor(quick: bool) -> dict[str, Any]:
    """The floor against the critic's error and against the features' error, and what is left without either."""
    steps, seeds = (300, 4) if quick else (1500, 16)
    plain = periodic_control(0)
    size = safe_step(plain, np.full(plain.policy.size, 0.5))
    settings = Settings(steps, size, kappa=2.0, trigger="feature-distance", threshold=0.1, epoch_limit=10)
    moved = lambda error: dataclasses.replace(plain, features=perturb(plain.mdp, plain.features, error))
    critic = [floor_of(moved(0.0), settings, error, seeds) for error in ERRORS]
    features = [floor_of(moved(error), settings, 0.0, seeds) for error in ERRORS]
    return {
        "errors": list(ERRORS),
        "critic": [floor for floor, _ in critic],
        "critic, squared error": [error for _, error in critic],
        "features": [floor for floor, _ in features],
        "features, squared error": [error for _, error in features],
        "none": floor_of(moved(0.0), settings, 0.0, seeds)[0],
    }


def floor_claims(floor: dict[str, Any]) -> list[Verdict]:
    """Whether both floors lie below the gradient's error, and fall with the square of the error."""
    names = {"critic": "critic's weight error epsilon", "features": "features' error E_approx"}
    shares = {name: np.divide(floor[name], floor[f"{name}, squared error"]) for name in names}
    claims = [
        judged(
            "The squared gradient comes to rest below the mean squared error of the gradient, whatever the error.",
            # Where the estimated gradient is zero both are the same number, up to rounding.
            all(bool(np.all(share <= 1 + 1e-6)) for share in shares.values()),
            {"floor over squared error, largest": {name: float(share.max()) for name, share in shares.items()}},
            "eq: global-convergence",
            "paper",
        )
    ]
    for name, what in names.items():
        slopes = {
            part: slope(np.array(ERRORS[places]), np.array(floor[name][places])) for part, places in PARTS.items()
        }
        claims.append(
            judged(
                f"As the {what} becomes small, this floor falls with its square (slope 2 within 0.3).",
                abs(slopes["smallest four"] - 2) <= 0.3,
                {
                    "slope": slopes,
                    "floors": dict(zip(map(str, ERRORS), floor[name], strict=True)),
                    "without error": floor["none"],
                },
                "eq: global-convergence",
                "paper",
            )
        )
    return claims


STYLES = {
    "dual trust": ("C0", "-"),
    "dual trust, data kept": ("C0", "--"),
    "Delta > 2, as printed": ("C4", "-"),
    "never refreshing": ("C2", "-."),
    "on-policy actor-critic": ("C1", "-"),
    "refreshing every step": ("C1", "--"),
    "Off-PAC": ("C3", "-"),
    "emphatic actor-critic": ("C3", "--"),
}


def _draw(data: dict[str, Any], path: Path) -> None:
    """A row for each problem: gap and squared gradient against samples; beside them the sweep and the floor."""
    with panels(path, 3, "Algorithm 3 and its rivals", width=5.0, rows=2) as axes:
        for row, place in enumerate(data["curves"]):
            _race(axes[3 * row], data["curves"][place], "gap")
            _race(axes[3 * row + 1], data["curves"][place], "squared gradient")
            axes[3 * row].set_ylabel("J* - J, share of the first gap")
            axes[3 * row].axhline(data["goal"], color="k", lw=0.8, ls=":")
            axes[3 * row + 1].set_ylabel("squared gradient of J")
            for axis in axes[3 * row : 3 * row + 2]:
                axis.set_title(f"{place}: mean over seeds, band from 10 to 90 %", fontsize=9)
        handles, labels = axes[0].get_legend_handles_labels()
        axes[0].figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
        _sweep(axes[2], data)
        _floor(axes[5], data["floor"])


def _race(axis, curves: dict[str, dict], name: str) -> None:
    for method, (colour, line) in STYLES.items():
        if method in curves:
            curve = {key: np.asarray(values) for key, values in curves[method].items()}
            axis.loglog(curve["samples"], curve[name], color=colour, linestyle=line, lw=1.5, label=method)
            band = (curve[f"{name}, low"], curve[f"{name}, high"])
            axis.fill_between(curve["samples"], *band, color=colour, alpha=0.08, lw=0)
    axis.set_xlabel("transitions drawn")


def _sweep(axis, data: dict[str, Any]) -> None:
    """Samples to the goal against the drift threshold, a line for each kappa and kind of data."""
    rows = data["sweep"]
    kappas = sorted({float(row["kappa"]) for row in rows})
    for kind, line in (("fresh", "-"), ("kept", "--")):
        for index, kappa in enumerate(kappas):
            shown = [row for row in rows if row["data"] == kind and float(row["kappa"]) == kappa]
            label = f"kappa {'infinite' if math.isinf(kappa) else f'{kappa:g}'}" if kind == "fresh" else None
            need = [row["samples to goal"] if math.isfinite(row["samples to goal"]) else np.nan for row in shown]
            axis.loglog(
                [row["threshold"] for row in shown], need, line, marker="o", ms=3, color=f"C{index}", label=label
            )
    rival = data["methods"]["RiverSwim"]["refreshing every step"]["samples to goal"]
    axis.axhline(rival, color="k", lw=1, ls=":", label="refreshing every step")
    axis.plot([], [], "k-", label="fresh data")
    axis.plot([], [], "k--", label="kept data")
    _plain_ticks(axis, sorted({row["threshold"] for row in rows}))
    axis.set_xlabel("drift threshold")
    axis.set_ylabel("transitions until a tenth of the gap is left")
    axis.set_title("RiverSwim: median over seeds, no point where most fail", fontsize=9)
    axis.set_ylim(top=8 * rival)  # room for the legend
    axis.legend(frameon=False, fontsize=7, ncols=2, loc="upper center")


def _floor(axis, floor: dict[str, Any]) -> None:
    errors = np.asarray(floor["errors"])
    axis.loglog(errors, floor["critic"], "o-", color="C0", label="critic's weight error")
    axis.loglog(errors, floor["features"], "s-", color="C1", label="features' error in Q")
    for name, colour in (("critic", "C0"), ("features", "C1")):
        axis.loglog(errors, floor[name][0] * (errors / errors[0]) ** 2, ":", color=colour, lw=1)
    axis.plot([], [], "k:", lw=1, label="slope 2")
    _plain_ticks(axis, errors[::2])
    axis.set_xlabel("size of the error")
    axis.set_ylabel("squared gradient that is left")
    axis.set_title("periodic policies: the floor", fontsize=9)
    axis.legend(frameon=False, fontsize=8)


def _plain_ticks(axis, places) -> None:
    """Labels at these places alone, which powers of ten would crowd."""
    axis.tick_params(axis="x", which="minor", labelbottom=False)
    axis.set_xticks(list(places), [f"{place:g}" for place in places])


class Theorem2(Study):
    """Algorithm 3 against its rivals."""

    name = "theorem-2"
    question = (
        "Algorithm 3 drives the squared gradient down to a floor set by the critic's error, with fewer samples "
        "than methods that evaluate or refresh before every step."
    )

    def find(self, runs: Trainings, quick: bool) -> Findings:
        """The races of all methods, the sweep of both thresholds, and the floor."""
        seeds, places = 5 if quick else 20, arenas(quick)
        paths = {
            place: {name: arena.race(each, seeds) for name, each in methods(arena.settings).items()}
            for place, arena in places.items()
        }
        river = places["RiverSwim"]
        printed = dataclasses.replace(river.settings, trigger="delta", threshold=2.0)
        paths["RiverSwim"][PRINTED] = river.race(printed, seeds)
        lines = {place: {name: summary(path) for name, path in found.items()} for place, found in paths.items()}
        table = sweep(lambda settings: summary(river.race(settings, seeds)), river.settings, quick)
        floor = measure_floor(quick)
        claims = [claim for place, arena in places.items() for claim in _race_claims(place, arena, lines[place])]
        claims += sweep_claims(table, lines["RiverSwim"]["refreshing every step"])
        claims += _coverage_claims(paths["RiverSwim"]) + floor_claims(floor)
        curves = {place: {name: _curve(path) for name, path in found.items()} for place, found in paths.items()}
        data = {"goal": GOAL, "methods": lines, "curves": curves, "sweep": table, "floor": floor}
        data["step sizes"] = {place: arena.settings.step_size for place, arena in places.items()}
        return Findings(claims, _rows(paths), data)

    def draw(self, findings: Findings, path: Path) -> None:
        """Both measures against samples, the sweep, and the floor."""
        _draw(findings.plot, path)


def _rows(paths: dict[str, dict]) -> list[dict[str, Any]]:
    return [
        {"problem": place, "method": name, "seed": seed}
        | summary({key: values[seed : seed + 1] for key, values in path.items()})
        for place, found in paths.items()
        for name, path in found.items()
        for seed in range(len(path["gap"]))
    ]


def _curve(path: dict[str, np.ndarray]) -> dict[str, Any]:
    """Means and a band over seeds at every other step."""
    path = {name: values[:, ::2] for name, values in path.items()}
    shown = {"samples": path["samples"].mean(0)}
    for name in ("gap", "squared gradient"):
        shown[name] = path[name].mean(0)
        shown[f"{name}, low"], shown[f"{name}, high"] = np.quantile(path[name], (0.1, 0.9), axis=0)
    return shown


def _race_claims(place: str, arena: Arena, lines: dict[str, dict]) -> list[Verdict]:
    exact, first = lines["exact policy gradient"], arena.bound
    tops = {
        name: line["mean squared gradient"] / (first + line["mean squared gradient error"])
        for name, line in lines.items()
    }
    return [
        judged(
            f"{place}: with exact gradients the mean squared gradient is below 2 (J* - J_0) / (eta M).",
            exact["mean squared gradient"] <= first,
            {"mean squared gradient": exact["mean squared gradient"], "bound": first},
            "thm-main-convergence, without error",
            "paper",
        ),
        judged(
            f"{place}: for Algorithm 3 and all rivals it is below that plus the gradient's mean squared error.",
            max(tops.values()) <= 1,
            {"share of the bound": tops},
            "thm-main-convergence, with the measured error",
            "paper",
        ),
        *(_saving(place, form, lines) for form in ("dual trust", "dual trust, data kept")),
    ]


def _saving(place: str, form: str, lines: dict[str, dict]) -> Verdict:
    need = {name: line["samples to goal"] for name, line in lines.items() if name != "exact policy gradient"}
    fewer = {rival: need[rival] / need[form] for rival in EVERY_STEP}
    shares = {name: lines[name]["share at goal"] for name in (form, *EVERY_STEP)}
    return judged(
        f"{place}: {form} leaves a tenth of the gap in as many seeds as the on-policy actor-critic and as "
        "refreshing every step, with fewer samples.",
        math.isfinite(need[form]) and min(fewer.values()) > 1 and shares[form] >= max(shares.values()),
        {"samples": need, "times fewer": fewer, "share of seeds": shares},
        "alg-linear-AC",
        "paper" if form == "dual trust" else "ours",
    )


def _coverage_claims(paths: dict[str, dict]) -> list[Verdict]:
    never, epochs = paths["never refreshing"], paths[PRINTED]["epochs"]
    starts = np.diff(never["epochs"], prepend=0, axis=1) > 0
    # Values grow as the policy improves, and errors with them; only the relative error tells of coverage.
    coverage, error = never["coverage"][starts], (never["weight error"] / never["value size"])[starts] ** 2
    steps = epochs.shape[1]
    return [
        judged(
            "RiverSwim: where behaviour is never refreshed the relative squared weight error grows no faster than "
            "C (slope at most 1.25 in log-log).",
            slope(coverage, error) <= 1.25,
            {"slope": slope(coverage, error), "C": [float(coverage.min()), float(coverage.max())]},
            "eq: xi-k-error",
            "paper",
        ),
        judged(
            "RiverSwim: the printed test Delta > 2 ends some epochs and lets others last longer than a step.",
            bool(1 < epochs[:, -1].mean() < 0.9 * steps),
            {"epochs": float(epochs[:, -1].mean()), "steps": steps},
            "alg-linear-AC, its test Delta > 2",
            "paper",
        ),
    ]


STUDY = Theorem2()
