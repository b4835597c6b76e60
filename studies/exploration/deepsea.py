"""Episodes to solve DeepSea against its size, for known learners and ensembles, beside 2^N."""

from collections.abc import Callable, Iterable
import dataclasses
import functools
import json
from pathlib import Path
import textwrap
import time
from typing import Any

from jaxtyping import Float
import numpy as np

from fcritic.disk import read_json, replace_file
from fcritic.envs.exact import Task, deep_sea
from fcritic.errors import cannot_write
from fcritic.exploration.ensembles import Ensemble
from fcritic.exploration.known import LEARNERS, Learner, explore, first_solved
from fcritic.exploration.learning import episodes_to_solve
from fcritic.results.plots import panels
from fcritic.study.spec import Findings, Kind, Study, Trainings, Verdict, judged, plain
from studies.exploration.judging import Gap, gap
from studies.exploration.methods import ENSEMBLES, REMEDIES, Method, brief_methods, main_methods, masked_methods
from studies.exploration.slopes import knowledge

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


SEEDS = 10
TRIES = 100
"""Episodes that the standard score grants in addition to 2^size."""


def standard_score(size: int, solved: Float[np.ndarray, " seeds"]) -> float:
    """Returns the share of seeds that solve DeepSea before 2^size + 100 episodes, the time of undirected search."""
    return float(np.mean(solved < 2.0**size + TRIES))


@dataclasses.dataclass(frozen=True)
class Diver:
    """One method: task and episodes -> the first solved episode of each seed, infinite where there was none."""

    name: str
    dive: Callable[[Task, int], Float[np.ndarray, " seeds"]]
    settings: dict[str, Any]
    """What decides the outcome besides the task; a kept dive with other settings does not count."""


@dataclasses.dataclass(frozen=True)
class Dive:
    """What a diver did in one sea."""

    form: str
    """deterministic or stochastic."""
    name: str
    size: int
    solved_at: Float[np.ndarray, " seeds"]
    cpu_seconds: float

    @property
    def median(self) -> float:
        """Infinite unless more than half of the seeds have solved it."""
        return float(np.median(self.solved_at))


def divers(methods: Iterable[Method]) -> list[Diver]:
    """The known learners, then ensembles."""
    return [_known(name, learner) for name, learner in LEARNERS.items()] + ensemble_divers(methods)


def ensemble_divers(methods: Iterable[Method]) -> list[Diver]:
    """Ensembles alone."""
    return [_ensemble(each) for each in methods]


def _known(name: str, learner: Learner) -> Diver:
    def dive(task: Task, episodes: int) -> Float[np.ndarray, " seeds"]:
        return first_solved(explore(task, learner, episodes, SEEDS, stop_when_solved=True).bad)

    return Diver(name, dive, {"learner": repr(learner), "seeds": SEEDS})


def _ensemble(method: Method) -> Diver:
    def dive(task: Task, episodes: int) -> Float[np.ndarray, " seeds"]:
        return episodes_to_solve(task, method.ensemble, method.options(), episodes, SEEDS)

    return Diver(
        method.name, dive, {"ensemble": _changed(method.ensemble), "options": _numbers(method), "seeds": SEEDS}
    )


def _changed(ensemble: Ensemble) -> dict[str, Any]:
    """Fields that are not at their default, so that a new field leaves old dives valid."""
    defaults = Ensemble(ensemble.kind)
    fields = {each.name: getattr(ensemble, each.name) for each in dataclasses.fields(ensemble)}
    return {name: value for name, value in fields.items() if name == "kind" or value != getattr(defaults, name)}


def _numbers(method: Method) -> dict[str, float]:
    options = method.options()
    return {each.name: float(getattr(options, each.name)) for each in dataclasses.fields(options)}


def climb(
    who: Iterable[Diver], sizes: dict[str, tuple[int, ...]], episodes: int, folder: Path | None = None
) -> list[Dive]:
    """All dives. A method goes on to the next size while more than half of its seeds solve this one.

    **Arguments:** `sizes` by form; a finished dive is kept in `folder` and not repeated.
    """
    found = []
    for form, ladder in sizes.items():
        running = list(who)
        for size in ladder:
            task = deep_sea(size, stochastic=form == "stochastic")
            dives = {diver.name: _dive(diver, form, task, episodes, folder) for diver in running}
            found += dives.values()
            running = [diver for diver in running if dives[diver.name].median < np.inf]
    return found


def _dive(diver: Diver, form: str, task: Task, episodes: int, folder: Path | None) -> Dive:
    settings = plain(diver.settings)
    made = functools.partial(Dive, form, diver.name, task.states)
    place = folder and folder / task.name / f"{diver.name.replace(', ', '-').replace(' ', '-')}.json"
    if place and (kept := _kept(place, settings, episodes)):
        return made(*kept)
    worked = time.process_time()
    solved = diver.dive(task, episodes)
    seconds = time.process_time() - worked
    if place:
        kept = {"settings": settings, "episodes": episodes, "solved_at": plain(solved)}
        _keep(place, kept | {"cpu_seconds": round(seconds, 1)})
    return made(solved, seconds)


