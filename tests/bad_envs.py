"""Environments that misbehave on request, as ``bad_envs:Walk-v0``, in this process or in a worker.

The variable BAD_ENV says who does what: ``seed,step,what``. The one that was reset with that seed (or every one,
for ``*``) does it in that step of its life, or when it is reset after that. An environment that was rebuilt has
another seed, so it is healthy.
"""

import ctypes
import os
import sys
import time

import gymnasium
from gymnasium import spaces
import numpy as np


class Walk(gymnasium.Env):
    """Observes its time and two random numbers; an episode ends or is cut off after 2 to 6 steps."""

    observation_space = spaces.Box(-1e9, 1e9, (3,))
    action_space = spaces.Box(-2.0, 2.0, (1,))

    def __init__(self):
        self.seed, self.life, self.time, self.length = None, 0, 0, 0

    def observe(self):
        return np.array([self.time, *self.np_random.uniform(-1, 1, 2)], np.float32)

    def planned(self, phase):
        seed, at, what = os.environ.get("BAD_ENV", "-,0,-").split(",")
        time_has_come = int(at) == self.life if phase == "step" else int(at) <= self.life
        due = seed == "*" or (seed == str(self.seed) and time_has_come)
        return what if due and what.startswith("reset") == (phase == "reset") else ""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed = self.seed if seed is None else seed
        self.time, self.length = 0, int(self.np_random.integers(2, 7))
        what = self.planned("reset").removeprefix("reset-")
        self.misbehave(what)
        return (np.full(3, np.nan, np.float32) if what == "nan" else self.observe()), {}

    def step(self, action):
        self.life += 1
        self.time += 1
        what = self.planned("step")
        self.misbehave(what)
        over, limit = self.time == self.length, self.length % 2 == 0
        answer = [self.observe(), float(action[0]), over and not limit, over and limit, {}]
        wrong = WRONG.get(what)
        if wrong is not None:
            answer[wrong[0]] = wrong[1]
        return tuple(answer[:4] if what == "four values" else answer)

    def misbehave(self, what):
        if what == "raise":
            raise ValueError("joint fell off")
        if what == "exit":
            sys.exit(3)
        if what == "die":
            os._exit(7)
        if what == "segfault":
            ctypes.string_at(0)
        if what == "hang":
            while True:
                time.sleep(0.01)
        if what == "stuck":  # in C, where no signal is looked at
            sum(range(10**12))
        if what == "print":
            print("s" * 1000, flush=True)
            os.write(1, b"m....")

    def get_state(self):
        rng = self.np_random.bit_generator.state
        wide = [rng["state"]["state"], rng["state"]["inc"]]
        words = [part for number in wide for part in (number >> 64, number & (2**64 - 1))]
        place = [self.seed, self.life, self.time, self.length]
        return {"rng": np.array([*words, rng["has_uint32"], rng["uinteger"]], np.uint64), "place": np.array(place)}

    def set_state(self, state):
        a, b, c, d, has, half = (int(word) for word in state["rng"])
        inner = {"state": (a << 64) | b, "inc": (c << 64) | d}
        full = {"bit_generator": "PCG64", "state": inner, "has_uint32": has, "uinteger": half}
        self.np_random.bit_generator.state = full
        self.seed, self.life, self.time, self.length = (int(number) for number in state["place"])


class Forgetful(Walk):
    """One that cannot tell its state."""

    get_state = None

    def __getattribute__(self, name):
        if name in ("get_state", "set_state"):
            raise AttributeError(name)
        return super().__getattribute__(name)


WRONG = {
    "observation nan": (0, np.array([0, np.nan, 0], np.float32)),
    "observation None": (0, None),
    "observation text": (0, "1.0"),
    "observation short": (0, np.zeros(1, np.float32)),
    "observation objects": (0, np.array([0, None, 0], object)),
    "observation ragged": (0, [0.0, [1.0]]),
    "reward None": (1, None),
    "reward text": (1, "1.5"),
    "reward list": (1, [1.0]),
    "reward huge": (1, 1e300),
    "terminated int": (2, 1),
    "truncated None": (3, None),
}

gymnasium.register("Walk-v0", Walk)
gymnasium.register("Forgetful-v0", Forgetful)
