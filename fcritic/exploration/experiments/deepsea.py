"""Episodes to solve DeepSea against its size, for known learners and ensembles, beside 2^N."""

from pathlib import Path
from typing import Any

import numpy as np

from fcritic.exploration.episodes import standard_score
from fcritic.exploration.experiments.deepsea_runs import climb, divers
from fcritic.exploration.learners import LEARNERS
from fcritic.exploration.methods import ENSEMBLES, Method, brief_methods, main_methods, masked_methods
from fcritic.theory.experiments.base import Claim, Experiment, Outcome
from fcritic.theory.pictures import panels

RUNS = Path("runs/deepsea")
"""Where finished dives are kept; the same command goes on from there."""
EPISODES = 1000
SIZES = {"deterministic": (10, 14, 20, 25, 30), "stochastic": (10, 14, 20, 25, 30)}
QUICK_SIZES = {"deterministic": (6, 10), "stochastic": (6,)}

Solved = dict[tuple[str, str, int], np.ndarray]
"""The first solved episode of each seed, by form, method and size; infinite where there was none."""


class DeepSea(Experiment):
    """A ladder of sizes. A method goes on to the next size while more than half of its seeds solve this one."""

    name = "deepsea"
    statement = (
        "Directed exploration solves DeepSea in far fewer than 2^N episodes; ensembles of functional critics get "
        "at least as far as bootstrapped critics with prior functions."
    )

    def run(self, quick: bool) -> Outcome:
        """10 seeds, 1000 episodes at most, sizes 10 to 30; quick: 6 and 10, 200 episodes, fewer options."""
        sizes, episodes, folder = (QUICK_SIZES, 200, None) if quick else (SIZES, EPISODES, RUNS)
        dives = climb(divers(_ensembles(quick)), sizes, episodes, folder)
        solved: Solved = {(each.form, each.name, each.size): each.solved_at for each in dives}
        rows = [
            {"form": form, "method": name, "size": size, "seed": seed, "solved_at": each}
            for (form, name, size), found in solved.items()
            for seed, each in enumerate(found)
        ]
        data = {"median": _table(solved, np.median), "solved_share": _table(solved, _share),
                "score": _table(solved, None), "reach": _reaches(solved),
                "cpu_seconds": sum(each.cpu_seconds for each in dives)}  # fmt: skip
        return Outcome(_claims(solved), data, rows, _notes(solved))

    def draw(self, outcome: Outcome, path: Path) -> None:
        """Median episodes to solve, by size; methods that solved no size are left out."""
        median = outcome.data["median"]
        groups = {"known learners": tuple(LEARNERS), **{kind: (kind,) for kind in ENSEMBLES}}
        title = "DeepSea: median first solved episode of ten seeds (crosses: stochastic; dotted: 2^N)"
        with panels(path, 4, title, width=4.4, rows=2) as axes:
            axes[-1].set_visible(False)
            for axis, (group, kinds) in zip(axes, groups.items(), strict=False):
                for form, marker in (("deterministic", "o-"), ("stochastic", "x--")):
                    axis.set_prop_cycle(None)
                    for name in [name for name in median.get(form, {}) if _kind(name) in kinds]:
                        points = {int(size): value for size, value in median[form][name].items()}
                        finite = {size: value for size, value in points.items() if np.isfinite(value)}
                        label = name if form == "deterministic" else None
                        axis.plot(list(finite), list(finite.values()), marker, label=label, fillstyle="none")
                sizes = np.array(sorted({int(size) for each in median["deterministic"].values() for size in each}))
                axis.plot(sizes, 2.0**sizes, ":", color="0.5")
                axis.set(yscale="log", ylim=(3, 1e6), xlabel="size N", ylabel="episodes", title=group)
                if axis.get_legend_handles_labels()[0]:
                    axis.legend(frameon=False, fontsize=6)


def _kind(name: str) -> str:
    return name.split(",")[0].split("+")[0]


def _ensembles(quick: bool) -> list[Method]:
    """Quick leaves out `functional`, which takes the longest, and keeps `functional-own`."""
    found = brief_methods("prior")
    if quick:
        return [method for method in found if method.kind != "functional"]
    every = found + main_methods() + masked_methods("prior", "anchored")
    return list({method.name: method for method in every}.values())


