"""A policy as an evaluator sees it: what it does, from observations to actions, whatever made it."""

from collections.abc import Callable
import dataclasses
from typing import Literal

import numpy as np

from fcritic.errors import UsageError, one_line

Kind = Literal["run", "onnx", "function"]

Act = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""From flat, raw observations (batch, obs_dim) to actions (batch, act_dim)."""

PROBES = 16
"""Observations of the data on which a candidate is tried before anything is computed."""

SAME = 1e-6
"""Two actions for one observation that differ by less are the same one, summed in another order."""


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A policy that can be asked what it does, and nothing else."""

    name: str
    kind: Kind
    respond: Act
    stochastic: bool = False
    """Whether its actions are drawn."""
    task: str | None = None
    """What it was trained on, where that is known."""

    def act(self, obs: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Returns its actions (batch, act_dim) in [-1, 1] at raw observations (batch, obs_dim), float32.

        Those of a stochastic one are drawn; `rng` decides them where the policy lets it.
        """
        rng = rng or np.random.default_rng(0)
        try:
            found = np.asarray(self.respond(obs, rng))
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(f"{self.name} failed: {type(error).__name__}: {one_line(str(error), 300)}") from error
        if found.ndim != 2 or len(found) != len(obs):
            raise UsageError(f"{self.name} returned actions of shape {found.shape} for {len(obs)} observations")
        _require_finite(self.name, found)
        return np.clip(found, -1.0, 1.0).astype(np.float32, copy=False)


def verified(candidate: Candidate, obs: np.ndarray, act_dim: int) -> Candidate:
    """Returns a candidate once it has answered to some observations; one that draws its actions is then known."""
    rng = np.random.default_rng(0)
    one, two = candidate.act(obs, rng), candidate.act(obs, rng)
    if one.shape[1] != act_dim:
        raise UsageError(f"{candidate.name} has actions of size {one.shape[1]}, those of the data have {act_dim}")
    differ = bool((abs(one - two) > SAME).any())
    return dataclasses.replace(candidate, stochastic=candidate.stochastic or differ)


def require_actions(name: str, found: np.ndarray, count: int, shape: tuple[int, ...]) -> None:
    """Refuses what is not one of the task's continuous actions for each observation."""
    if found.dtype.kind in "iub":
        raise UsageError(f"{name} returned discrete actions ({found.dtype}); only continuous ones can be judged")
    if found.dtype.kind != "f":
        raise UsageError(f"{name} returned {found.dtype}, not numbers")
    if found.shape != (count, *shape) and not (found.shape == (count,) and int(np.prod(shape)) == 1):
        needed = (count, *shape)
        raise UsageError(f"{name} returned actions of shape {found.shape} for {count} observations, not {needed}")
    _require_finite(name, found)


def _require_finite(name: str, found: np.ndarray) -> None:
    if not np.isfinite(found).all():
        raise UsageError(f"{name} returned an action that holds {'NaN' if np.isnan(found).any() else 'inf'}")
