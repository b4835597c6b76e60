"""A search for options: trials that are ordinary runs, drawn by Optuna, and ended early where their curve lags.

Optuna is an extra (`pip install 'fcritic[tune]'`) and is imported nowhere else. Its journal in the search's folder
is JSON, and each trial's folder can be resumed, watched and evaluated as any run.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
import dataclasses
import fcntl
import json
from pathlib import Path
import shlex
import threading
import time
import tomllib
from typing import Any

import numpy as np

from fcritic.config import TrainConfig, as_words
from fcritic.disk import JSON_LIMIT, Place
from fcritic.errors import UsageError, did_you_mean, one_line
from fcritic.logs.metrics import each_row
from fcritic.runs.directory import RunDirectory
from fcritic.study.execute import Budget
from fcritic.training.loop import FREE_FIELDS

JOURNAL, SPACE, LOCK = "optuna.journal", "space.json", "lock"
"""Files of a search."""

LOOK = 1.0
"""Seconds between looks at a trial's curve."""

LAST = 0.75
"""A trial's score is the mean of its evaluations after this share of its frames."""

MOST_NUMBER = 1e15
"""Of a range, also of steps in it: what is larger loses its digits."""

MOST_BYTES, MOST_TRIALS = 2**27, 10_000
"""Of a journal, which Optuna reads whole, and trials in it."""

UNTRIED = 4
"""Trials that are never ended early, as there is nothing to compare them with."""

Work = Callable[[Path, Any], str]
"""Continues the run in a folder until its end or until a watch has no time left; returns its fault, or nothing."""


@dataclasses.dataclass(frozen=True)
class Space:
    """What all trials have in common, and what is drawn for each, by the options of `fcritic train`."""

    train: dict[str, Any]
    search: dict[str, Any]
    """A list of choices, or a range: `low`, `high` and perhaps `log` and `step`."""

    @staticmethod
    def read(path: str) -> "Space":
        """The space in a TOML or JSON file, with the tables `train` and `search`."""
        if Path(path).suffix not in (".toml", ".json"):
            raise UsageError(f"{path} is not a TOML or JSON file; name one that ends in .toml or .json")
        try:
            text = Place.of(path).read(JSON_LIMIT).decode()
            found = (tomllib if Path(path).suffix == ".toml" else json).loads(text)
        except FileNotFoundError:
            raise UsageError(f"{path} does not exist") from None
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"{path} cannot be read: {one_line(str(error), 200)}") from error
        for name in found if isinstance(found, dict) else ():
            if name not in ("train", "search"):
                hint = did_you_mean(name, ("train", "search")) or "; known are train and search"
                raise UsageError(f"{path}: unknown table {name:.60}{hint}")
        tables = found if isinstance(found, dict) else {}
        train, search = tables.get("train", {}), tables.get("search")
        if not isinstance(train, dict) or not isinstance(search, dict) or not search:
            raise UsageError(f"{path} has nothing to search; give it a table [search] of options and ranges")
        dashed = lambda table: {name.replace("_", "-"): value for name, value in table.items()}
        train, search = dashed(train), dashed(search)
        for name, each in search.items():
            if name in train:
                raise UsageError(f"{path}: {name} is both fixed and searched; leave one out")
            _require_range(f"{path}: {name}", each)
        return Space(train, search)

    def draw(self, trial: Any) -> dict[str, Any]:
        """The options of a trial; those of one that was begun before are the same again."""
        return {name: _drawn(trial, name, each) for name, each in self.search.items()}

    def first(self) -> dict[str, Any]:
        """The lowest or first value of each option, to try whether the options fit at all."""
        return {name: each[0] if isinstance(each, list) else each["low"] for name, each in self.search.items()}

    def words(self, drawn: dict[str, Any]) -> list[str]:
        """Returns the options as words of a command line."""
        return [word for name, value in (self.train | drawn).items() for word in as_words(name, value)]


