"""`fcritic check`: every finding is shown by an environment that is sick in just that way."""

import json
import os
import subprocess
import sys
import time

import gymnasium
from gymnasium import spaces
import numpy as np
import pytest

import fcritic
from fcritic.errors import UsageError

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


def found_in(task, **options) -> set:
    options = {"steps": 300, "timeout": 1.0} | options
    return {(finding.level, finding.name) for finding in fcritic.check(task, **options).findings}


def test_a_healthy_one_has_nothing_but_two_notes():
    assert found_in(Healthy) == HEALTHY


@pytest.mark.parametrize("name", SICK)
def test_each_sickness_is_found_and_nothing_else(name):
    level, task = SICK[name]
    steps = 60 if name == "slow" else 300
    found = found_in(task, steps=steps)
    assert (level, name) in found
    others = found - {(level, name)} - ALSO.get(name, set())
    if level == "error" and name != "state-inexact":
        assert others <= HEALTHY  # the check ends at an error
    else:
        assert others | INSTEAD.get(name, set()) == HEALTHY | INSTEAD.get(name, set())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"reward": None}, "reward is None, not a number"),
        ({"reward": "1.5"}, "not a number"),
        ({"terminated": 1}, "terminated is 1"),
        ({"truncated": None}, "truncated is None, not True or False"),
        ({"obs": "text"}, "not an array of numbers"),
        ({"reward": float("inf")}, "the reward is inf"),
        ({"extra": 1}, "step returned 6 values"),
    ],
)
def test_a_wrong_answer_is_told_with_its_step(wrong, words):
    (finding,) = [each for each in fcritic.check(answering(**wrong), 100).findings if each.level == "error"]
    assert words in finding.what and finding.where == "step 3 of episode 1"


def test_a_state_without_the_random_generator_is_found_out():
    """Nothing in the episode tells, but the next one does."""
    quiet = {"observe": lambda self: np.array([self.place, 0.0], np.float32), "reward": lambda self: self.time / 20}
    place = lambda self: {"place": Healthy.get_state(self)["place"]}

    def put_back(self, state):
        self.place, self.speed, self.time, self.over = state["place"].tolist()

    def still(self, action):
        self.time += 1
        return self.observe(), self.reward(), False, self.time >= self.limit, {}

    found = fcritic.check(sick(get_state=place, set_state=put_back, step=still, **quiet), 100)
    (inexact,) = [finding for finding in found.findings if finding.level == "error"]
    assert inexact.name == "state-inexact" and "the next episode begins differently" in inexact.what


def test_the_old_interface_is_named():
    report = fcritic.check(sick(reset=lambda self, *, seed=None, options=None: np.zeros(2, np.float32)))
    assert report.named("error") == ["wrong-answer"]
    assert "reset returned" in str(report) and "not (observation, info)" in str(report)


def broken():
    raise OSError("no such robot")


def test_what_cannot_be_built_is_an_error_with_its_line():
    report = fcritic.check(broken)
    assert report.named("error") == ["build"] and not report.healthy
    assert "OSError: no such robot (test_check.py, line" in report.findings[0].what
    assert fcritic.check(lambda: 7).named("error") == ["build"]


def many(num_envs):
    return gymnasium.vector.SyncVectorEnv([Healthy] * num_envs)


def test_other_kinds_of_tasks_are_examined_too():
    for task in ("Pendulum-v1", "probe-both", "cartpole-balance", many):
        report = fcritic.check(task, 60)
        assert report.healthy and report.facts["steps"] == 60, str(report)
    assert "mujoco" in fcritic.check("cartpole-balance", 20).named("note")
    limited = fcritic.check("Pendulum-v1", 60)
    assert "never-ends" not in limited.named("warning")  # it has a time limit, later
    for wrong in ("Pendulm-v1", "cartpole-balanec"):
        with pytest.raises(UsageError, match=r"Pendulum-v1|cartpole-balance"):
            fcritic.check(wrong)
    with pytest.raises(UsageError, match="at least 10"):
        fcritic.check(Healthy, 3)


def test_the_command_tells_programs_and_people(tmp_path):
    (tmp_path / "robots.py").write_text("import gymnasium\ndef good(): return gymnasium.make('Pendulum-v1')\n")
    (tmp_path / "robots.py").open("a").write("def bad(): return gymnasium.make('CartPole-v1')\n")

    def command(*words):
        program = [sys.executable, "-m", "fcritic", "check", *words]
        own_home = os.environ | {"XDG_CONFIG_HOME": str(tmp_path / "config")}
        return subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, env=own_home)

    good = command("robots.py:good", "--json", "--steps", "50")
    assert (tmp_path / "config" / "fcritic" / "trusted-tasks").read_text() == f"{tmp_path}/robots.py\n"
    assert good.returncode == 0 and json.loads(good.stdout)["healthy"] is True
    bad = command("robots:bad")
    assert bad.returncode == 1 and "actions are not continuous" in bad.stdout
    typo = command("robots.py:god")
    assert typo.returncode == 2 and "did you mean good?" in typo.stderr and "Traceback" not in typo.stderr
