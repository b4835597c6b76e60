"""Environments that break their promises: who, when and what is said, and what happens to the others."""

import signal
import threading
import time

import gymnasium
import numpy as np
import pytest
import safetensors.numpy
from sick_vectors import SICK, TASK, actions, assert_same_elsewhere, assert_true_transitions, plan, play

from benchmarks.attacks import sick
from fcritic import envs
from fcritic.envs import Step, VectorEnv
from fcritic.errors import EnvironmentFault, UsageError
from fcritic.types import EnvSpec

__all__ = ["plan"]

SEEDS = {"seeds": [0, 1], "envs": 2}


def vector(**options):
    return envs.make_vector(TASK, **SEEDS, **options)


WHAT = {
    "raise": "step raised ValueError: joint fell off",
    "exit": "step raised SystemExit: 3",
    "hang": "step took longer than 0.3 s",
    "four values": r"step returned 4 values, not \(observation, reward, terminated",
    "observation nan": r"observation\[1\] is nan",
    "observation None": "observation is None, not an array of numbers",
    "observation text": r"observation is '1.0' \(str\), not an array",
    "observation short": r"observation has shape \(1,\), not \(3,\)",
    "observation objects": "observation is array.*not an array of numbers",
    "observation ragged": "observation is .*not an array of numbers",
    "reward None": "reward is None, not a number",
    "reward text": r"reward is '1.5' \(str\), not a number",
    "reward list": r"reward is \[1.0\] \(list\), not a number",
    "reward huge": r"reward is 1e\+300",
    "terminated int": r"terminated is 1 \(int\), not True or False",
    "truncated None": "truncated is None, not True or False",
}


@pytest.mark.parametrize("what", WHAT)
def test_a_fault_names_environment_step_and_field(what, plan):
    plan(what)
    env = vector(timeout=0.3)
    says = rf"{TASK} \(seed index 1, environment 0\): {WHAT[what]}.* at step 3, \d steps into its episode"
    play(env, actions(3))
    with pytest.raises(EnvironmentFault, match=says) as caught:
        env.step(actions(1)[0])
    assert "\n" not in str(caught.value)
    assert env.take_faults() == []


