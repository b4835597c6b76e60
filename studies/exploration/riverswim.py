"""Regret in RiverSwim: known learners at their anchors, then every ensemble with every option."""

from pathlib import Path
from typing import Any

import numpy as np

from fcritic.envs.exact import river_swim
from fcritic.exploration.known import LEARNERS, explore, optimal_return
from fcritic.exploration.learning import run
from fcritic.results.plots import panels
from fcritic.study.spec import Findings, Kind, Study, Trainings, Verdict, judged
from studies.exploration.judging import Gap, gap
from studies.exploration.methods import ENSEMBLES, Method, brief_methods, main_methods, masked_methods

EPISODES, SEEDS = 1000, 10
MARKS = (100, 300, 1000)
ANCHORS = {
    "psrl": (183.0, 16.0),
    "rlsvi": (187.0, 39.0),
    "epsilon-greedy": (3305.0, 33.0),
    "greedy": (3297.0, 33.0),
}
"""Regret after 1000 episodes with six states, measured elsewhere on ten seeds, and how far from it is the same."""
BEST = "anchored"
"""The prior with which kinds are compared: the one that Bayesian regression has."""

Regrets = dict[tuple[str, int], np.ndarray]
"""Cumulative regret[seeds, episodes] of a method in a river of this length."""


class RiverSwim(Study):
    """Rivers of 6, 12 and 20 states, 1000 episodes."""

    name = "riverswim"
    shown = ("regret",)
    question = (
        "Posterior sampling and randomised values explore RiverSwim; so do ensembles, if they have what it takes: "
        "the functional form, a prior, or one member for a whole episode."
    )

    def find(self, runs: Trainings, quick: bool) -> Findings:
        """10 seeds. All options with six states, some in longer rivers; quick: six states, some options."""
        regrets: Regrets = {}
        for length in (6,) if quick else (6, 12, 20):
            task = river_swim(length)
            for name, learner in LEARNERS.items():
                regrets[name, length] = explore(task, learner, EPISODES, SEEDS).regret.cumsum(axis=1)
            for method in _methods(quick, length):
                history, _ = run(task, method.ensemble, method.options(), EPISODES, SEEDS)
                regrets[method.name, length] = history.regret.cumsum(axis=1)
        rows = [
            {"method": name, "states": length, "seed": seed, **{f"regret_{mark}": path[mark - 1] for mark in MARKS}}
            for (name, length), paths in regrets.items()
            for seed, path in enumerate(paths)
        ]
        best = {length: optimal_return(river_swim(length)) for _, length in regrets}
        data = {"regret": _by_method(regrets, np.mean), "standard_deviation": _by_method(regrets, _deviation),
                "optimal_return": best, "paths": _paths(regrets)}  # fmt: skip
        return Findings(_claims(regrets), rows, data, _notes(regrets))

    def draw(self, findings: Findings, path: Path) -> None:
        """Mean cumulative regret with six states: known learners beside each kind with its priors."""
        paths, marks = findings.plot["paths"]["6"], findings.plot["paths"]["episodes"]
        with panels(path, 4, "RiverSwim, six states, ten seeds: cumulative regret", width=4.4, rows=2) as axes:
            for name in LEARNERS:
                axes[0].plot(marks, paths[name], label=name)
            for axis, kind in zip(axes[1:], ENSEMBLES, strict=False):
                axis.plot(marks, paths["psrl"], color="0.7", label="psrl")
                for name in [name for name in paths if name == kind or name.startswith((f"{kind}+", f"{kind},"))]:
                    style = ":" if "per step" in name else "--" if "masks" in name else "-"
                    axis.plot(marks, paths[name], style, label=name, linewidth=1.2)
            axes[-1].set_visible(False)
            for axis in axes[:-1]:
                axis.set(xscale="log", yscale="log", xlabel="episodes", ylabel="regret", ylim=(3, 5000))
                if axis.get_legend_handles_labels()[0]:
                    axis.legend(frameon=False, fontsize=6)


