"""Datasets of Minari: a local folder, or the id of one that Minari has on this machine.

Its layout is read here and not by Minari, which opens what the metadata and links in the file name.
"""

from collections.abc import Iterator
import json
import math
import os
from pathlib import Path
import re
from typing import Any

import numpy as np

from fcritic.disk import Place, require_memory
from fcritic.envs.gym import Spaces
from fcritic.errors import UsageError
from fcritic.offline.apart import Apart
from fcritic.offline.d4rl import column_of, open_hdf5
from fcritic.offline.source import Arrays, Scale, Source, require_finite, told
from fcritic.offline.storage import require_dense

METADATA, DATA = "metadata.json", "main_data.hdf5"

FLAGS = ("terminations", "truncations")

MOST_STEPS = 2**40


def folder_of(path: str | os.PathLike) -> Place | None:
    """Returns where the data of a Minari dataset lie, if the path is one's folder."""
    for place in (Place(Path(path)), Place(Path(path)) / "data"):
        if (place / METADATA).is_file():
            return place
    return None


def of_minari(name: str) -> Source:
    """Returns the source in a dataset, by its folder or its id; nothing is fetched."""
    place = folder_of(name)
    if place is None:
        place = folder_of(_path_of_id(name))
        if place is None:
            raise UsageError(
                f"there is no file or folder {name}, and Minari has no dataset of that id; see minari list"
            )
    with told(f"{name}: {METADATA}"):
        facts = (place / METADATA).read_json()
        if not isinstance(facts, dict):
            raise ValueError("it is not a JSON object")
        count, number, task = _counts(facts, name)
        spaces = Spaces(name, *(_space(facts, field, name) for field in ("observation_space", "action_space")))
    file, size = open_hdf5(place / DATA, name)
    units, width = spaces.units, spaces.spec.obs_dim
    with told(name):
        require_dense(4 * count * (width + spaces.spec.act_dim + 1), size)
    fill = lambda into, scale: _fill(_episodes(file, number, spaces, name), count, into, scale)
    bounds = (units.actions.low, units.actions.high)
    return Source(name, count, units.obs_shape, width, units.actions.low.shape, fill, bounds, task)


def _path_of_id(name: str) -> Path:
    """Where Minari keeps a dataset; asked itself, it would make the folder."""
    kept = os.environ.get("MINARI_DATASETS_PATH") or os.path.expanduser("~/.minari/datasets")
    return Path(kept) / name


def _counts(facts: dict[str, Any], name: str) -> tuple[int, int, str | None]:
    """Transitions, episodes and the id of the environment."""
    if facts.get("data_format", "hdf5") != "hdf5":
        raise UsageError(f"{name} is kept as {facts['data_format']!r:.40}; write it anew with data_format='hdf5'")
    count, number = (facts.get(field) for field in ("total_steps", "total_episodes"))
    if type(count) is not int or type(number) is not int or not 0 <= number <= count < MOST_STEPS:
        raise ValueError(f"it tells {count!r:.40} steps in {number!r:.40} episodes")
    if count < 1:
        raise UsageError(f"{name} has no transitions")
    built = facts.get("env_spec")
    task = json.loads(built).get("id") if isinstance(built, str) else None
    if not isinstance(task, str | None):
        raise ValueError("its env_spec has no id")
    return count, number, task


def _space(facts: dict[str, Any], field: str, name: str) -> Any:
    """The space in the metadata, if it is one of numbers: of another one only its kind is of interest."""
    if not isinstance(facts.get(field), str):
        raise UsageError(f"{name}: {METADATA} has no {field}; write the dataset anew with a recent Minari")
    from gymnasium import spaces

    def build(told: Any) -> Any:
        kind = told["type"]
        if kind in ("Tuple", "Dict") and not told["subspaces"]:
            raise ValueError(f"{field} has no parts")
        if kind == "Tuple":
            return spaces.Tuple([build(each) for each in told["subspaces"]])
        if kind == "Dict":
            return spaces.Dict({key: build(each) for key, each in told["subspaces"].items()})
        if kind != "Box":
            what = f"the {field} {kind!r:.40}"
            raise UsageError(
                f"{name} has {what}; only a Box of numbers, or several in a Dict or Tuple, can be used"
            )
        if not re.fullmatch(r"(u?int|float)(8|16|32|64)|bool", told["dtype"]):
            raise ValueError(f"{field} has the type {told['dtype']!r:.40}")
        low, high = (np.array(told[bound], told["dtype"]) for bound in ("low", "high"))
        return spaces.Box(low, high, tuple(told["shape"]), told["dtype"])

    return build(json.loads(facts[field]))