def test_an_answer_that_a_wrapper_cannot_take_apart_is_the_environments_own():
    class Old(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Box(-1, 1, (1,))
        reset = lambda self, *, seed=None, options=None: (np.zeros(1, np.float32), {})
        step = lambda self, action: (np.zeros(1, np.float32), 0.0, False, {})

    task = envs.name_of(lambda: gymnasium.wrappers.TimeLimit(Old(), 5))
    with pytest.raises(EnvironmentFault, match="the environment's own step returned 4 values, not "):
        envs.make_vector(task, seeds=[0], envs=1).step(np.zeros((1, 1, 1), np.float32))


@pytest.mark.parametrize("what", ["raise", "nan", "hang"])
def test_a_fault_at_the_beginning_of_an_episode(what, plan):
    plan(f"reset-{what}")
    env = vector(timeout=0.3)
    with pytest.raises(EnvironmentFault, match=r"Walk-v0 \(seed index 1, environment 0\): .* 0 steps into its"):
        play(env, actions(30))


@pytest.mark.parametrize("what", ["raise", "hang", "observation nan", "reward None", "reset-nan"])
def test_skipping_leaves_the_others_alone_and_transitions_true(what, plan, monkeypatch):
    healthy = vector()
    first = healthy.obs
    expected = play(healthy, actions(25))
    at = next(t for t in range(2, 25) if any(e[:2] == SICK for e in expected[t - 1][1]))  # an end, for the reset
    plan(what, at)
    env = vector(on_fault="skip", timeout=0.3)
    rows = play(env, actions(25))
    assert_same_elsewhere(rows, expected)
    assert_true_transitions(rows, first)
    (fault,) = env.take_faults()
    assert fault[:2] == SICK and fault.what.startswith(f"{TASK} (seed index 1, environment 0): ")
    assert fault.step == (at if what == "reset-nan" else at - 1)
    assert env.take_faults() == [] and env.steps == 25
    np.testing.assert_array_equal(env.state()["faults"], [[0, 0], [1, 0]])
    if what == "reset-nan":  # the step before was good, so its episode counts
        assert rows[at - 1][1] == expected[at - 1][1]


def test_resume_after_a_skipped_fault_is_exact(plan):
    plan("raise", at=3)
    env = vector(on_fault="skip")
    play(env, actions(4))
    stored = safetensors.numpy.load(safetensors.numpy.save(env.state()))
    plan("raise", at=3, place=None)  # every one that lives for three steps: more faults to come
    expected = None
    for _ in range(2):
        other = envs.make_vector(TASK, seeds=[7, 8], envs=2, on_fault="skip")
        assert other.restore(stored) == 0
        with pytest.raises(EnvironmentFault, match="for the 3rd time in a row"):
            other.step(actions(1)[0])
        told = [fault.what for fault in other.take_faults()]
        obs = other.obs
        expected = expected or (told, obs)
        assert told == expected[0]
        np.testing.assert_array_equal(obs, expected[1])


def test_patience_ends(plan):
    plan("raise", place=None)
    env = vector(on_fault="skip")
    with pytest.raises(EnvironmentFault, match=r"joint fell off at step 0.*for the 3rd time in a row"):
        env.step(actions(1)[0])
    assert len(env.take_faults()) == 2 * 4


@pytest.mark.parametrize("on_fault", ["stop", "rollback"])
def test_one_can_go_back_after_a_fault(on_fault, plan, monkeypatch):
    plan("hang", at=6)
    env = vector(on_fault=on_fault, timeout=0.3)
    play(env, actions(4))
    state = env.state()
    with pytest.raises(EnvironmentFault):
        play(env, actions(6, seed=1))
    monkeypatch.delenv("FCRITIC_SICK")
    assert env.restore(state) == 0
    healthy = vector()
    play(healthy, actions(4))
    assert_same_elsewhere(play(env, actions(9, seed=1)), play(healthy, actions(9, seed=1)), sick=())


def test_what_can_never_be_used_is_refused_at_once(plan):
    plan("reset-nan", place=None)
    with pytest.raises(UsageError, match="first observation is not finite"):
        vector(on_fault="skip")


class Odd(envs.AbstractEnv):
    """Not from Gymnasium; answers what it is told to."""

    spec = EnvSpec(obs_dim=2, act_dim=1)
    name = "odd"
    answer = Step(np.zeros(2, np.float32), 0.0, 1.0, False)

    def reset(self):
        return np.zeros(2)

    def reseed(self, seed):
        pass

    def step(self, action):
        action *= np.nan  # its own copy
        return self.answer

    def state(self):
        return None

    def restore(self, state):
        raise NotImplementedError


@pytest.mark.parametrize(
    "change, says",
    [
        ({"discount": 1.5}, "discount is 1.5, not between 0 and 1"),
        ({"discount": np.nan}, "discount is nan, not between"),
        ({"discount": "1"}, "discount is '1'"),
        ({"last": 1}, "last is 1 .int., not True or False"),
        ({"last": None}, "last is None"),
        ({"obs": 0.0}, r"observation has shape \(\), not \(2,\)"),
        ({"obs": np.zeros(2, complex)}, "observation is array.* not an array of numbers"),
        (None, r"step returned None, not \(obs, reward, discount, last\)"),
        ((1, 2, 3), "step returned 3 values"),
    ],
)
def test_answers_of_other_environments_are_checked_too(change, says):
    odd = Odd()
    vector = VectorEnv([[Odd(), odd]])
    transition, _ = vector.step(np.full((1, 2, 1), 0.5))
    assert (transition.act == 0.5).all()
    odd.answer = odd.answer._replace(**change) if isinstance(change, dict) else change
    with pytest.raises(EnvironmentFault, match=rf"odd \(seed index 0, environment 1\): {says}.* at step 1"):
        vector.step(np.zeros((1, 2, 1)))


@pytest.mark.parametrize(
    "answer", [(np.zeros(2), np.float32(1), 1, np.bool_(False)), ([0, 1], True, 0, np.array(True))]
)
def test_sensible_types_are_taken(answer):
    odd = Odd()
    odd.answer = answer
    transition, episodes = VectorEnv([[odd]]).step(np.zeros((1, 1, 1)))
    assert transition.reward[0, 0] == 1 and len(episodes) == int(bool(answer[3]))


def test_an_alarm_of_someone_else_is_left_alone(plan):
    rung = []
    earlier = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        env = vector(timeout=0.3)
        env.step(actions(1)[0])
        assert signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        env.step(actions(1)[0])
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 0.1
        time.sleep(0.15)
        assert rung == [1]
    finally:
        signal.signal(signal.SIGALRM, earlier)


def test_threads_other_than_the_main_one_work_without_a_watch():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(play(vector(), actions(3))))
    thread.start()
    thread.join()
    assert_same_elsewhere(seen[0], play(vector(), actions(3)), sick=())


def test_a_slow_but_lively_vector_is_no_hang(monkeypatch):
    """The limit is for one environment, not for all of them together."""
    monkeypatch.setattr(sick.Walk, "misbehave", lambda self, what: time.sleep(0.1))
    play(vector(timeout=0.3), actions(2))
