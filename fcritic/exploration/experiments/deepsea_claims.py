"""What `fcritic explore deepsea` judges: how far methods get, options one by one, and why the second term fails."""

from typing import Any

import numpy as np

from fcritic.exploration.experiments.deepsea_runs import Dive
from fcritic.exploration.experiments.judging import gap
from fcritic.exploration.methods import ENSEMBLES
from fcritic.theory.experiments.base import Claim

KNOWN_COSINE = 0.5
"""A critic knows its second term if the cosine with the exact one is above this on average."""

Dives = dict[tuple[str, str, int], Dive]
"""By form, method and size."""
Reach = dict[str, dict[str, int]]
"""By form and method: the largest size that more than half of the seeds solve; 0 where there is none."""


def kind_of(name: str) -> str:
    """The kind of an ensemble, without its options."""
    return name.split(",")[0].split("+")[0]


def reaches(dives: Dives) -> Reach:
    """How far each method gets."""
    found: Reach = {}
    for (form, name, size), dive in dives.items():
        best = found.setdefault(form, {})
        best[name] = max(best.get(name, 0), size if dive.median < np.inf else 0)
    return found


def claims_of(dives: Dives, episodes: int) -> list[Claim]:
    """All but those about slopes; `episodes` is what a seed that did not solve a sea counts for."""
    reach = reaches(dives)
    undirected = {name: reach["deterministic"][name] for name in ("greedy", "epsilon-greedy")}
    claims = [Claim("Greedy and epsilon-greedy learners solve no size", max(undirected.values()) == 0, undirected)]
    for form in reach:
        claims += _reach_claims(dives, form, reach[form])
    return claims + _option_claims(dives, reach["deterministic"], episodes)


def _reach_claims(dives: Dives, form: str, reach: dict[str, int]) -> list[Claim]:
    beaten = {
        f"N = {size}": dive.median
        for (each, name, size), dive in dives.items()
        if each == form and name == "independent+prior" and dive.median < np.inf
    }
    holds = bool(beaten) and all(value < 2.0 ** int(key[4:]) for key, value in beaten.items())
    statement = f"Bootstrapped critics with a prior need fewer than 2^N episodes in every size, {form}"
    claims = [Claim(statement, holds, beaten)]
    theirs = _best_of(dives, form, reach, "independent", "+")
    for kind in [kind for kind in ENSEMBLES if kind.startswith("functional") and kind in reach]:
        ours = _best_of(dives, form, reach, kind)
        statement = f"{kind} critics with their best options reach as far as bootstrapped ones with priors, {form}"
        claims.append(
            Claim(statement, reach[ours] >= reach[theirs], {n: reach[n] for n in (ours, theirs)}, "sec-psrl")
        )
    return claims


def _best_of(dives: Dives, form: str, reach: dict[str, int], kind: str, part: str = "") -> str:
    """The options that get furthest, and there in the fewest episodes; one member per episode."""
    names = [name for name in reach if kind_of(name) == kind and part in name and "per step" not in name]
    return max(names, key=lambda name: (reach[name], reach[name] and -dives[form, name, reach[name]].median))


def _option_claims(dives: Dives, reach: dict[str, int], episodes: int) -> list[Claim]:
    """In the deterministic form."""

    def further(first: str, second: str, statement: str, source: str = "") -> Claim:
        return _further(dives, reach, episodes, first, second, statement, source)

    ours = "functional-own+prior"
    claims = [
        further(ours, f"{rival}+prior", f"The functional form gets further than {rival} critics, both with a prior",
                "sec-psrl") for rival in ("shared", "independent", "actors")
    ]  # fmt: skip
    statement = "The second term of the gradient brings functional critics with a prior further"
    claims.append(further(ours, "functional-first+prior", statement, "eq (2)"))
    if "functional+prior" in reach:
        statement = "Training every critic on all actors brings functional critics with a prior further"
        claims.append(further("functional+prior", ours, statement, "alg-nn, line 13"))
        statement = "Policies near its actor, never run, in a critic's training bring functional critics further"
        claims.append(further("functional-near+prior", ours, statement))
    kinds = [kind for kind in ENSEMBLES if {f"{kind}+prior", f"{kind}+prior, per step"} <= reach.keys()]
    for kind in kinds:
        claims.append(further(f"{kind}+prior", kind, f"A prior brings {kind} critics further"))
    for kind in kinds:
        statement = f"One member per episode brings {kind} critics further than one per step"
        claims.append(further(f"{kind}+prior", f"{kind}+prior, per step", statement, "alg-nn, line 7"))
    return claims


def _further(
    dives: Dives, reach: dict[str, int], episodes: int, first: str, second: str, statement: str, source: str
) -> Claim:
    """To a larger size; or as far, and at the largest size that both have tried surely in fewer episodes."""
    size = max(size for form, name, size in dives if (form, second, size) in dives and name == first)
    tried = [dives["deterministic", name, size] for name in (first, second)]
    found = gap(*(np.minimum(dive.solved_at, episodes) for dive in tried))
    holds = reach[first] > reach[second] or (reach[first] == reach[second] and found.below)
    figures = {f"{name}: largest size": reach[name] for name in (first, second)}
    told = found.figures(*(f"{name}: mean episodes at N = {size}" for name in (first, second)))
    return Claim(statement, holds, figures | told, source)


def slope_claims(slopes: dict[str, dict[str, float]]) -> list[Claim]:
    """By method: whether the second term of its critics is the one of their worlds."""
    statement = "The second term of {} critics points where the exact one does"
    return [
        Claim(statement.format(name), each["cosine"] > KNOWN_COSINE, each, "eq (2)")
        for name, each in slopes.items()
    ]


def notes_of(dives: Dives) -> list[str]:
    """How far the best got."""
    notes = []
    for form, reach in reaches(dives).items():
        order: Any = lambda name, form=form, reach=reach: (
            -reach[name],
            dives[form, name, reach[name]].median if reach[name] else np.inf,
        )
        names = sorted(reach, key=order)[:8]
        notes.append(f"largest {form} size solved: " + ", ".join(f"{name} {reach[name]}" for name in names))
    return notes
