"""Curves of runs whose folders are elsewhere or gone, from the curves.csv of a report or of `results/`."""

import csv
import io
from pathlib import Path
from typing import NamedTuple

from fcritic.disk import open_plain
from fcritic.errors import UsageError

MOST_BYTES = 2**24

Curve = dict[int, float]
"""Frames -> the mean actor's return, of one seed."""


class Stored(NamedTuple):
    """The curves of one run, by seed, and the file that they are from."""

    curves: dict[int, Curve]
    source: str


Stock = dict[tuple[str, int, str], Stored]
"""By task, environments and method."""


def read_stock(paths: tuple[str, ...]) -> Stock:
    """Everything in such files; of a run that is in several the last file counts."""
    stock: Stock = {}
    for path in map(Path, paths):
        found: Stock = {}
        for task, envs, method, seed, frames, value in _rows(path):
            run = found.setdefault((task, envs, method), Stored({}, path.name))
            run.curves.setdefault(seed, {})[frames] = value
        stock |= found
    return stock


def _rows(path: Path) -> list[tuple[str, int, str, int, int, float]]:
    try:
        with open_plain(path, MOST_BYTES) as file:
            rows = csv.DictReader(io.StringIO(file.readall().decode()))
            return [
                (row["task"], int(row["envs"]), row["method"], int(row["seed"]), int(row["frames"]),
                 float(row["mean_actor"]))
                for row in rows
            ]  # fmt: skip
    except OSError as error:
        raise UsageError(f"--add: cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        wanted = "task, envs, method, seed, frames, mean_actor"
        raise UsageError(f"--add: {path} is no curves.csv with {wanted} ({error})") from error
