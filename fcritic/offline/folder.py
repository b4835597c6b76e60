"""A dataset as a folder of this package's own: an array in NumPy's format for each field, and `dataset.json`."""

from collections.abc import Callable
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.disk import Place
from fcritic.errors import UsageError, writing
from fcritic.offline.dataset import FIELDS, Dataset, blocks
from fcritic.offline.interface import Interface
from fcritic.offline.source import Arrays, Scale, Source, require_finite, told
from fcritic.offline.storage import map_file, write_array

FACTS = "dataset.json"
FORMAT = 1


def write(folder: str | os.PathLike, dataset: Dataset, facts: dict[str, Any] | None = None) -> Path:
    """Writes a dataset to a new folder, which is there whole or not at all; `facts` say how it was made."""
    place = Place.of(os.path.abspath(folder))
    if place.status() is not None:
        raise UsageError(f"{folder} exists already; choose another --out")
    content = {"format": FORMAT} | dataset.interface().facts() | (facts or {})
    content |= {"transitions": len(dataset), "sources": list(dataset.sources)}
    text = json.dumps(content, indent=2) + "\n"
    with writing("the dataset", folder), place.new_beside() as part:
        for name in FIELDS:
            write_array(part / f"{name}.npy", getattr(dataset, name))
        (part / FACTS).write_new(text.encode())
        part.sync()
        part.rename(place.name)
    return Path(folder)


def of_folder(path: str) -> Source:
    """Returns the source in a folder that `write` has made."""
    what = f"{path}: {FACTS}"
    with told(what):
        facts = (Place(Path(path)) / FACTS).read_json()
    seen = Interface.of(facts, None, what)
    count = facts.get("transitions")
    if facts.get("format") != FORMAT or type(count) is not int or not 1 <= count < 2**48:
        raise UsageError(f"{what} does not say its format and transitions; write it anew with fcritic log")
    arrays = lambda: _arrays(path, count, seen)
    actions = seen.units.actions
    sizes = (count, seen.units.obs_shape, seen.obs_dim, actions.low.shape)
    return Source(path, *sizes, _copier(arrays), (actions.low, actions.high), seen.task, seen.action_repeat, arrays)


def _copier(arrays: Callable[[], Arrays]) -> Callable[[Arrays, Scale], int]:
    def fill(into: Arrays, _: Scale) -> int:
        found = arrays()
        for name, array in found.items():
            into[name][:] = array
        return len(found["obs"])

    return fill


def _arrays(path: str, count: int, seen: Interface) -> Arrays:
    """The arrays, mapped into memory, once they prove to be sound."""
    found, wide = {}, {"obs": seen.obs_dim, "next_obs": seen.obs_dim, "act": seen.act_dim}
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
