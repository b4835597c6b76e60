"""A trap for actors without noise: one dimension, one step from the reward, and nothing that points to it."""

import numpy as np

from fcritic.envs.base import AbstractEnv, EnvState, Step
from fcritic.types import EnvSpec

STEPS = 50
"""Time limit of an episode."""
REACH = 0.1
"""How far an action of 1 goes."""


class TrapEnv(AbstractEnv):
    """The position s in [0, 1] begins at 0; an action a moves it by a / 10; below 0 the task ends with reward 1.

    Any action below zero solves it at once. An actor without noise whose first action is above zero sees no reward,
    so its critic learns that nothing is worth anything, and no gradient leads it back. The best value at s is
    discount^n, where n = floor(10 s) is the number of full steps before the one that crosses 0. Seen is 2 s - 1: at
    an observation of exactly 0 networks without biases are exactly 0 too, and so are their gradients.
    """

    spec = EnvSpec(obs_dim=1, act_dim=1)
    name = "trap"

    def __init__(self, *, seed: int):
        self._step, self._position = STEPS, 0.0  # over until the first reset
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Nothing here is random."""

    def reset(self) -> np.ndarray:
        """Begins an episode at 0."""
        self._step, self._position = 0, 0.0
        return self._observe()

    def _observe(self) -> np.ndarray:
        return np.array([2 * self._position - 1], np.float32)

    def step(self, action: np.ndarray) -> Step:
        """Moves; a step across 0 ends the task, the fiftieth step ends the episode only."""
        if self._step >= STEPS:
            raise RuntimeError("trap: the episode is over or has not begun; call reset() first")
        goes = self._position + REACH * min(1.0, max(-1.0, float(action[0])))
        out = goes < 0
        self._position = min(1.0, max(0.0, goes))
        self._step = STEPS if out else self._step + 1
        return Step(self._observe(), float(out), float(not out), self._step == STEPS)

    def state(self) -> EnvState:
        """Step and position."""
        return {"step": np.array(self._step, np.int64), "position": np.array(self._position, np.float64)}

    def restore(self, state: EnvState) -> None:
        """Continues exactly from a saved state."""
        step, position = int(state["step"]), float(state["position"])
        if not (0 <= step <= STEPS and 0 <= position <= 1):
            raise ValueError(f"trap has no step {step} at position {position}")
        self._step, self._position = step, position