def _share(found: np.ndarray) -> float:
    return float(np.isfinite(found).mean())


def _table(solved: Solved, what: Any) -> dict[str, dict[str, dict[str, float]]]:
    """By form, method and size. `what` None is the standard score."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (form, name, size), each in solved.items():
        value = standard_score(size, each) if what is None else float(what(each))
        found.setdefault(form, {}).setdefault(name, {})[str(size)] = value
    return found


def _reaches(solved: Solved) -> dict[str, dict[str, int]]:
    """The largest size that more than half of the seeds solve; 0 where there is none."""
    found: dict[str, dict[str, int]] = {}
    for (form, name, size), each in solved.items():
        best = found.setdefault(form, {})
        best[name] = max(best.get(name, 0), size if np.median(each) < np.inf else 0)
    return found


def _best_of(reach: dict[str, int], kind: str, part: str = "") -> tuple[str, int]:
    names = [name for name in reach if _kind(name) == kind and part in name and "per step" not in name]
    name = max(names, key=lambda each: reach[each])
    return name, reach[name]


def _claims(solved: Solved) -> list[Claim]:
    reach = _reaches(solved)["deterministic"]
    claims = []
    undirected = {name: reach[name] for name in ("greedy", "epsilon-greedy")}
    statement = "Greedy and epsilon-greedy learners solve no size"
    claims.append(Claim(statement, max(undirected.values()) == 0, undirected))
    beaten = {
        f"N = {size}": float(np.median(found))
        for (form, name, size), found in solved.items()
        if form == "deterministic" and name == "independent+prior" and np.median(found) < np.inf
    }
    holds = bool(beaten) and all(value < 2.0 ** int(key[4:]) for key, value in beaten.items())
    claims.append(
        Claim("Bootstrapped critics with a prior need fewer than 2^N episodes in every size", holds, beaten)
    )
    theirs = _best_of(reach, "independent", "+")
    for kind in [kind for kind in ENSEMBLES if kind.startswith("functional") and kind in reach]:
        ours = _best_of(reach, kind)
        statement = f"{kind} critics with their best options reach as far as bootstrapped critics with priors"
        figures = {ours[0]: ours[1], theirs[0]: theirs[1]}
        claims.append(Claim(statement, ours[1] >= theirs[1], figures, "sec-psrl"))
    claims += _option_claims(solved, reach)
    return claims


def _option_claims(solved: Solved, reach: dict[str, int]) -> list[Claim]:
    """Further, or as far in fewer episodes, in the deterministic form."""

    def further(first: str, second: str, statement: str, source: str = "") -> Claim:
        size = min(size for form, name, size in solved if form == "deterministic" and name == first)
        medians = [float(np.median(solved["deterministic", name, size])) for name in (first, second)]
        holds = reach[first] > reach[second] or (reach[first] == reach[second] and medians[0] < medians[1])
        figures = {f"{name}: largest size": reach[name] for name in (first, second)} | {
            f"{name}: median at N = {size}": median for name, median in zip((first, second), medians, strict=True)
        }
        return Claim(statement, holds, figures, source)

    ours = "functional-own+prior"
    claims = [
        further(ours, f"{rival}+prior", f"The functional form gets further than {rival} critics, both with a prior",
                "sec-psrl") for rival in ("shared", "independent", "actors")
    ]  # fmt: skip
    statement = "The second term of the gradient brings functional critics with a prior further"
    claims.append(further(ours, "functional-first+prior", statement, "eq (2)"))
    kinds = [kind for kind in ENSEMBLES if {f"{kind}+prior", f"{kind}+prior, per step"} <= reach.keys()]
    for kind in kinds:
        claims.append(further(f"{kind}+prior", kind, f"A prior brings {kind} critics further"))
    for kind in kinds:
        statement = f"One member per episode brings {kind} critics further than one per step"
        claims.append(further(f"{kind}+prior", f"{kind}+prior, per step", statement, "alg-nn, line 7"))
    return claims


def _notes(solved: Solved) -> list[str]:
    notes = []
    for form, reach in _reaches(solved).items():
        names = sorted(reach, key=lambda name: -reach[name])[:8]
        notes.append(f"largest {form} size solved: " + ", ".join(f"{name} {reach[name]}" for name in names))
    return notes


EXPERIMENT = DeepSea()
