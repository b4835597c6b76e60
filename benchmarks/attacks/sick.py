"""Environments that misbehave on request, as ``benchmarks.attacks.sick:Walk-v0``, here or in a worker process.

The variable FCRITIC_SICK says who does what: ``seed,step,what``. The one that was reset with that seed (or every
one, for ``*``) does it in that step of its life, or when it is reset after that. One that was rebuilt has
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
        """Time and chance."""
        return np.array([self.time, *self.np_random.uniform(-1, 1, 2)], np.float32)

    def planned(self, phase):
        """What to do wrong now, or nothing."""
        seed, at, what = os.environ.get("FCRITIC_SICK", "-,0,-").split(",")
        time_has_come = int(at) == self.life if phase == "step" else int(at) <= self.life
        due = seed == "*" or (seed == str(self.seed) and time_has_come)
        return what if due and what.startswith("reset") == (phase == "reset") else ""

    def reset(self, *, seed=None, options=None):
        """Begins an episode."""
        super().reset(seed=seed)
        self.seed = self.seed if seed is None else seed
        self.time, self.length = 0, int(self.np_random.integers(2, 7))
        what = self.planned("reset").removeprefix("reset-")
        self.misbehave(what)
        return (np.full(3, np.nan, np.float32) if what == "nan" else self.observe()), {}

    def step(self, action):
        """The reward is the action, so that a transition can be checked."""
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
        """Does what no environment should."""
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
        """All that decides its future."""
        rng = self.np_random.bit_generator.state
        wide = [rng["state"]["state"], rng["state"]["inc"]]
        words = [part for number in wide for part in (number >> 64, number & (2**64 - 1))]
        place = [self.seed, self.life, self.time, self.length]
        return {"rng": np.array([*words, rng["has_uint32"], rng["uinteger"]], np.uint64), "place": np.array(place)}

    def set_state(self, state):
        """Continues from a state."""
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


class Short(gymnasium.Env):
    """Episodes of 1 to 5 steps that are terminated, truncated, or both at once; all is random but the seed."""

    action_space = spaces.Box(-3.0, 1.0, (2,))

    def __init__(self, kind="box"):
        box = spaces.Box(-10.0, 10.0, (2, 2), np.float64)
        self.kind = kind
        inner = spaces.Tuple([spaces.Box(-10.0, 10.0, (1,)), box])
        self.observation_space = box if kind == "box" else spaces.Dict({"b": inner, "a": box})

    def observe(self):
        """A box, or a nest of them."""
        draw = self.np_random.uniform(-1, 1, (2, 2))
        if self.kind == "box":
            return draw
        return {"a": draw, "b": (self.np_random.uniform(-1, 1, 1).astype(np.float32), draw + self.left)}

    def reset(self, *, seed=None, options=None):
        """Draws the length of the episode."""
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 6))
        return self.observe(), {"left": self.left}

    def step(self, action):
        """One step nearer to the end; one beyond it is an error."""
        if self.left < 1:
            raise RuntimeError("a step after the end")
        self.left -= 1
        ending = int(self.np_random.integers(3)) if self.left == 0 else None
        return self.observe(), float(action.sum()) + self.left, ending in (0, 2), ending in (1, 2), {"x": 1}


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
"""Answers that are no answers: which of the five values, and what it is."""

gymnasium.register("Walk-v0", Walk)
gymnasium.register("Forgetful-v0", Forgetful)
