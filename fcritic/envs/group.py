"""A group of environments behind one interface, wherever they run: here, in worker processes, in Gymnasium.

Environments are counted through, seed by seed. What they answer is written on a board with a row for each; what
goes wrong is returned, never raised, so that one faulty environment does not hide the answers of the others.
"""

import abc
from collections.abc import Iterable, Mapping
import math
from typing import NamedTuple

import numpy as np

from fcritic.envs.base import EnvState
from fcritic.types import EnvSpec


class Trouble(NamedTuple):
    """An environment that could not do what it was asked to."""

    row: int
    during: str
    """``step`` where its action has to be repeated; else ``reset``, ``build`` or ``state``."""
    what: str
    """For messages: ``step raised ValueError: ...``, ``observation[3] is nan``."""
    lost: bool = False
    """Whether it did nothing wrong and only shared a process with one that did."""
    trace: str = ""
    """Where an exception came from."""


class Board:
    """The latest answers of a group, and the actions they answer. Rows of troubled environments mean nothing.

    ``first_obs`` is valid where an episode has just begun: after `reset`, and after a step with ``last``.
    ``success`` is valid after a step with ``last``, and NaN where the task does not report it.
    """

    reward: np.ndarray
    discount: np.ndarray
    next_obs: np.ndarray
    first_obs: np.ndarray
    actions: np.ndarray
    last: np.ndarray
    success: np.ndarray

    def __init__(self, count: int, spec: EnvSpec, buffer: memoryview | None = None):
        buffer = memoryview(bytearray(self.size(count, spec))) if buffer is None else buffer
        offset = 0
        for name, kind, shape in _layout(count, spec):
            array = np.frombuffer(buffer, kind, math.prod(shape), offset).reshape(shape)
            setattr(self, name, array)
            offset += array.nbytes

    @staticmethod
    def size(count: int, spec: EnvSpec) -> int:
        """Bytes that the arrays of `count` environments take."""
        return sum(np.dtype(kind).itemsize * math.prod(shape) for _, kind, shape in _layout(count, spec))

    def rows(self, start: int, stop: int) -> "Board":
        """The part of the board that belongs to some of the environments."""
        part = Board.__new__(Board)
        for name in Board.__annotations__:
            setattr(part, name, getattr(self, name)[start:stop])
        return part


def _layout(count: int, spec: EnvSpec) -> list[tuple[str, type, tuple[int, ...]]]:
    # Wide numbers first, so that every array is aligned.
    return [
        ("reward", np.float64, (count,)),
        ("discount", np.float32, (count,)),
        ("next_obs", np.float32, (count, spec.obs_dim)),
        ("first_obs", np.float32, (count, spec.obs_dim)),
        ("actions", np.float32, (count, spec.act_dim)),
        ("success", np.float32, (count,)),
        ("last", np.bool_, (count,)),
    ]


class AbstractGroup(abc.ABC):
    """Environments in a row that are asked together."""

    spec: EnvSpec
    board: Board
    names: list[str]
    """The task of each environment, for messages."""

    @abc.abstractmethod
    def step(self, actions: np.ndarray, rows: Iterable[int] | None = None) -> list[Trouble]:
        """Takes `actions` (all environments, act_dim), in all or only in `rows`; then begins what has ended."""

    @abc.abstractmethod
    def reset(self, rows: Iterable[int]) -> list[Trouble]:
        """Begins an episode in each of the rows."""

    @abc.abstractmethod
    def reseed(self, seeds: Mapping[int, int]) -> None:
        """Gives new seeds, by row; they hold from the next `reset` on."""

    @abc.abstractmethod
    def rebuild(self, seeds: Mapping[int, int]) -> list[Trouble]:
        """Replaces environments by newly built ones, by row. They wait for their `reset`."""

    @abc.abstractmethod
    def states(self) -> tuple[list[EnvState | None], list[Trouble]]:
        """The state of every environment; None for those that cannot be saved."""

    @abc.abstractmethod
    def restore(self, states: Mapping[int, EnvState]) -> list[Trouble]:
        """Puts environments back to saved states, by row."""

    @abc.abstractmethod
    def close(self) -> None:
        """Frees everything."""