def _methods(quick: bool, length: int) -> list[Method]:
    """Each once; in longer rivers without masks and the second prior."""
    found = brief_methods(BEST)
    if length == 6 and not quick:
        found += main_methods() + masked_methods("none", BEST)
    return list({method.name: method for method in found}.values())


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1))


def _by_method(regrets: Regrets, what: Any) -> dict[str, dict[str, float]]:
    """Of the last episode, by method and number of states."""
    found: dict[str, dict[str, float]] = {}
    for (name, length), paths in regrets.items():
        found.setdefault(name, {})[str(length)] = float(what(paths[:, -1]))
    return found


def _paths(regrets: Regrets) -> dict[str, Any]:
    marks = np.unique(np.geomspace(1, EPISODES, 40).astype(int))
    found: dict[str, Any] = {"episodes": marks}
    for (name, length), paths in regrets.items():
        found.setdefault(str(length), {})[name] = paths[:, marks - 1].mean(axis=0)
    return found


def _lengths(regrets: Regrets, *names: str) -> list[int]:
    return [
        length for length in sorted({each[1] for each in regrets}) if all((n, length) in regrets for n in names)
    ]


def _less(
    regrets: Regrets, first: str, second: str, statement: str, source: str = "", kind: Kind = "ours"
) -> Verdict:
    """Judged for every length by itself; the claim holds where it holds for all."""
    gaps: dict[int, Gap] = {
        length: gap(regrets[first, length][:, -1], regrets[second, length][:, -1])
        for length in _lengths(regrets, first, second)
    }
    figures = {f"{length} states": each.figures(first, second) for length, each in gaps.items()}
    return judged(statement, all(each.below for each in gaps.values()), figures, source, kind)


def _claims(regrets: Regrets) -> list[Verdict]:
    claims = []
    for name, (anchor, allowed) in ANCHORS.items():
        last = regrets[name, 6][:, -1]
        error = _deviation(last) / len(last) ** 0.5
        figures = {"mean": float(last.mean()), "deviation": _deviation(last), "anchor": anchor, "allowed": allowed}
        holds = bool(abs(last.mean() - anchor) <= allowed + 2 * error)
        claims.append(
            judged(f"{name} has the regret that was measured elsewhere", holds, figures, "anchor", "control")
        )
    for rival in ("shared", "independent", "actors"):
        statement = f"The functional form has less regret than {rival} critics, both with a prior"
        claims.append(_less(regrets, f"functional-own+{BEST}", f"{rival}+{BEST}", statement, "sec-psrl", "paper"))
    statement = "The second term of the gradient lowers the regret of functional critics with a prior"
    claims.append(_less(regrets, f"functional-own+{BEST}", f"functional-first+{BEST}", statement, "eq (2)"))
    statement = "Training every critic on all actors lowers the regret of functional critics with a prior"
    claims.append(_less(regrets, f"functional+{BEST}", f"functional-own+{BEST}", statement, "alg-nn, line 13"))
    for kind in ENSEMBLES:
        claims.append(_less(regrets, f"{kind}+{BEST}", kind, f"A prior lowers the regret of {kind} critics"))
    for kind in ENSEMBLES:
        statement = f"One member per episode has less regret than one per step, {kind} critics with a prior"
        claims.append(_less(regrets, f"{kind}+{BEST}", f"{kind}+{BEST}, per step", statement, "alg-nn, line 7"))
    return claims


def _notes(regrets: Regrets) -> list[str]:
    notes = []
    for length in _lengths(regrets, "psrl"):
        means = {name: paths[:, -1].mean() for (name, size), paths in regrets.items() if size == length}
        least = sorted(means, key=means.get)[:6]
        notes.append(f"least regret with {length} states: " + ", ".join(f"{n} {means[n]:.0f}" for n in least))
    return notes


STUDY = RiverSwim()