def _kept(place: Path, settings: dict[str, Any], episodes: int) -> tuple | None:
    """A finished dive with these settings that was long enough: every seed has solved it, or had as many episodes.

    Whatever else lies there is no obstacle: the dive is repeated.
    """
    try:
        content = read_json(place)
        solved = np.array(content["solved_at"], float)
        if content["settings"] == settings and (content["episodes"] >= episodes or np.isfinite(solved).all()):
            return np.where(solved <= episodes, solved, np.inf), float(content["cpu_seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _keep(place: Path, content: dict[str, Any]) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, json.dumps(content).encode())
    except OSError as error:
        raise cannot_write("a finished dive", place, error) from error


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


def claims_of(dives: Dives, episodes: int) -> list[Verdict]:
    """All but those about slopes; `episodes` is what a seed that did not solve a sea counts for."""
    reach = reaches(dives)
    undirected = {name: reach["deterministic"][name] for name in ("greedy", "epsilon-greedy")}
    claims = [
        judged(
            "Greedy and epsilon-greedy learners solve no size",
            max(undirected.values()) == 0,
            undirected,
            "",
            "control",
        )
    ]
    for form in reach:
        claims += _reach_claims(dives, form, reach[form])
    return claims + _option_claims(dives, reach["deterministic"], episodes)


def _reach_claims(dives: Dives, form: str, reach: dict[str, int]) -> list[Verdict]:
    theirs = _best_of(dives, form, reach, "independent", "+")
    solved = {size: dive.median for (each, name, size), dive in dives.items() if (each, name) == (form, theirs)}
    holds = all(median < 2.0**size for size, median in solved.items())
    statement = f"Bootstrapped critics with a prior, {theirs}, need fewer than 2^N episodes in every size, {form}"
    claims = [judged(statement, holds, {f"N = {size}": median for size, median in solved.items()}, "", "control")]
    for kind in [kind for kind in ENSEMBLES if kind.startswith("functional") and kind in reach]:
        ours = _best_of(dives, form, reach, kind)
        statement = f"{kind} critics with their best options reach as far as bootstrapped ones with priors, {form}"
        claims.append(
            judged(
                statement, reach[ours] >= reach[theirs], {n: reach[n] for n in (ours, theirs)}, "sec-psrl", "paper"
            )
        )
    return claims


def _best_of(dives: Dives, form: str, reach: dict[str, int], kind: str, part: str = "") -> str:
    """The options that get furthest, and there in the fewest episodes; one member per episode."""
    names = [name for name in reach if kind_of(name) == kind and part in name and "per step" not in name]
    return max(names, key=lambda name: (reach[name], reach[name] and -dives[form, name, reach[name]].median))


def _option_claims(dives: Dives, reach: dict[str, int], episodes: int) -> list[Verdict]:
    """In the deterministic form."""

    def further(first: str, second: str, statement: str, source: str = "", kind: Kind = "ours") -> Verdict:
        return _further(dives, reach, episodes, first, second, statement, source, kind)

    ours = "functional-own+prior"
    claims = [
        further(ours, f"{rival}+prior", f"The functional form gets further than {rival} critics, both with a prior",
                "sec-psrl", "paper") for rival in ("shared", "independent", "actors")
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


def _remedy_claims(dives: Dives, episodes: int, ours: str) -> list[Verdict]:
    """At the largest size that they have tried."""
    told = {
        "functional-all-first+prior": "All actors and no second term: fewer episodes than own actor and both terms",
        "functional-near+prior": "Policies near its actor, never run, in a critic's training: fewer episodes",
    }
    claims = []
    for name, statement in told.items():
        size, found = _at_largest(dives, episodes, name, ours)
        figures = found.figures(*(f"{each}: mean episodes at N = {size}" for each in (name, ours)))
        claims.append(judged(statement, found.below, figures))
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
    dives: Dives,
    reach: dict[str, int],
    episodes: int,
    first: str,
    second: str,
    statement: str,
    source: str,
    kind: Kind,
) -> Verdict:
    """To a larger size; or as far, and at the largest size that both have tried surely in fewer episodes."""
    size, found = _at_largest(dives, episodes, first, second)
    holds = reach[first] > reach[second] or (reach[first] == reach[second] and found.below)
    figures = {f"{name}: largest size": reach[name] for name in (first, second)}
    told = found.figures(*(f"{name}: mean episodes at N = {size}" for name in (first, second)))
    return judged(statement, holds, figures | told, source, kind)


def slope_claims(slopes: dict[str, dict[str, float]]) -> list[Verdict]:
    """By method: whether the second term of its critics is the one of their worlds."""
    statement = "The second term of {} critics points where the exact one does"
    return [
        judged(statement.format(name), each["cosine"] > KNOWN_COSINE, each, "eq (2)")
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


class DeepSea(Study):
    """A ladder of sizes. A method goes on to the next size while more than half of its seeds solve this one."""

    name = "deepsea"
    shown = ("reach",)
    question = (
        "Directed exploration solves DeepSea in far fewer than 2^N episodes; ensembles of functional critics get "
        "at least as far as bootstrapped critics with prior functions."
    )

    def find(self, runs: Trainings, quick: bool) -> Findings:
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
        return Findings(claims_of(dives, episodes) + slope_claims(slopes), rows, data, notes_of(dives))

    def draw(self, findings: Findings, path: Path) -> None:
        """Median episodes to solve, by size; a method ends with a cross where half of its seeds or more fail."""
        data = findings.plot
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


STUDY = DeepSea()
