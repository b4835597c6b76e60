"""A dataset as a folder of this package's own: an array in NumPy's format for each field, and `dataset.json`."""

from collections.abc import Callable
import contextlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.disk import Place
from fcritic.envs.units import ActionRange, Units
from fcritic.errors import UsageError, cannot_write
from fcritic.offline.dataset import FIELDS, Dataset, blocks
from fcritic.offline.source import Arrays, Scale, Source, require_finite, told
from fcritic.offline.storage import map_file, write_array

FACTS = "dataset.json"
FORMAT = 1

MOST_DIMENSIONS = 2**20
"""Numbers of an observation or an action."""


def write(folder: str | os.PathLike, dataset: Dataset, facts: dict[str, Any] | None = None) -> Path:
    """Writes a dataset to a new folder, which is there whole or not at all; `facts` say how it was made."""
    place = Place.of(os.path.abspath(folder))
    if place.status() is not None:
        raise UsageError(f"{folder} exists already; choose another --out")
    part = place.parent / f"{place.name}.tmp-{os.getpid()}"
    text = json.dumps(_facts(dataset) | (facts or {}), indent=2) + "\n"
    try:
        place.parent.make()
        part.remove()  # of a dead process that had our number
        part.make_new()
        for name in FIELDS:
            write_array(part / f"{name}.npy", getattr(dataset, name))
        (part / FACTS).write_new(text.encode())
        part.sync()
        part.rename(place.name)
    except OSError as error:
        raise cannot_write("the dataset", folder, error) from error
    finally:
        with contextlib.suppress(OSError):
            part.remove()
    return Path(folder)


def _facts(dataset: Dataset) -> dict[str, Any]:
    actions, obs_shape = dataset.units.actions, dataset.units.obs_shape
    return {
        "format": FORMAT,
        "task": dataset.task,
        "action_repeat": dataset.action_repeat,
        "transitions": len(dataset),
        "obs_dim": dataset.obs_dim,
        "act_dim": dataset.act_dim,
        "obs_shape": None if obs_shape is None else list(obs_shape),
        "action_shape": list(actions.low.shape),
        "action_low": actions.low.ravel().tolist(),
        "action_high": actions.high.ravel().tolist(),
        "sources": list(dataset.sources),
    }


def of_folder(path: str) -> Source:
    """Returns the source in a folder that `write` has made."""
    facts = _read_facts(path)
    shape = tuple(facts["action_shape"])
    low, high = (np.array(facts[name], np.float32).reshape(shape) for name in ("action_low", "action_high"))
    obs_shape = None if facts["obs_shape"] is None else tuple(facts["obs_shape"])
    arrays = lambda: _arrays(path, facts)
    sizes = (facts["transitions"], obs_shape, facts["obs_dim"], shape)
    return Source(path, *sizes, _copier(arrays), (low, high), facts["task"], facts["action_repeat"], arrays)


def _copier(arrays: Callable[[], Arrays]) -> Callable[[Arrays, Scale], int]:
    def fill(into: Arrays, _: Scale) -> int:
        found = arrays()
        for name, array in found.items():
            into[name][:] = array
        return len(found["obs"])

    return fill


def _read_facts(path: str) -> dict[str, Any]:
    what = f"{path}: {FACTS}"
    with told(what):
        facts = (Place(Path(path)) / FACTS).read_json()
    whole = lambda value, least, most: type(value) is int and least <= value <= most
    sizes = lambda value: isinstance(value, list) and all(whole(size, 0, MOST_DIMENSIONS) for size in value)
    numbers = lambda value: isinstance(value, list) and all(type(number) in (int, float) for number in value)
    checks = {
        "format": lambda value: value == FORMAT,
        "transitions": lambda value: whole(value, 1, 2**48),
        "obs_dim": lambda value: whole(value, 1, MOST_DIMENSIONS),
        "act_dim": lambda value: whole(value, 1, MOST_DIMENSIONS),
        "obs_shape": lambda value: value is None or sizes(value),
        "action_shape": sizes,
        "action_low": numbers,
        "action_high": numbers,
        "task": lambda value: value is None or isinstance(value, str),
        "action_repeat": lambda value: value is None or whole(value, 1, 2**31),
    }
    for name, sound in checks.items():
        if not isinstance(facts, dict) or name not in facts or not sound(facts[name]):
            raise UsageError(f"{what} has no sound {name}; write it anew with fcritic log")
    count = int(np.prod(facts["action_shape"], dtype=float))
    bounds = np.array([*facts["action_low"], *facts["action_high"]], float)
    sound = (
        len(facts["action_low"]) == len(facts["action_high"]) == count == facts["act_dim"]
        and np.isfinite(bounds).all()
        and (bounds[:count] <= bounds[count:]).all()
        and (facts["obs_shape"] is None or np.prod(facts["obs_shape"], dtype=float) == facts["obs_dim"])
    )
    if not sound:
        raise UsageError(f"{what}: the shapes and bounds of observations and actions do not fit together")
    return facts


def _arrays(path: str, facts: dict[str, Any]) -> Arrays:
    """The arrays, mapped into memory, once they prove to be sound."""
    count, found = facts["transitions"], {}
    wide = {"obs": facts["obs_dim"], "next_obs": facts["obs_dim"], "act": facts["act_dim"]}
    for name, dtype in FIELDS.items():
        shape = (count, wide[name]) if name in wide else (count,)
        with told(f"{path}: {name}.npy"):
            found[name] = map_file(Place(Path(path)) / f"{name}.npy", dtype, shape)
    _require_sound(path, found)
    return found


def _require_sound(path: str, arrays: Arrays) -> None:
    for name, dtype in FIELDS.items():
        what = f"{path}: {name}.npy"
        for part in blocks(arrays[name]):
            if dtype.kind == "b":
                if (part.view(np.uint8) > 1).any():
                    raise UsageError(f"{what} holds numbers that are neither 0 nor 1")
                continue
            require_finite(part, what)
            if (name == "act" and (abs(part) > 1).any()) or (
                name == "discount" and not ((part >= 0) & (part <= 1)).all()
            ):
                raise UsageError(f"{what} holds numbers outside of {'[-1, 1]' if name == 'act' else '[0, 1]'}")


def plain_units(obs_shape: tuple[int, ...] | None, low: np.ndarray, high: np.ndarray) -> Units:
    """Returns the units of data that tell no more than shapes and bounds."""
    return Units(ActionRange(low, high), obs_shape, lambda seen: np.array(seen, np.float32).reshape(-1))
