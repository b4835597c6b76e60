"""The runs of `fcritic explore deepsea`: who dives, up to which size, and where finished dives are kept."""

from collections.abc import Callable, Iterable
import dataclasses
import functools
import json
from pathlib import Path
import time
from typing import Any

from jaxtyping import Float
import numpy as np

from fcritic.disk import read_json, replace_file
from fcritic.errors import cannot_write
from fcritic.exploration.ensembles import Ensemble
from fcritic.exploration.episodes import explore, first_solved
from fcritic.exploration.learners import LEARNERS, Learner
from fcritic.exploration.methods import Method
from fcritic.exploration.running import episodes_to_solve
from fcritic.exploration.tasks import Task, deep_sea
from fcritic.theory.experiments.base import plain

SEEDS = 10


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
