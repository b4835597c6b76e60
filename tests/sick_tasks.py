"""A healthy environment, and one for every finding of `fcritic check` that is sick in just that way."""

import json
import time

import gymnasium
from gymnasium import spaces
import numpy as np

HEALTHY = {("note", "resume"), ("note", "speed")}
"""What is said of the healthy one: a run continues exactly, and how fast it is."""


class Healthy(gymnasium.Env):
    """A point that is pushed along a line: falls off at 3, or is stopped after 20 steps."""

    observation_space = spaces.Box(-1e3, 1e3, (2,))
    action_space = spaces.Box(-2.0, 2.0, (1,))
    limit, edge = 20, 3.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.speed, self.time, self.over = self.np_random.uniform(-1, 1), 0.0, 0, False
        return self.observe(), {}

    def observe(self):
        return np.array([self.place, self.speed], np.float32)

    def reward(self):
        return -abs(self.place)

    def ends(self):
        return abs(self.place) > self.edge, self.time >= self.limit

    def step(self, action):
        assert not self.over, "the episode is over"
        self.time += 1
        self.speed += 0.3 * float(action[0]) + self.np_random.normal(0, 0.01)
        self.place += 0.3 * self.speed
        terminated, truncated = self.ends()
        self.over = bool(terminated or truncated)
        return self.observe(), self.reward(), terminated, truncated, {}

    def get_state(self):
        rng = json.dumps(self.np_random.bit_generator.state).encode()
        place = np.array([self.place, self.speed, self.time, self.over])
        return {"place": place, "rng": np.frombuffer(rng, np.uint8)}

    def set_state(self, state):
        self.place, self.speed, self.time, self.over = state["place"].tolist()
        self.np_random.bit_generator.state = json.loads(state["rng"].tobytes())


def sick(**changes):
    """The healthy one, with methods or spaces replaced."""
    return type("Sick", (Healthy,), changes)


def answering(**wrong):
    """One whose third step has other values in its answer."""

    def step(self, action):
        names = ("obs", "reward", "terminated", "truncated", "info")
        answer = dict(zip(names, Healthy.step(self, action), strict=True))
        return tuple((answer | wrong if self.time == 3 else answer).values())

    return sick(step=step)


def restless(self, *, seed=None, options=None):
    Healthy.reset(self, seed=None)
    return self.observe(), {}


def noisy(self):
    return np.array([self.place, self.speed + (np.random.normal() if self.time == 4 else 0)], np.float32)


def forgetful(self, *, seed=None, options=None):
    left = getattr(self, "speed", 0.0)
    Healthy.reset(self, seed=seed)
    self.speed = left
    return self.observe(), {}


def same_array(self):
    self.array = getattr(self, "array", np.zeros(2, np.float32))
    self.array[:] = self.place, self.speed
    return self.array


def greedy_step(self, action):
    action *= 0.5
    return Healthy.step(self, action)


def lenient_step(self, action):
    self.over = False
    return Healthy.step(self, action)


def sleepy_step(self, action):
    time.sleep(0.004)
    return Healthy.step(self, action)


def stuck_step(self, action):
    while self.time == 2:
        time.sleep(0.01)
    return Healthy.step(self, action)


def wide(self):
    return np.array([self.place, 1e5 * self.speed], np.float32)


def partly(self):
    return {"a": np.array([self.place], np.float32), "b": np.array([self.speed], np.float32)}


class Model:
    nbody, ngeom, nq = 3, 7, 2


SICK = {
    "actions-discrete": ("error", sick(action_space=spaces.Discrete(3))),
    "actions-unbounded": ("error", sick(action_space=spaces.Box(-np.inf, np.inf, (1,)))),
    "actions-scale": ("warning", sick(action_space=spaces.Box(np.float32([-2, -1e4]), np.float32([2, 1e4])))),
    "observation-kind": ("error", sick(observation_space=spaces.Tuple([spaces.Discrete(2)]))),
    "observation-parts": (
        "note",
        sick(observation_space=spaces.Dict(a=spaces.Box(-9, 9, (1,)), b=spaces.Box(-9, 9, (1,))), observe=partly),
    ),
    "observation-image": (
        "warning",
        sick(
            observation_space=spaces.Box(0, 255, (2, 2, 3), np.uint8),
            observe=lambda self: np.full((2, 2, 3), 128 + 20 * self.place).astype(np.uint8),
        ),
    ),
    "no-space": ("error", sick(action_space=None)),
    "wrong-answer": ("error", answering(obs=np.zeros(3, np.float32))),
    "not-finite": ("error", answering(obs=np.array([0.0, np.nan], np.float32))),
    "raises": ("error", sick(reward=lambda self: 1 / (self.time - 4))),
    "too-slow": ("error", sick(step=stuck_step)),
    "observation-outside": ("warning", sick(observation_space=spaces.Box(-0.1, 0.1, (2,)))),
    "observation-dtype": ("note", sick(observation_space=spaces.Box(-10.0, 10.0, (2,), np.float64))),
    "observation-scales": ("note", sick(observation_space=spaces.Box(-np.inf, np.inf, (2,)), observe=wide)),
    "observation-constant": ("note", sick(observe=lambda self: np.array([self.place, 5.0], np.float32))),
    "action-changed": ("warning", sick(step=greedy_step)),
    "aliasing": ("warning", sick(observe=same_array)),
    "reward-zero": ("warning", sick(reward=lambda self: 0.0)),
    "reward-huge": ("warning", sick(reward=lambda self: 1e6 * self.place)),
    "reward-tiny": ("warning", sick(reward=lambda self: 1e-6 * self.place)),
    "reward-constant": ("warning", sick(reward=lambda self: 1.0, edge=1e9)),
    "never-ends": ("warning", sick(limit=10**9, edge=1e9, observation_space=spaces.Box(-np.inf, np.inf, (2,)))),
    "ends-at-once": ("warning", sick(limit=1)),
    "limit-as-end": ("warning", sick(ends=lambda self: (self.time >= 9, False))),
    "end-as-limit": ("warning", sick(ends=lambda self: (False, abs(self.place) > 2))),
    "both-flags": ("warning", sick(ends=lambda self: (self.time >= 9, self.time >= 9))),
    "no-time-limit": ("note", sick(limit=10**9)),
    "step-after-end": ("note", sick(step=lenient_step)),
    "seed-ignored": ("warning", sick(reset=restless)),
    "not-deterministic": ("warning", sick(observe=noisy)),
    "reset-leaks": ("warning", sick(reset=forgetful)),
    "same-start": ("note", sick(reset=lambda self, *, seed=None, options=None: begin_at_zero(self, seed))),
    "state-inexact": (
        "error",
        sick(get_state=lambda self: {**Healthy.get_state(self), "place": np.zeros(4)}),
    ),
    "no-state": ("note", sick(get_state=lambda self: [1, 2, 3])),
    "slow": ("warning", sick(step=sleepy_step)),
    "mujoco": ("note", sick(model=Model)),
}

ALSO = {
    "never-ends": {("note", "observation-scales")},  # what is pushed for ever goes far
}
"""What else such an environment may show."""

INSTEAD = {
    "no-state": {("note", "resume")},
    "state-inexact": {("note", "resume")},
    "slow": {("note", "speed")},
    "seed-ignored": {("note", "resume")},
    "not-deterministic": {("note", "resume")},
}
"""What is then not said, or need not be."""


def begin_at_zero(self, seed):
    Healthy.reset(self, seed=seed)
    self.place = 0.0
    return self.observe(), {}
