"""What the training loop asks of one environment. Everything here is NumPy on the host."""

import abc
import functools
from typing import NamedTuple

import numpy as np

from fcritic.envs.units import Units
from fcritic.types import EnvSpec

EPISODE_LIMIT = 100_000
"""Actions after which an evaluation gives up: a task without an end cannot be evaluated by episodes."""

EnvState = dict[str, np.ndarray]
"""Named arrays that put an environment back exactly where it was, in the middle of an episode."""


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

    @functools.cached_property
    def units(self) -> Units:
        """The way between the task's own observations and actions and the networks'; the same by default."""
        return Units.plain(self.spec)

    @abc.abstractmethod
    def reset(self) -> np.ndarray:
        """Begins an episode and returns its first observation."""

    @abc.abstractmethod
    def reseed(self, seed: int) -> None:
        """From the next `reset` on, be like an environment that was built with this seed."""

    @abc.abstractmethod
    def step(self, action: np.ndarray) -> Step:
        """Takes one action, repeated `action_repeat` frames; rewards are summed over them."""

    @abc.abstractmethod
    def state(self) -> EnvState | None:
        """Everything `restore` needs, or None where this environment cannot tell its state."""

    @abc.abstractmethod
    def restore(self, state: EnvState) -> None:
        """Continues exactly from a saved state, also in an environment built with another seed."""

    def close(self) -> None:  # noqa: B027 (most have nothing to free)
        """Frees what the environment holds outside Python's memory."""