Episode = dict[str, Any]


def _episodes(file: Apart, count: int, spaces: Spaces, name: str) -> Iterator[tuple[str, Episode]]:
    """Yields the arrays of one episode after the other; observations as their space nests them."""
    for number in range(count):
        group, what = f"episode_{number}", f"{name}: episode {number}"
        with told(what):
            rewards = _array(file, [group, "rewards"], None, ())
            length = len(rewards)
            found = {"rewards": rewards}
            found["actions"] = _array(file, [group, "actions"], length, spaces.units.actions.low.shape)
            found |= {field: _array(file, [group, field], length, ()) for field in FLAGS}
            found["observations"] = _nested(file, [group, "observations"], spaces.observation_space, length + 1)
        yield what, found


def _nested(file: Apart, path: list[str], space: Any, rows: int) -> Any:
    from gymnasium.spaces import Dict, Tuple

    if isinstance(space, Dict):
        return {key: _nested(file, [*path, key], part, rows) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        parts = enumerate(space.spaces)
        return [_nested(file, [*path, f"_index_{place}"], part, rows) for place, part in parts]
    return _array(file, path, rows, space.shape)


def _array(file: Apart, path: list[str], rows: int | None, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """A whole array with so many rows, of such entries."""
    column = column_of(file, path)
    what = "/".join(path[1:])
    if column is None or not column.shape:
        raise ValueError(f"it has no {what}")
    if column.dtype.kind not in "fiub":
        raise ValueError(f"its {what} are {column.dtype}, not numbers")
    if rows is not None and column.shape[0] != rows:
        raise ValueError(f"it has {column.shape[0]} {what}; {rows} are needed")
    entries = column.shape[1:] if shape is None else shape
    if math.prod(column.shape[1:]) != math.prod(entries):
        raise ValueError(f"its {what} have the shape {column.shape[1:]}, not {entries}")
    require_memory(math.prod(column.shape) * column.dtype.itemsize, "it")
    return np.concatenate([np.zeros((0, *column.shape[1:]), column.dtype), *column.rows()])


def _fill(episodes: Iterator[tuple[str, Episode]], count: int, into: Arrays, scale: Scale) -> int:
    place = 0
    for what, found in episodes:
        length = len(found["rewards"])
        if length == 0:
            continue
        if place + length > count:
            raise UsageError(f"{what}: there are more transitions than the {count:,} of {METADATA}")
        obs = _flat(found["observations"])
        require_finite(obs, f"{what}: observations")
        require_finite(found["rewards"], f"{what}: rewards")
        part = slice(place, place + length)
        terminated, truncated = (found[field].reshape(length).astype(bool) for field in FLAGS)
        ended = terminated | truncated
        first, last = np.roll(ended, 1), ended.copy()
        first[0] = last[-1] = True
        rows = {
            "obs": obs[:-1],
            "act": scale(found["actions"], f"{what}: actions"),
            "reward": found["rewards"].reshape(length),
            "discount": ~terminated,
            "next_obs": obs[1:],
            "first": first,
            "last": last,
            "ended": ended,
        }
        for field, values in rows.items():
            into[field][part] = values
        place += length
    return place


def _flat(observations: Any) -> np.ndarray:
    """Observations of an episode, flat: parts in Gymnasium's order, which sorts the keys of a dictionary."""
    if isinstance(observations, dict):
        return np.concatenate([_flat(observations[key]) for key in sorted(observations)], axis=1)
    if isinstance(observations, tuple | list):
        return np.concatenate([_flat(part) for part in observations], axis=1)
    return np.asarray(observations, np.float32).reshape(len(observations), -1)