def _require_range(what: str, each: Any) -> None:
    if isinstance(each, list) and each:
        return
    number = lambda value: type(value) in (int, float) and abs(value) <= MOST_NUMBER
    known = {"low", "high", "log", "step"}
    if not isinstance(each, dict) or not known >= each.keys() >= {"low", "high"}:
        raise UsageError(
            f"{what} must be a list of choices or a range such as {{low = 1e-4, high = 1e-2, log = true}}"
        )
    low, high, step = each["low"], each["high"], each.get("step", 1)
    if (
        not all(map(number, (low, high, step)))
        or not low < high
        or step <= 0
        or (high - low) / step > MOST_NUMBER
        or type(each.get("log", True)) is not bool
    ):
        raise UsageError(f"{what} has a range that does not rise, is not of numbers, or is too wide")
    if each.get("log") and (low <= 0 or "step" in each):
        raise UsageError(f"{what} is logarithmic; its range must begin above 0 and have no step")


def _drawn(trial: Any, name: str, each: Any) -> Any:
    if isinstance(each, list):  # as text: a choice may be a list, such as hidden layers
        return json.loads(trial.suggest_categorical(name, [json.dumps(value) for value in each]))
    low, high, how = each["low"], each["high"], {key: each[key] for key in ("log", "step") if key in each}
    whole = type(low) is type(high) is int and type(each.get("step", 1)) is int
    return (trial.suggest_int if whole else trial.suggest_float)(name, low, high, **how)


def curve(path: Path) -> dict[int, float]:
    """The mean actor's return of a run, averaged over its seeds, by frame; only where all have been evaluated."""
    run, found = RunDirectory(path), {}
    if run.metrics.status() is None:
        return {}
    for _, row in each_row(run.metrics):
        if row["kind"] == "evaluation":
            found.setdefault(row["env_steps"], {})[row["seed"]] = row["mean_actor"]
    most = max(map(len, found.values()), default=0)
    return {frame: float(np.mean(list(of.values()))) for frame, of in found.items() if len(of) == most}


def score(points: dict[int, float]) -> float:
    """The mean over the last evaluations."""
    last = max(points)
    return float(np.mean([value for frame, value in points.items() if frame > LAST * last]))


class Watch:
    """Tells Optuna a trial's curve as it grows. As a budget it is spent when the trial shall stop."""

    def __init__(self, study: Any, trial: Any, path: Path, rest: Budget, stopping: threading.Event):
        self._study, self._trial, self._path, self._rest, self._stopping = study, trial, path, rest, stopping
        self._told = set(study.get_trials(deepcopy=False)[trial.number].intermediate_values)
        self._looked, self.pruned = 0.0, False

    @property
    def left(self) -> float:
        """Seconds that the trial may still take."""
        if self._stopping.is_set():
            return 0.0
        if not self.pruned and time.monotonic() - self._looked > LOOK:
            self.look()
            self._looked = time.monotonic()
        return 0.0 if self.pruned else self._rest.left

    def look(self) -> dict[int, float]:
        """Reads the curve, and asks whether it is worth going on."""
        points = curve(self._path)
        for frame in sorted(points.keys() - self._told):
            self._trial.report(points[frame], frame)
            self._told.add(frame)
            self.pruned = self.pruned or self._trial.should_prune()
        return points


