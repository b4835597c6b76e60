"""Metrics for experiment trackers, Weights & Biases and Trackio: each is imported only when it is asked for."""

from collections.abc import Iterator
import contextlib
import importlib
import importlib.util
import io
import os
import time
from typing import Any

from fcritic.disk import Place
from fcritic.errors import CannotWrite, UsageError, writing
from fcritic.logs.metrics import numbers

PROJECT = "fcritic"


def require_tracker(name: str) -> None:
    """Refuses a tracker that is not installed; `files` needs none."""
    if name != "files" and importlib.util.find_spec(name) is None:
        raise UsageError(f"--log {name} needs a package that is not installed: pip install {name}, or --log files")


class TrackerLog:
    """A sink that hands rows to a tracker, under the names ``seed-3/kind/name``, with the frame as their step.

    Every process of a run is a run of its own there. Weights & Biases writes into a new folder in the run's
    directory, in which nothing can lie in wait for it, and sends nothing, unless WANDB_MODE says so; Trackio keeps
    its files where it always does. What they print is left out: it would stand between lines of JSON.
    """

    def __init__(self, name: str, directory: Place, config: dict[str, Any]):
        self._name = name
        told = {"project": PROJECT, "name": directory.path.resolve().name, "config": config}
        told["group"] = f"{config['recipe']} on {config['task']}"
        variables = {}
        if name == "wandb":
            folder = directory / f"wandb-{time.time_ns()}"
            with writing("the files of wandb", folder.path):
                folder.make_new()
            told |= {"dir": str(folder), "mode": os.environ.get("WANDB_MODE", "offline")}
            told["settings"] = {"silent": True}
            variables["WANDB_CACHE_DIR"] = os.environ.get("WANDB_CACHE_DIR", f"{folder}/cache")
        with _variables(**variables):
            self._tracker = self._call(lambda: importlib.import_module(name))
            self._run = self._call(lambda: self._tracker.init(**told))

    def write(self, rows: list[dict]) -> None:
        """One call for all rows of a frame."""
        frames: dict[int, dict[str, float]] = {}
        for row in rows:
            values = frames.setdefault(int(row["env_steps"]), {})
            values |= {f"seed-{row['seed']}/{row['kind']}/{name}": value for name, value in numbers(row)}
        for frame, values in frames.items():
            self._call(lambda values=values, frame=frame: self._run.log(values, step=frame))

    def close(self) -> None:
        """Tells the tracker that this was all; a run that is told itself is finished once more at exit, aloud."""
        self._call(self._tracker.finish)

    def _call(self, act: Any) -> Any:
        """Whatever goes wrong in there, it is a view of the metrics that cannot be written, and no more."""
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return act()
        except Exception as error:
            raise CannotWrite(f"{self._name} failed: {type(error).__name__}: {error!s:.200}") from error


@contextlib.contextmanager
def _variables(**values: str) -> Iterator[None]:
    """Variables of the environment for a while, which processes that are started then keep."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
