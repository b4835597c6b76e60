"""What `fcritic explore sparse` found, as rows of sparse.csv, and read back from such files of other machines."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.disk import open_plain
from fcritic.errors import UsageError
from fcritic.exploration.experiments.sparse_runs import METHODS, SETTINGS, Found

MOST_BYTES = 2**20

Table = dict[tuple[str, str], Found]
"""By task and method."""


def rows_of(found: Table, frames: dict[str, int]) -> list[dict[str, Any]]:
    """One row for each seed."""
    return [
        {"task": task, "method": method, "frames": frames[task], "seed": seed,
         "first_reward": each.first_reward[seed], "mean_actor": each.mean_actor[seed],
         **{name: values[seed] for name, values in each.measures.items()}}
        for (task, method), each in found.items()
        for seed in range(len(each.mean_actor))
    ]  # fmt: skip


def read_found(path: Path) -> Table:
    """The trainings in a sparse.csv. Those with other frames than a task has now are refused."""
    try:
        with open_plain(path, MOST_BYTES) as file:
            rows = list(csv.DictReader(io.StringIO(file.readall().decode())))
        groups: dict[tuple[str, str], list[dict[str, str]]] = {}
        for row in rows:
            if row["method"] not in METHODS or int(row["frames"]) != SETTINGS[row["task"]].frames:
                raise ValueError(f"{row['task']}, {row['method']}, {row['frames']} frames is no training of ours")
            groups.setdefault((row["task"], row["method"]), []).append(row)
        return {key: _found(group) for key, group in groups.items()}
    except OSError as error:
        raise UsageError(f"--add: cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise UsageError(f"--add: {path} is no sparse.csv of this version ({error})") from error


def _found(rows: list[dict[str, str]]) -> Found:
    columns = {
        name: np.array([float(row[name]) for row in rows]) for name in rows[0] if name not in ("task", "method")
    }
    told = ("frames", "seed", "first_reward", "mean_actor")
    measures = {name: values for name, values in columns.items() if name not in told}
    return Found(columns["first_reward"], columns["mean_actor"], measures)
