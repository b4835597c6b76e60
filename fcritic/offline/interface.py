"""What policies of a task see and do: all that is needed of data to ask a policy for its actions."""

import dataclasses
import math
from typing import Any

import numpy as np

from fcritic.envs.base import ActionRange, Units
from fcritic.errors import UsageError

MOST_DIMENSIONS = 2**20
"""Numbers of an observation or an action."""


@dataclasses.dataclass(frozen=True, eq=False)
class Interface:
    """Sizes, units and some observations of a task, with its name where that is known."""

    obs_dim: int
    units: Units
    """Between the user's own observations and actions and those of a dataset."""
    samples: np.ndarray
    """(any number, obs_dim), observations on which a policy can be tried."""
    task: str | None = None
    action_repeat: int | None = None

    @property
    def act_dim(self) -> int:
        """Numbers in an action."""
        return self.units.actions.low.size

    def facts(self) -> dict[str, Any]:
        """Returns all but the samples, as JSON can hold it."""
        actions, obs_shape = self.units.actions, self.units.obs_shape
        return {
            "task": self.task,
            "action_repeat": self.action_repeat,
            "obs_dim": self.obs_dim,
            "obs_shape": None if obs_shape is None else list(obs_shape),
            "action_shape": list(actions.low.shape),
            "action_low": actions.low.ravel().tolist(),
            "action_high": actions.high.ravel().tolist(),
        }

    @staticmethod
    def of(facts: Any, samples: np.ndarray | None, what: str) -> "Interface":
        """Returns the interface that a file tells of; `what` names it where it is not sound."""
        _require_sound(facts, what)
        shape = tuple(facts["action_shape"])
        low, high = (np.array(facts[name], np.float32).reshape(shape) for name in ("action_low", "action_high"))
        obs_shape = None if facts["obs_shape"] is None else tuple(facts["obs_shape"])
        samples = np.zeros((0, facts["obs_dim"]), np.float32) if samples is None else samples
        if samples.ndim != 2 or samples.shape[1] != facts["obs_dim"] or not np.isfinite(samples).all():
            raise UsageError(f"{what}: its observations of shape {samples.shape} are not finite or do not fit")
        return Interface(
            facts["obs_dim"], units_of(obs_shape, low, high), samples, facts["task"], facts["action_repeat"]
        )


def units_of(obs_shape: tuple[int, ...] | None, low: np.ndarray, high: np.ndarray) -> Units:
    """Returns the units of data that tell no more than shapes and bounds."""
    return Units(ActionRange(low, high), obs_shape, lambda seen: np.array(seen, np.float32).reshape(-1))


def _require_sound(facts: Any, what: str) -> None:
    whole = lambda value, most: type(value) is int and 1 <= value <= most
    sizes = lambda value: isinstance(value, list) and all(whole(size, MOST_DIMENSIONS) for size in value)
    numbers = lambda value: isinstance(value, list) and all(type(number) in (int, float) for number in value)
    checks = {
        "task": lambda value: value is None or isinstance(value, str),
        "action_repeat": lambda value: value is None or whole(value, 2**31),
        "obs_dim": lambda value: whole(value, MOST_DIMENSIONS),
        "obs_shape": lambda value: value is None or sizes(value),
        "action_shape": sizes,
        "action_low": numbers,
        "action_high": numbers,
    }
    for name, sound in checks.items():
        if not isinstance(facts, dict) or name not in facts or not sound(facts[name]):
            raise UsageError(f"{what} does not say its {name}; write it anew")
    low, high = facts["action_low"], facts["action_high"]
    rising = all(-1e30 < one <= two < 1e30 for one, two in zip(low, high, strict=False))
    fits = len(low) == len(high) == math.prod(facts["action_shape"]) > 0 and rising
    if not fits or (facts["obs_shape"] is not None and math.prod(facts["obs_shape"]) != facts["obs_dim"]):
        raise UsageError(f"{what}: the shapes and bounds of its observations and actions do not fit together")
