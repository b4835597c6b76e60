"""A Gymnasium environment that counts its steps, for the tests of the adapter."""

import gymnasium
from gymnasium import spaces
import numpy as np


class Counter(gymnasium.Env):
    """Observations in a dictionary; the action sets the reward; terminates after `length` steps."""

    observation_space = spaces.Dict(
        {
            "count": spaces.Box(0, 100, (1,), np.float64),
            "grid": spaces.Tuple([spaces.Box(-1, 1, (2, 2)), spaces.Box(0, 255, (2,), np.uint8)]),
        }
    )
    action_space = spaces.Box(np.array([[0.0, -3.0]]), np.array([[2.0, 5.0]]), dtype=np.float64)

    def __init__(self, length=4):
        self.length, self.count, self.noise = length, 0, 0.0
        self.actions = []

    def observe(self):
        return {
            "count": np.array([self.count], np.float64),
            "grid": (np.full((2, 2), self.noise, np.float32), np.array([1, 2], np.uint8)),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.noise = 0, self.np_random.uniform(-1, 1)
        return self.observe(), {}

    def step(self, action):
        self.actions.append(action)
        self.count += 1
        return self.observe(), float(action[0, 1]), self.count == self.length, False, {}
