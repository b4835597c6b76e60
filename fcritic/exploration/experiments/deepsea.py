"""Episodes to solve DeepSea against its size, for known learners and ensembles, beside 2^N."""

from collections.abc import Callable
from pathlib import Path
import textwrap
from typing import Any

import numpy as np

from fcritic.exploration.episodes import standard_score
from fcritic.exploration.experiments.deepsea_claims import (
    Dives,
    claims_of,
    kind_of,
    notes_of,
    reaches,
    slope_claims,
)
from fcritic.exploration.experiments.deepsea_runs import Dive, climb, divers, ensemble_divers
from fcritic.exploration.learners import LEARNERS
from fcritic.exploration.methods import (
    ENSEMBLES,
    REMEDIES,
    Method,
    brief_methods,
    main_methods,
    masked_methods,
)
from fcritic.exploration.slopes import knowledge
from fcritic.exploration.tasks import deep_sea
from fcritic.theory.experiments.base import Experiment, Outcome
from fcritic.theory.pictures import panels

RUNS = Path("runs/deepsea")
"""Where finished dives are kept; the same command goes on from there."""
EPISODES, QUICK_EPISODES = 1000, 200
SIZES = {"deterministic": (10, 14, 20, 25, 30), "stochastic": (10, 14, 20, 25, 30)}
REMEDY_SIZES = {"deterministic": (10, 14, 20)}
"""Remedies take ten times as long."""
QUICK_SIZES = {"deterministic": (6, 10), "stochastic": (6,)}
SLOPES_AFTER = 100
"""Episodes before slopes are looked at: most cells were visited, the treasure is not yet found by most."""

PANELS = {
    "known learners": tuple(LEARNERS),
    "standard critics": tuple(kind for kind in ENSEMBLES if not kind.startswith("functional")),
    "functional critics": tuple(kind for kind in (*ENSEMBLES, *REMEDIES) if kind.startswith("functional")),
}
STYLES = {"": "o--", "+prior": "o-", "+prior+masks": "s-", "+anchored": "^-.", "+prior, per step": "v:"}
"""Options that are drawn, and how; an anchored prior with masks is in the figures only."""


class DeepSea(Experiment):
    """A ladder of sizes. A method goes on to the next size while more than half of its seeds solve this one."""

    name = "deepsea"
    statement = (
        "Directed exploration solves DeepSea in far fewer than 2^N episodes; ensembles of functional critics get "
        "at least as far as bootstrapped critics with prior functions."
    )

    def run(self, quick: bool) -> Outcome:
        """10 seeds, 1000 episodes at most, sizes 10 to 30; quick: 6 and 10, 200 episodes, fewer options."""
        sizes, episodes, folder = (QUICK_SIZES, QUICK_EPISODES, None) if quick else (SIZES, EPISODES, RUNS)
        found = climb(divers(_ensembles(quick)), sizes, episodes, folder)
        if not quick:
            found += climb(
                ensemble_divers(Method(kind, "prior") for kind in REMEDIES), REMEDY_SIZES, episodes, folder
            )
        dives: Dives = {(dive.form, dive.name, dive.size): dive for dive in found}
        slopes = _slopes(quick)
        rows = [
            {"form": dive.form, "method": dive.name, "size": dive.size, "seed": seed, "solved_at": each}
            for dive in found
            for seed, each in enumerate(dive.solved_at)
        ]
        data = {
            "median": _table(dives, lambda dive: dive.median),
            "solved_share": _table(dives, lambda dive: float(np.isfinite(dive.solved_at).mean())),
            "score": _table(dives, lambda dive: standard_score(dive.size, dive.solved_at)),
            "reach": reaches(dives),
            "slopes": slopes,
            "episodes": episodes,
            "cpu_seconds": sum(dive.cpu_seconds for dive in found),
        }
        return Outcome(claims_of(dives, episodes) + slope_claims(slopes), data, rows, notes_of(dives))

    def draw(self, outcome: Outcome, path: Path) -> None:
        """Median episodes to solve, by size; a method ends with a cross where half of its seeds or more fail."""
        data = outcome.data
        title = "DeepSea: median first solved episode of ten seeds (cross: half of the seeds or more fail)"
        with panels(path, len(PANELS), title, width=5.2, rows=len(data["median"])) as axes:
            places = [(form, group) for form in data["median"] for group in PANELS]
            for axis, (form, group) in zip(axes, places, strict=True):
                _draw_group(axis, data["median"][form], PANELS[group], data["episodes"])
                axis.set(title=f"{group}, {form}", xlabel="size N", ylabel="episodes")


def _draw_group(axis: Any, median: dict[str, dict[str, float]], kinds: tuple[str, ...], most: int) -> None:
    """Those that solve a size as lines, the others by name."""
    sizes = sorted({int(size) for each in median.values() for size in each})
    axis.plot(sizes, 2.0 ** np.array(sizes), color="0.6", linewidth=1, label="2^N")
    none = []
    for name in [name for name in median if kind_of(name) in kinds and name[len(kind_of(name)) :] in STYLES]:
        values = {int(size): value for size, value in median[name].items()}
        solved = {size: value for size, value in values.items() if np.isfinite(value)}
        if not solved:
            none.append(name)
            continue
        marker, line = STYLES[name[len(kind_of(name)) :]][0], STYLES[name[len(kind_of(name)) :]][1:]
        look = {"color": f"C{kinds.index(kind_of(name))}", "linewidth": 1.3}
        path = solved | {size: float(most) for size in values if size not in solved}
        axis.plot(list(solved), list(solved.values()), marker + line, ms=4, label=name, **look)
        axis.plot(list(path)[len(solved) - 1 :], list(path.values())[len(solved) - 1 :], line, **look)
        axis.plot([size for size in path if size not in solved], [most] * (len(path) - len(solved)), "x", **look)
    if none:
        told = textwrap.fill(f"solve no size: {'; '.join(none)}", 80)
        axis.text(0.02, 0.02, told, transform=axis.transAxes, fontsize=7, color="0.35")
    axis.set(yscale="log", ylim=(10, 30 * most), xticks=sizes)
    axis.legend(framealpha=0.9, edgecolor="none", fontsize=7, ncols=2, loc="upper right")


def _ensembles(quick: bool) -> list[Method]:
    """Quick leaves out `functional`, which takes the longest, and keeps `functional-own`."""
    found = brief_methods("prior")
    if quick:
        return [method for method in found if method.kind != "functional"]
    every = found + main_methods() + masked_methods("prior", "anchored")
    return list({method.name: method for method in every}.values())


def _slopes(quick: bool) -> dict[str, dict[str, float]]:
    """What critics with a prior know of their slopes: the median over seeds and members of each figure."""
    size, seeds = (6, 3) if quick else (10, 10)
    kinds = ("functional-own",) if quick else ("functional-own", "functional", "functional-near")
    found = {}
    for method in [Method(kind, "prior") for kind in kinds]:
        figures = knowledge(deep_sea(size), method.ensemble, method.options(), SLOPES_AFTER, seeds)
        found[method.name] = {name: float(np.median(values)) for name, values in figures.items()}
    return found


def _table(dives: Dives, what: Callable[[Dive], float]) -> dict[str, dict[str, dict[str, float]]]:
    """By form, method and size."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (form, name, size), dive in dives.items():
        found.setdefault(form, {}).setdefault(name, {})[str(size)] = what(dive)
    return found


EXPERIMENT = DeepSea()
