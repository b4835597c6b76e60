"""`fcritic check`: every finding is shown by an environment that is sick in just that way."""

import json
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from sick_tasks import ALSO, HEALTHY, INSTEAD, SICK, Healthy, answering, sick

import fcritic
from fcritic.errors import UsageError


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


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (lambda obs: (obs, 0.0, False, {}), "4 values"),
        (lambda obs: (obs, 0.0, False, False, {}, {}), "more than 5 values"),
        (lambda obs: None, "a NoneType"),
    ],
)
def test_a_wrong_answer_behind_a_wrapper_is_that_of_the_environment(answer, got):
    """A time limit takes the answer apart before anything of ours sees it."""
    task = lambda: gymnasium.wrappers.TimeLimit(sick(step=lambda self, action: answer(self.observe()))(), 9)
    (finding,) = [each for each in fcritic.check(task, 100).findings if each.level == "error"]
    assert finding.name == "wrong-answer" and finding.where == "step 1 of episode 1"
    said = "(observation, reward, terminated, truncated, info)"
    assert finding.what == f"the environment's own step returned {got}, not {said}"


def test_an_error_of_the_environments_own_is_not_taken_for_a_wrong_answer():
    def step(self, action):
        _one, _two = (1, 2, 3)

    report = fcritic.check(lambda: gymnasium.wrappers.TimeLimit(sick(step=step)(), 9), 100)
    assert report.named("error") == ["raises"] and "too many values to unpack" in str(report)


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
    trusted = (tmp_path / "config" / "fcritic" / "trusted-tasks").read_text()
    assert trusted.startswith("sha256:") and trusted.endswith(f" {tmp_path}/robots.py:good\n")
    assert good.returncode == 0 and json.loads(good.stdout)["healthy"] is True
    bad = command("robots:bad")
    assert bad.returncode == 1 and "actions are not continuous" in bad.stdout
    typo = command("robots.py:god")
    assert typo.returncode == 2 and "did you mean good?" in typo.stderr and "Traceback" not in typo.stderr
