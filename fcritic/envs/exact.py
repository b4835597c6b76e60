"""Exact models of RiverSwim and DeepSea, small tasks that are hard to explore and can be solved exactly.

`fcritic.envs.toy` makes environments of them, `fcritic.exploration` and `fcritic.theory` compute with them. Both
have two actions and a fixed horizon. A policy is the probability of action 1 in each state; as an environment's
action that probability is continuous.
"""

import dataclasses
import math

from jaxtyping import Float, Int
import numpy as np

from fcritic.errors import UsageError

MAPPING_SEED = 42
"""Seed of the draw that decides which action goes right in each cell of DeepSea, as in the standard suite."""
MOVE_COST = 0.01
"""Total cost of going right in every row of DeepSea."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A finite-horizon MDP with L = H layers, where time h lies in layer h, or with one layer for all times.

    A learner sees time through the layers: in DeepSea the row is part of the state, in RiverSwim it is not.
    """

    name: str
    shifts: tuple[int, ...] | None
    """Possible moves of a step, known to every learner and clipped at the edges. None: a step may lead anywhere."""
    P: Float[np.ndarray, "layers states 2 next"]
    reward: Float[np.ndarray, "layers states 2"]
    """Mean rewards."""
    noise: Float[np.ndarray, "layers states 2"]
    """Standard deviations of rewards."""
    horizon: int
    """H, steps in an episode."""
    gamma: float
    """Discount of critics, which ignore the horizon; regret and optimum are undiscounted."""
    right: Int[np.ndarray, "layers states"]
    """The action that goes right."""

    @property
    def layers(self) -> int:
        """L, which is 1 or the horizon."""
        return self.P.shape[0]

    @property
    def states(self) -> int:
        """The number of states in a layer. Episodes begin in the first one."""
        return self.P.shape[1]

    @property
    def successors(self) -> Int[np.ndarray, "states next"]:
        """The states of the next layer that may follow each state."""
        states = np.arange(self.states)
        if self.shifts is None:
            return np.broadcast_to(states, (self.states, self.states))
        return np.clip(states[:, None] + np.array(self.shifts), 0, self.states - 1)

    @property
    def ends(self) -> bool:
        """Whether the last step terminates the task; otherwise it is a time limit."""
        return self.layers > 1

    @property
    def slips(self) -> bool:
        """Whether a step may lead to more than one state."""
        return bool((self.P.max(axis=-1) < 1).any())


def river_model(length: int) -> tuple[Float[np.ndarray, "states 2 states"], Float[np.ndarray, "states 2"]]:
    """Returns RiverSwim's P and mean rewards.

    Action 0 goes left, never fails and pays 0.005 in the first state. Action 1 swims right, against the stream, and
    pays 1 in the last state.
    """
    if length < 2:
        raise UsageError(f"a river needs at least 2 states, not {length}")
    P, reward = np.zeros((length, 2, length)), np.zeros((length, 2))
    for state in range(length):
        P[state, 0, max(state - 1, 0)] = 1
    for state in range(1, length - 1):
        P[state, 1, state - 1 : state + 2] = 0.05, 0.6, 0.35
    P[0, 1, :2] = 0.4, 0.6
    P[-1, 1, -2:] = 0.4, 0.6
    reward[0, 0], reward[-1, 1] = 0.005, 1.0
    return P, reward


def river_swim(length: int = 6, horizon: int | None = None) -> Task:
    """Returns RiverSwim, the model of `river_model` with a time limit.

    **Arguments:** `horizon` is by default 20 for six states and grows with the length: 40 for 12, 67 for 20.
    """
    if length < 3:
        raise UsageError(f"a river needs at least 3 states, not {length}")
    horizon = math.ceil(10 * length / 3) if horizon is None else horizon
    P, reward = river_model(length)
    right = np.ones((1, length), int)
    noise = np.zeros((1, length, 2))
    return Task(f"riverswim-{length}", None, P[None], reward[None], noise, horizon, 1 - 1 / horizon, right)


def deep_sea(size: int, stochastic: bool = False) -> Task:
    """Returns DeepSea, where a diver on a grid falls one row per step and drifts one column left or right.

    Only going right in every row reaches the treasure of 1. Each step right costs 0.01 / size. The action that goes
    right is drawn for each cell. In the stochastic form a step right fails with probability 1 / size, and rewards
    in the two corners of the last row have standard normal noise.
    """
    if size < 2:
        raise UsageError(f"a sea needs at least 2 columns, not {size}")
    right = np.random.RandomState(MAPPING_SEED).binomial(1, 0.5, [size, size])
    P, reward, noise = np.zeros((size, size, 2, 3)), np.zeros((size, size, 2)), np.zeros((size, size, 2))
    rows, cells = np.indices((size, size))
    fails = 1 / size if stochastic else 0.0
    P[rows, cells, right] = 0, fails, 1 - fails
    P[rows, cells, 1 - right] = 1, 0, 0
    reward[rows, cells, right] = np.where(cells == size - 1, 1.0, 0.0) - MOVE_COST / size
    if stochastic:
        noise[-1, [0, size - 1]] = 1.0
    name = f"deepsea-{size}" + ("-stochastic" if stochastic else "")
    return Task(name, (-1, 0, 1), P, reward, noise, size, 0.99, right)
