"""The interface of one environment to the training loop, and its units, in NumPy on the host."""

import abc
from collections.abc import Callable
import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fcritic.types import EnvSpec

if TYPE_CHECKING:
    import mujoco


EPISODE_LIMIT = 100_000
"""Actions after which an evaluation gives up: a task without an end has no episodes to evaluate."""

EnvState = dict[str, np.ndarray]
"""Named arrays that put an environment back exactly where it was, in the middle of an episode."""


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
    """The task's own observations and actions, beside those of the networks."""

    actions: ActionRange
    obs_shape: tuple[int, ...] | None
    """Of an observation that is one array; None where it has several parts."""
    flatten: Callable[[Any], np.ndarray]
    """One observation of the task as a new flat float32 array."""
    unflatten: Callable[[Any], Any] | None = None
    """The way back, of an array of NumPy or JAX, where an observation has several parts."""

    def obs_names(self, obs_dim: int) -> list[str]:
        """Of each number of a flat observation: `position[0]` of a part; `observation[0]` where it has none."""
        places = np.arange(obs_dim)
        if self.unflatten is not None:
            return names_of("", self.unflatten(places))
        return names_of("observation", places.reshape(self.obs_shape or -1))

    @property
    def action_names(self) -> list[str]:
        """Of each number of a flat action."""
        return names_of("action", self.actions.low)

    @staticmethod
    def plain(spec: EnvSpec) -> "Units":
        """Of a task whose own units are the networks'."""
        ones = np.ones(spec.act_dim, np.float32)
        return Units(ActionRange(-ones, ones), (spec.obs_dim,), lambda seen: np.array(seen, np.float32))


def names_of(name: str, part: Any) -> list[str]:
    """Of each number in an array, or in a Dict or Tuple of them, in order."""
    if isinstance(part, dict):
        return [
            each for key, inner in part.items() for each in names_of(f"{name}.{key}" if name else str(key), inner)
        ]
    if isinstance(part, tuple):
        name = name or "observation"
        return [each for place, inner in enumerate(part) for each in names_of(f"{name}[{place}]", inner)]
    places = np.ndindex(np.shape(part))
    return [f"{name}[{', '.join(map(str, place))}]" if place else name for place in places]


class Step(NamedTuple):
    """The outcome of one action.

    ``obs`` is the true next observation, also when the episode ends here. ``discount`` is 0 only where
    the task terminated; a time limit ends the episode (``last``) but keeps the discount at 1.
    """

    obs: np.ndarray
    reward: float
    discount: float
    last: bool


class AbstractEnv(abc.ABC):
    """One copy of a task: float32 observations of shape (obs_dim,), actions in [-1, 1]."""

    spec: EnvSpec
    name: str = ""  # of the task, for messages
    success: float = math.nan
    """Whether the episode that has just ended succeeded, 1 or 0; NaN where the task does not report it."""

    @functools.cached_property
    def units(self) -> Units:
        """The way between the task's own observations and actions and the networks'; the same by default."""
        return Units.plain(self.spec)

    @abc.abstractmethod
    def reset(self) -> np.ndarray:
        """Begins an episode and returns its first observation."""

    @abc.abstractmethod
    def reseed(self, seed: int) -> None:
        """Makes the next `reset` behave as in an environment built with this seed."""

    @abc.abstractmethod
    def step(self, action: np.ndarray) -> Step:
        """Takes one action, repeated `action_repeat` frames; rewards are summed over them."""

    @abc.abstractmethod
    def state(self) -> EnvState | None:
        """Returns everything `restore` needs, or None where the state cannot be saved."""

    @abc.abstractmethod
    def restore(self, state: EnvState) -> None:
        """Continues exactly from a saved state, also in an environment built with another seed."""

    def simulation(self) -> "tuple[mujoco.MjModel, mujoco.MjData] | None":
        """Returns MuJoCo's current model and data, read-only, or None where the task does not use MuJoCo."""
        return None

    def close(self) -> None:  # noqa: B027 (most have nothing to free)
        """Frees what the environment holds outside Python's memory."""
