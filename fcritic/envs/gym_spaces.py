"""Gymnasium's spaces: which can be used, and the way between them and flat arrays."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fcritic.envs.answers import WrongAnswer, numbers
from fcritic.envs.units import ActionRange, Units
from fcritic.errors import UsageError
from fcritic.types import EnvSpec

if TYPE_CHECKING:
    import gymnasium

Flatten = Callable[[Any], np.ndarray]


class Spaces:
    """The spaces of one environment: actions in [-1, 1] are scaled to its bounds, observations are flattened."""

    def __init__(self, name: str, observation_space: "gymnasium.Space", action_space: "gymnasium.Space"):
        _check_action_space(name, action_space)
        _check_observation_space(name, observation_space)
        self.observation_space = observation_space
        self.flatten = _flattener(observation_space)
        """Makes a new float32 array of an observation; raises `WrongAnswer` for what is not in the space."""
        self.units = Units(ActionRange(action_space.low, action_space.high), observation_space.shape, self.flatten)
        self.scale = self.units.actions.scale
        """An action as the environment wants it."""
        self.spec = EnvSpec(_size(observation_space), self.units.actions.low.size)


def _check_action_space(name: str, space: "gymnasium.Space") -> None:
    from gymnasium.spaces import Box

    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise UsageError(
            f"{name} has the actions {space}; choose a task with continuous ones (a Box of floats), "
            "such as Pendulum-v1"
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise UsageError(
            f"{name} has actions without finite bounds; wrap it in gymnasium.wrappers.TransformAction with a "
            "bounded Box as its action space"
        )


def _check_observation_space(name: str, space: "gymnasium.Space") -> None:
    from gymnasium.spaces import Box, Dict, Tuple

    if isinstance(space, Dict | Tuple):
        for part in space.values() if isinstance(space, Dict) else space:
            _check_observation_space(name, part)
    elif not isinstance(space, Box):
        raise UsageError(
            f"{name} has the observation {space}, not a Box of numbers; wrap it in "
            "gymnasium.wrappers.FlattenObservation or another wrapper that gives a Box"
        )


def _size(space: "gymnasium.Space") -> int:
    from gymnasium.spaces.utils import flatdim

    return flatdim(space)


def _flattener(space: "gymnasium.Space", field: str = "observation") -> Flatten:
    """The function from a space's observations to a new float32 array, in the order of Gymnasium's own."""
    from gymnasium.spaces import Box, Dict

    if isinstance(space, Box):
        shape = space.shape
        return lambda seen: np.array(numbers(field, seen, shape), np.float32).reshape(-1)
    named = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
    inner = {key: _flattener(part, f"{field}[{key!r}]") for key, part in named}
    kind = dict if isinstance(space, Dict) else tuple | list

    def flatten(seen: Any) -> np.ndarray:
        if not isinstance(seen, kind) or len(seen) != len(inner):
            raise WrongAnswer(f"{field} is a {type(seen).__name__} that does not fit its space {space}")
        try:
            return np.concatenate([part(seen[key]) for key, part in inner.items()])
        except KeyError as error:
            raise WrongAnswer(f"{field} lacks {error}, which its space has") from error

    return flatten
