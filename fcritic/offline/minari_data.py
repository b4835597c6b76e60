"""Datasets of Minari: a local folder, or the id of one that Minari has on this machine."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from fcritic.disk import Place
from fcritic.envs.gym import Spaces
from fcritic.errors import UsageError
from fcritic.offline.d4rl import NO_EXTRA
from fcritic.offline.source import Arrays, Scale, Source, require_finite, told

METADATA = "metadata.json"


def folder_of(path: str) -> Place | None:
    """Returns where the data of a Minari dataset lie, if the path is one's folder."""
    for place in (Place(Path(path)), Place(Path(path)) / "data"):
        if (place / METADATA).is_file():
            return place
    return None


def of_minari(name: str) -> Source:
    """Returns the source in a dataset, by its folder or its id; nothing is fetched."""
    minari = _library(name)
    place = folder_of(name)
    if place is None:
        place = folder_of(os.fspath(minari.namespace.get_dataset_path(name)))
        if place is None:
            raise UsageError(
                f"there is no file or folder {name}, and Minari has no dataset of that id; see minari list"
            )
    _require_spaces(name, place)
    with told(name):
        dataset = minari.MinariDataset(place.path)
        count = int(dataset.total_steps)
    spaces = Spaces(name, dataset.observation_space, dataset.action_space)
    if count < 1:
        raise UsageError(f"{name} has no transitions")
    units = spaces.units
    task = dataset.env_spec.id if dataset.env_spec else None
    fill = lambda into, scale: _fill(name, dataset, count, into, scale)
    bounds = (units.actions.low, units.actions.high)
    return Source(name, count, units.obs_shape, spaces.spec.obs_dim, units.actions.low.shape, fill, bounds, task)


def _library(name: str) -> Any:
    try:
        import h5py  # noqa: F401 (Minari's own messages do not say what to install)
        import minari
        import minari.namespace
    except ImportError:
        raise UsageError(f"{name} is not a file or a run; as a dataset of Minari, {NO_EXTRA}") from None
    return minari


def _require_spaces(name: str, place: Place) -> None:
    """Refuses metadata without spaces: to find these out Minari would build the environment that the file names."""
    with told(f"{name}: {METADATA}"):
        facts = (place / METADATA).read_json()
        if not isinstance(facts, dict):
            raise ValueError("it is not a JSON object")
    for field in ("observation_space", "action_space"):
        if not isinstance(facts.get(field), str):
            raise UsageError(f"{name}: {METADATA} has no {field}; write the dataset anew with a recent Minari")
    if facts.get("data_format") == "hdf5":
        (place / "main_data.hdf5").require_plain()


def _fill(name: str, dataset: Any, count: int, into: Arrays, scale: Scale) -> int:
    place = 0
    with told(name):
        for number, episode in enumerate(dataset.iterate_episodes()):
            what = f"{name}: episode {number}"
            obs = _flat(episode.observations)
            length = len(episode.rewards)
            shapes = {
                "observations": (len(obs), length + 1),
                **{
                    field: (len(getattr(episode, field)), length)
                    for field in ("actions", "terminations", "truncations")
                },
            }
            for field, (has, needs) in shapes.items():
                if has != needs:
                    raise UsageError(f"{what} has {has} {field} and {length} rewards; {needs} are needed")
            if length == 0:
                continue
            if place + length > count:
                raise UsageError(f"{name} holds more transitions than the {count:,} of its {METADATA}")
            require_finite(obs, f"{what}: observations")
            require_finite(np.asarray(episode.rewards), f"{what}: rewards")
            part = slice(place, place + length)
            terminated = np.asarray(episode.terminations, bool)
            ended = terminated | np.asarray(episode.truncations, bool)
            first, last = np.roll(ended, 1), ended.copy()
            first[0] = last[-1] = True
            rows = {
                "obs": obs[:-1],
                "act": scale(np.asarray(episode.actions), f"{what}: actions"),
                "reward": episode.rewards,
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
