"""Logged transitions in order, episode after episode: what an evaluator of policies learns from."""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from fcritic.envs.base import Units
from fcritic.errors import UsageError
from fcritic.offline.interface import Interface
from fcritic.types import Transition

FIELDS = {
    "obs": np.dtype(np.float32),
    "act": np.dtype(np.float32),
    "reward": np.dtype(np.float32),
    "discount": np.dtype(np.float32),
    "next_obs": np.dtype(np.float32),
    "first": np.dtype(bool),
    "last": np.dtype(bool),
    "ended": np.dtype(bool),
}
"""The arrays of a dataset, one row for each transition, and their types."""

BLOCK = 2**16
"""Rows that are looked at in one piece."""


class Returns(NamedTuple):
    """The discounted returns of the complete episodes."""

    episodes: np.ndarray
    """Their numbers, as places in `Dataset.episodes`."""
    values: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Transitions (s, a, r, s'), those of an episode side by side and in order.

    The arrays may lie in files that are mapped into memory. An episode is complete if its first transition is
    `first` and its last one is `ended`; what a ring has overwritten or a recording has cut off is not.
    """

    obs: np.ndarray
    """(n, obs_dim), as the policies see them: flat and not normalised."""
    act: np.ndarray
    """(n, act_dim), in [-1, 1]."""
    reward: np.ndarray
    """(n,), in the user's own units."""
    discount: np.ndarray
    """(n,), 0 at a termination and 1 elsewhere, also at a time limit."""
    next_obs: np.ndarray
    """(n, obs_dim), the true next observation; of no meaning where the discount is 0."""
    first: np.ndarray
    """(n,), whether an episode begins here; nowhere in an episode whose beginning is lost."""
    last: np.ndarray
    """(n,), whether this is the last one recorded of its episode; the next row is of another."""
    ended: np.ndarray
    """(n,), whether the episode really ended here, by termination or time limit."""
    sources: tuple[str, ...]
    """What it was read from, as its user named it."""
    units: Units
    """Between the user's own observations and actions and these."""
    task: str | None = None
    """The environment, where that is known."""
    action_repeat: int | None = None
    """Frames for which each action was held, where that is known."""

    def __post_init__(self) -> None:
        if not len(self.obs):
            raise UsageError(f"{', '.join(self.sources) or 'the dataset'} has no transitions; name other --data")

    def __len__(self) -> int:
        return len(self.obs)

    @property
    def obs_dim(self) -> int:
        """Numbers in an observation."""
        return self.obs.shape[1]

    @property
    def act_dim(self) -> int:
        """Numbers in an action."""
        return self.act.shape[1]

    @functools.cached_property
    def episodes(self) -> list[tuple[int, int]]:
        """The rows of each episode, complete or not, as (start, stop)."""
        stops = np.flatnonzero(self.last) + 1
        if not len(stops) or stops[-1] != len(self):
            stops = np.append(stops, len(self))
        return list(zip([0, *stops[:-1].tolist()], stops.tolist(), strict=True))

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """The observations with which episodes begin; where no beginning is recorded, those of the pieces."""
        found = np.flatnonzero(self.first)
        return np.array(self.obs[found if len(found) else [start for start, _ in self.episodes]])

    def returns(self, gamma: float) -> Returns:
        """Returns the discounted return of each complete episode, with its number.

        What would have followed a time limit is not in it, which `discount` at the last transition tells.
        """
        whole = [
            (number, start, stop)
            for number, (start, stop) in enumerate(self.episodes)
            if self.first[start] and self.ended[stop - 1]
        ]
        powers = gamma ** np.arange(max((stop - start for _, start, stop in whole), default=0))
        values = [float(powers[: stop - start] @ self.reward[start:stop]) for _, start, stop in whole]
        return Returns(np.array([number for number, *_ in whole], int), np.array(values))

    def thin(self, most: int, rng: np.random.Generator) -> Transition:
        """Returns at most so many transitions in memory, every row with the same chance, each at most once."""
        if most >= len(self):
            rows: Any = slice(None)
        else:
            rows = np.sort(rng.choice(len(self), most, replace=False, shuffle=False))
        return Transition(*(np.array(getattr(self, name)[rows]) for name in Transition._fields))

    def interface(self, count: int = 64) -> Interface:
        """Returns what policies see and do here, with so many observations drawn from all rows."""
        rng = np.random.default_rng(0)
        samples = np.array(self.obs[np.sort(rng.choice(len(self), min(count, len(self)), replace=False))])
        return Interface(self.obs_dim, self.units, samples, self.task, self.action_repeat)

    def describe(self) -> dict[str, Any]:
        """Returns what a reader of results wants to know of it, as JSON can hold it."""
        lengths = np.array([stop - start for start, stop in self.episodes])
        total = self.returns(1.0)
        return {
            "sources": list(self.sources),
            "task": self.task,
            "action_repeat": self.action_repeat,
            "transitions": len(self),
            "episodes": len(lengths),
            "complete_episodes": len(total.values),
            "mean_length": float(lengths.mean()),
            "terminations": int(sum(np.count_nonzero(part == 0) for part in blocks(self.discount))),
            "obs_dim": self.obs_dim,
            "act_dim": self.act_dim,
            "action_low": self.units.actions.low.ravel().tolist(),
            "action_high": self.units.actions.high.ravel().tolist(),
            "mean_return": float(total.values.mean()) if len(total.values) else None,
        }


def blocks(array: np.ndarray) -> Sequence[np.ndarray]:
    """Returns the rows of an array in pieces."""
    return [array[start : start + BLOCK] for start in range(0, len(array), BLOCK)]
