"""Between the units of a task and those of the networks: flat observations, actions in [-1, 1]."""

from collections.abc import Callable
import dataclasses
from typing import Any

import numpy as np

from fcritic.types import EnvSpec


class ActionRange:
    """The bounds of a task's actions. The networks' actions in [-1, 1] fill them."""

    def __init__(self, low: np.ndarray, high: np.ndarray):
        self.low, self.high = low, high
        wide = [np.asarray(bound, np.float64).ravel() for bound in (low, high)]
        self.half_range, self.centre = (wide[1] - wide[0]) / 2, (wide[1] + wide[0]) / 2

    def scale(self, action: np.ndarray) -> np.ndarray:
        """Actions in [-1, 1], with any leading axes, as the task wants them; those outside are cut."""
        scaled = np.minimum(np.maximum(action, -1.0), 1.0) * self.half_range + self.centre
        scaled = scaled.astype(self.low.dtype).reshape(*scaled.shape[:-1], *self.low.shape)
        # Rounding may step over a bound by one unit, and some environments assert that it does not.
        return np.minimum(np.maximum(scaled, self.low), self.high)

    def unscale(self, action: np.ndarray) -> np.ndarray:
        """The way back: a task's actions as flat float32 in [-1, 1]; where there is only one, it is 0."""
        axes = np.ndim(action) - self.low.ndim
        flat = np.asarray(action, np.float64).reshape(*np.shape(action)[:axes], -1)
        span = np.where(self.half_range > 0, self.half_range, 1.0)
        return np.clip((flat - self.centre) / span, -1.0, 1.0).astype(np.float32)


@dataclasses.dataclass(frozen=True, eq=False)
class Units:
    """What a task itself shows and takes, beside what the networks see and do."""

    actions: ActionRange
    obs_shape: tuple[int, ...] | None
    """Of an observation that is one array; None where it has several parts."""
    flatten: Callable[[Any], np.ndarray]
    """One observation of the task as a new flat float32 array."""

    @staticmethod
    def plain(spec: EnvSpec) -> "Units":
        """Of a task whose own units are the networks'."""
        ones = np.ones(spec.act_dim, np.float32)
        return Units(ActionRange(-ones, ones), (spec.obs_dim,), lambda seen: np.array(seen, np.float32))
