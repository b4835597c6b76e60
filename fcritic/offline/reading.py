"""Logged data of any kind as one dataset: runs, folders of `fcritic log`, files in the layout of D4RL, Minari."""

from collections.abc import Sequence
import math
import os
from pathlib import Path

import numpy as np

from fcritic.disk import Place
from fcritic.envs import Task, name_of, task_units
from fcritic.envs.base import Units
from fcritic.errors import UsageError
from fcritic.offline import folder
from fcritic.offline.d4rl import kind_of, of_hdf5, of_npz
from fcritic.offline.dataset import FIELDS, Dataset
from fcritic.offline.interface import units_of
from fcritic.offline.minari_data import folder_of, of_minari
from fcritic.offline.run_replay import of_run
from fcritic.offline.source import Arrays, Scale, Source
from fcritic.offline.storage import IN_MEMORY, require_room, room
from fcritic.runs import CONFIG

Bounds = tuple[float | Sequence[float], float | Sequence[float]]


def read_logs(
    sources: str | Path | Sequence[str | Path], task: Task | None = None, bounds: Bounds | None = None
) -> Dataset:
    """Returns the transitions of one or several sources, one after the other, in files if they are many.

    `task` names the environment, or builds it, where the data do not: it decides the bounds of actions. `bounds`
    are those of the actions in files that do not tell them, lowest and highest; without either they are -1 and 1.
    """
    found = [_open(os.fspath(each), task) for each in ([sources] if isinstance(sources, str | Path) else sources)]
    if not found:
        raise UsageError("no data are named; give --data at least one")
    _require_alike(found)
    units, name = _units(found, task, bounds)
    guessed = task is None and bounds is None and all(each.bounds is None for each in found)
    first = found[0]
    arrays = first.arrays() if len(found) == 1 and first.arrays else _filled(found, Scale(units.actions, guessed))
    repeat = next((each.action_repeat for each in found if each.action_repeat is not None), None)
    return Dataset(
        **arrays, sources=tuple(each.name for each in found), units=units, task=name, action_repeat=repeat
    )


def _open(name: str, task: Task | None) -> Source:
    path = Path(name)
    if path.is_dir():
        place = Place(path)
        if (place / CONFIG).status() is not None:
            return of_run(name, task)
        if (place / folder.FACTS).status() is not None:
            return folder.of_folder(name)
        if folder_of(name) is not None:
            return of_minari(name)
        raise UsageError(
            f"{name} is not a run, a folder written by fcritic log or a dataset of Minari "
            f"(it has neither {CONFIG} nor {folder.FACTS} nor data/metadata.json)"
        )
    if not path.exists() and not path.is_symlink():
        if path.suffix in (".npz", ".hdf5", ".h5"):
            raise UsageError(f"{name} does not exist")
        return of_minari(name)
    kind = kind_of(name)
    if kind is None:
        raise UsageError(
            f"{name} is not an NPZ or HDF5 file; save it with numpy.savez or h5py, in the layout of D4RL"
        )
    return {"npz": of_npz, "hdf5": of_hdf5}[kind](name)


def _require_alike(found: list[Source]) -> None:
    first = found[0]
    for other in found[1:]:
        for what, one, two in (
            ("observations of size", first.obs_dim, other.obs_dim),
            ("actions of shape", first.act_shape, other.act_shape),
        ):
            if one != two:
                raise UsageError(f"{first.name} has {what} {one}, {other.name} {two}; rank them apart")
    for what, values in (
        ("task", {each.task: each.name for each in found if each.task is not None}),
        ("action repeat", {each.action_repeat: each.name for each in found if each.action_repeat is not None}),
    ):
        if len(values) > 1:
            (one, here), (two, there) = list(values.items())[:2]
            raise UsageError(f"{here} has the {what} {one}, {there} {two}; rank them apart")


def _units(found: list[Source], task: Task | None, bounds: Bounds | None) -> tuple[Units, str | None]:
    """The units of all sources, and the name of the task."""
    first = found[0]
    name = next((each.task for each in found if each.task is not None), None)
    if task is not None:
        name = name_of(task)
        spec, units = task_units(name)
        if (spec.obs_dim, units.actions.low.shape) != (first.obs_dim, first.act_shape):
            raise UsageError(
                f"{first.name} has observations of size {first.obs_dim} and actions of shape {first.act_shape}, "
                f"{name} has {spec.obs_dim} and {units.actions.low.shape}; choose another --task"
            )
    else:
        low, high = _bounds(found, bounds)
        shape = next((each.obs_shape for each in found if each.obs_shape is not None), None)
        units = units_of(shape, low, high)
    for each in found:
        if each.bounds is not None and not all(
            np.allclose(one, two)
            for one, two in zip(each.bounds, (units.actions.low, units.actions.high), strict=True)
        ):
            raise UsageError(
                f"{each.name} has actions from {_listed(each.bounds[0])} to {_listed(each.bounds[1])}, not from "
                f"{_listed(units.actions.low)} to {_listed(units.actions.high)}; rank them apart"
            )
    return units, name


def _bounds(found: list[Source], given: Bounds | None) -> tuple[np.ndarray, np.ndarray]:
    known = [each.bounds for each in found if each.bounds is not None]
    shape = found[0].act_shape
    if known and given is None:
        return known[0]
    try:
        low, high = (np.broadcast_to(np.asarray(each, np.float32), shape).copy() for each in given or (-1, 1))
    except ValueError:
        raise UsageError(f"the bounds of actions must be numbers or have shape {shape}, as actions have") from None
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise UsageError(f"the bounds of actions must be finite and rise, not {_listed(low)} and {_listed(high)}")
    return low, high


def _filled(found: list[Source], scale: Scale) -> Arrays:
    """The rows of all sources, one after the other."""
    first = found[0]
    total = sum(each.rows for each in found)
    wide = {"obs": first.obs_dim, "next_obs": first.obs_dim, "act": math.prod(first.act_shape)}
    shapes = {name: (total, wide[name]) if name in wide else (total,) for name in FIELDS}
    size = sum(math.prod(shape) * FIELDS[name].itemsize for name, shape in shapes.items())
    if size > IN_MEMORY:
        require_room(size, f"{total:,} transitions")
    arrays = {name: room(shape, FIELDS[name]) for name, shape in shapes.items()}
    place = 0
    for each in found:
        part = {name: array[place : place + each.rows] for name, array in arrays.items()}
        place += each.fill(part, scale)
    return {name: array[:place] for name, array in arrays.items()}


def _listed(bound: np.ndarray) -> str:
    numbers = [f"{number:g}" for number in np.ravel(bound)[:4]]
    return ", ".join(dict.fromkeys(numbers)) if len(set(numbers)) == 1 else ", ".join(numbers)