class Search:
    """A search in a folder, begun or continued."""

    def __init__(
        self, folder: Path, space: Space, configure: Callable[[list[str]], TrainConfig], prune: bool = True
    ):
        optuna = _package()
        self.folder, self.space, self._configure = folder, space, configure
        steps = configure(space.words(space.first())).steps  # wrong options are refused before anything is written
        place = Place(folder)
        place.make()
        self._lock = (place / LOCK).appending()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another process searches in {folder}; wait for it or choose another --out") from None
        _settle(place / SPACE, dataclasses.asdict(space), folder)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        (place / JOURNAL).appending().close()  # what is a link or has a second name is refused
        (place / JOURNAL).reading(MOST_BYTES).close()
        # Of a relative path Optuna's lock is a link to nowhere, which a kill would leave for ever.
        journal = (folder / JOURNAL).resolve()
        Path(f"{journal}.lock").unlink(missing_ok=True)  # nobody else is here: our own lock says so
        file = optuna.storages.journal.JournalFileBackend(str(journal))
        plain = optuna.pruners.NopPruner()
        median = optuna.pruners.MedianPruner(n_startup_trials=UNTRIED, n_warmup_steps=steps // 4)
        try:
            self._study = optuna.create_study(
                storage=optuna.storages.JournalStorage(file),
                sampler=optuna.samplers.TPESampler(seed=0),
                pruner=median if prune else plain,
                study_name="fcritic",
                direction="maximize",
                load_if_exists=True,
            )
            _require_sound(self._study, optuna.study.StudyDirection.MAXIMIZE)
        except Exception as error:  # of Optuna, which trusts its journal: asserts, wrong types, deep nests
            what = one_line(str(error), 80) or type(error).__name__
            raise UsageError(f"{folder / JOURNAL} is damaged ({what}); choose another --out") from error
        self._states, self._trial_of = optuna.trial.TrialState, optuna.trial.Trial
        done = len(self._study.get_trials(deepcopy=False))
        if done:  # or the draws of before would come again
            self._study.sampler = optuna.samplers.TPESampler(seed=done)

    def run(self, trials: int, jobs: int, work: Work, budget: Budget, say: Callable[[str], None]) -> None:
        """Trains until there are so many trials or the budget is spent; those that were begun come first."""
        begun = self._study.get_trials(deepcopy=False, states=(self._states.RUNNING,))
        waiting = [self._trial_of(self._study, each._trial_id) for each in begun if each.number < trials]
        asking, stopping = threading.Lock(), threading.Event()

        def following() -> Any:
            with asking:
                if waiting:
                    return waiting.pop(0)
                return self._study.ask() if len(self._study.get_trials(deepcopy=False)) < trials else None

        def worker() -> None:
            while not stopping.is_set() and budget.left > 0 and (trial := following()) is not None:
                self._try(trial, work, budget, stopping, say)

        with ThreadPoolExecutor(jobs, "trial") as pool:
            workers = [pool.submit(worker) for _ in range(jobs)]
            try:
                while wait(workers, LOOK).not_done:
                    pass
            except BaseException:  # Ctrl-C: let all save
                stopping.set()
                raise
        for each in workers:
            each.result()

    def _try(self, trial: Any, work: Work, budget: Budget, stopping: threading.Event, say: Callable) -> None:
        path, name = self.folder / f"trial-{trial.number:04d}", f"trial {trial.number}"
        drawn = self.space.draw(trial)
        try:
            words = self.space.words(drawn)
            config = self._configure(words)
            command = f"fcritic train {shlex.join(words)}"
            (Place(self.folder) / path.name).make()  # refuses a link, of a folder that came from elsewhere
            RunDirectory.create_or_open(path, config.to_json(), command, FREE_FIELDS).close()
            say(f"{name} trains with {_in_words(drawn)}")
            watch = Watch(self._study, trial, path, budget, stopping)
            fault = work(path, watch)
            points = watch.look()
        except UsageError as error:
            fault, points, watch = str(error), {}, None
        if stopping.is_set():
            return  # the same command goes on with it
        if fault:
            say(f"{name} failed: {fault}")
            self._study.tell(trial, state=self._states.FAIL)
        elif points and RunDirectory(path).newest_frame() >= config.iterations * config.frames_per_iteration:
            say(f"{name}: {score(points):.1f} with {_in_words(drawn)}")
            self._study.tell(trial, score(points))
        elif watch is not None and watch.pruned:
            say(f"{name} ended at frame {max(points):,} with {points[max(points)]:.1f}: {_in_words(drawn)}")
            self._study.tell(trial, state=self._states.PRUNED)

    def outcome(self) -> dict[str, Any]:
        """All trials, the best first, as JSON can hold it."""
        rows = []
        for each in self._study.get_trials(deepcopy=False):
            drawn = {name: self._value(name, value) for name, value in each.params.items()}
            points = {int(frame): value for frame, value in sorted(each.intermediate_values.items())}
            whole = each.state == self._states.COMPLETE
            states = {"COMPLETE": "finished", "PRUNED": "ended early", "FAIL": "failed", "RUNNING": "begun"}
            rows.append(
                {
                    "trial": each.number,
                    "state": states.get(each.state.name, "waiting"),
                    "score": each.value if whole else None,
                    "frames": max(points, default=0),
                    "options": drawn,
                    "curve": {"frames": list(points), "returns": list(points.values())},
                }
            )
        last = lambda row: row["curve"]["returns"][-1:] or [-np.inf]
        rows.sort(key=lambda row: (row["score"] is None, [-value for value in (row["score"] or 0.0, *last(row))]))
        best = rows[0] if rows and rows[0]["score"] is not None else None
        command = None if best is None else f"fcritic train {shlex.join(self.space.words(best['options']))}"
        return {"best": None if best is None else best["trial"], "command": command, "trials": rows}

    def _value(self, name: str, value: Any) -> Any:
        return json.loads(value) if isinstance(self.space.search[name], list) else value


def table(outcome: dict[str, Any]) -> str:
    """The trials as lines of text, and the command that trains with the best options."""
    rows = outcome["trials"]
    names = list(dict.fromkeys(name for row in rows for name in row["options"]))
    lines = [["trial", "score", "frames", "state", *names]]
    for row in rows:
        points = row["curve"]["returns"]
        value = f"{row['score']:.1f}" if row["score"] is not None else f"({points[-1]:.1f})" if points else ""
        options = [_short(row["options"].get(name, "")) for name in names]
        lines.append([str(row["trial"]), value, f"{row['frames']:,}", row["state"], *options])
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    best = [f"best: {outcome['command']}"] if outcome["command"] else ["no trial is finished yet"]
    return "\n".join([*text, *best])


def _in_words(drawn: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in drawn.items())


def _short(value: Any) -> str:
    return (
        f"{value:.3g}"
        if isinstance(value, float)
        else " ".join(map(str, value))
        if isinstance(value, list)
        else str(value)
    )


def _require_sound(study: Any, direction: Any) -> None:
    """Raises `ValueError` where a journal holds what no search of ours has written."""
    trials = study.get_trials(deepcopy=False)
    if study.directions != [direction] or len(trials) > MOST_TRIALS:
        raise ValueError(f"it has {len(trials):,} trials towards {len(study.directions)} goals")
    for trial in trials:
        for frame, value in trial.intermediate_values.items():
            if type(frame) is not int or not 0 <= frame < 2**63 or type(value) not in (int, float):
                raise ValueError(f"trial {trial.number} has no curve")


def _settle(place: Place, space: dict[str, Any], folder: Path) -> None:
    """Writes the space of a new search; another one than before is refused."""
    if place.status() is None:
        place.replace((json.dumps(space, indent=2) + "\n").encode())
        return
    try:
        known = place.read_json()
    except (OSError, ValueError) as error:
        raise UsageError(f"{place} cannot be read; choose another --out") from error
    if known != json.loads(json.dumps(space)):
        raise UsageError(f"{folder} holds a search in another space; choose another --out or change the file back")


def _package() -> Any:
    try:
        import optuna
        import optuna.storages.journal
    except ImportError as error:
        raise UsageError("fcritic tune needs Optuna; install it with: pip install 'fcritic[tune]'") from error
    return optuna
