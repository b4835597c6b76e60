"""The vocabulary shared by every part: what a transition is and what an environment promises.

Axes are always in this order: ``seeds critics actors batch ...``; ``envs``, ``probes`` and ``tokens``
appear where they are needed. Formulas are written for one example and batched where they are called.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Shaped

    Metrics = dict[str, Float[Array, "..."]]
    """Named numbers that an update reports."""


def __getattr__(name: str) -> Any:
    # Processes that only run environments import this file, and importing JAX would cost each a second.
    if name != "Metrics":
        raise AttributeError(f"module 'fcritic.types' has no attribute '{name}'")
    from jaxtyping import Array, Float

    return dict[str, Float[Array, "..."]]


class Transition(NamedTuple):
    """One step of experience (s, a, r, s'), or a stack of them.

    ``discount`` is dm_env's: 0 where the task terminated, 1 elsewhere, also at a time limit. There is
    no ``done`` flag, so nothing can mistake a time limit for an end. ``next_obs`` is the true next
    observation, never the first one of the next episode.
    """

    obs: "Shaped[Array | np.ndarray, '*axes obs']"
    act: "Shaped[Array | np.ndarray, '*axes act']"
    reward: "Shaped[Array | np.ndarray, '*axes']"
    discount: "Shaped[Array | np.ndarray, '*axes']"
    next_obs: "Shaped[Array | np.ndarray, '*axes obs']"


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """What an agent needs to know of a task. Actions are always in [-1, 1]; adapters rescale."""

    obs_dim: int
    act_dim: int
