"""What `fcritic explore deepsea` judges: how far methods get, options one by one, and why the second term fails."""

from typing import Any

import numpy as np

from fcritic.exploration.experiments.deepsea_runs import Dive
from fcritic.exploration.experiments.judging import Gap, gap
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
    theirs = _best_of(dives, form, reach, "independent", "+")
    solved = {size: dive.median for (each, name, size), dive in dives.items() if (each, name) == (form, theirs)}
    holds = all(median < 2.0**size for size, median in solved.items())
    statement = f"Bootstrapped critics with a prior, {theirs}, need fewer than 2^N episodes in every size, {form}"
    claims = [Claim(statement, holds, {f"N = {size}": median for size, median in solved.items()})]
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
        claims += _remedy_claims(dives, episodes, ours)
    kinds = [kind for kind in ENSEMBLES if {f"{kind}+prior", f"{kind}+prior, per step"} <= reach.keys()]
    for kind in kinds:
        claims.append(further(f"{kind}+prior", kind, f"A prior brings {kind} critics further"))
    for kind in kinds:
        statement = f"One member per episode brings {kind} critics further than one per step"
        claims.append(further(f"{kind}+prior", f"{kind}+prior, per step", statement, "alg-nn, line 7"))
    return claims


def _remedy_claims(dives: Dives, episodes: int, ours: str) -> list[Claim]:
    """At the largest size that they have tried."""
    told = {
        "functional-all-first+prior": "All actors and no second term: fewer episodes than own actor and both terms",
        "functional-near+prior": "Policies near its actor, never run, in a critic's training: fewer episodes",
    }
    claims = []
    for name, statement in told.items():
        size, found = _at_largest(dives, episodes, name, ours)
        figures = found.figures(*(f"{each}: mean episodes at N = {size}" for each in (name, ours)))
        claims.append(Claim(statement, found.below, figures))
    return claims


def _at_largest(dives: Dives, episodes: int, first: str, second: str) -> tuple[int, Gap]:
    """The largest deterministic size that both have tried, and the gap of episodes there."""
    ran = {
        name: {size for form, each, size in dives if (form, each) == ("deterministic", name)}
        for name in (first, second)
    }
    size = max(ran[first] & ran[second])
    tried = [dives["deterministic", name, size] for name in (first, second)]
    return size, gap(*(np.minimum(dive.solved_at, episodes) for dive in tried))


def _further(
    dives: Dives, reach: dict[str, int], episodes: int, first: str, second: str, statement: str, source: str
) -> Claim:
    """To a larger size; or as far, and at the largest size that both have tried surely in fewer episodes."""
    size, found = _at_largest(dives, episodes, first, second)
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
