import sys
from types import ModuleType

import gymnasium
from gymnasium import spaces
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.spaces.utils import flatten
import numpy as np
import pytest
import safetensors.numpy

from fcritic import envs
from fcritic.envs.gym import GymEnv
from fcritic.errors import UsageError


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


class Savable(Counter):
    """One that can tell its state; its random numbers come from a counter to keep that short."""

    def get_state(self):
        return {"count": np.array(self.count), "noise": np.array(self.noise)}

    def set_state(self, state):
        self.count, self.noise = int(state["count"]), float(state["noise"])


@pytest.mark.parametrize("task, repeat", [("Pendulum-v1", 1), ("Pendulum-v1", 3), ("MountainCarContinuous-v0", 1)])
def test_equals_plain_gymnasium(task, repeat):
    env, reference = envs.make(task, seed=5, action_repeat=repeat), gymnasium.make(task)
    low, high = reference.action_space.low, reference.action_space.high
    rng = np.random.default_rng(0)
    seed = 5
    for _ in range(2):
        np.testing.assert_array_equal(env.reset(), reference.reset(seed=seed)[0])
        seed, last = None, False
        while not last:
            act = rng.uniform(-1, 1, 1).astype(np.float32)
            step, total = env.step(act), 0.0
            for _ in range(repeat):
                obs, reward, terminated, truncated, _ = reference.step(low + (act + 1) / 2 * (high - low))
                total += reward
                if terminated or truncated:
                    break
            np.testing.assert_allclose(step.obs, obs, rtol=1e-4, atol=1e-5)
            assert step.obs.dtype == np.float32
            assert step.reward == pytest.approx(total, rel=1e-4, abs=1e-5)
            assert step.last == (terminated or truncated)
            assert step.discount == 1.0  # both tasks end by their limit here
            last = step.last


def test_termination_against_truncation():
    env = envs.make("MountainCarContinuous-v0", seed=0)
    obs = env.reset()
    while True:  # pushing along the velocity reaches the goal
        step = env.step(np.sign(obs[1:]) + (obs[1:] == 0))
        obs = step.obs
        if step.last:
            break
    assert step.discount == 0.0 and step.reward > 90
    for length, discount in [(3, 0.0), (4, 1.0)]:  # at 3 both come together: the task has ended
        env = GymEnv(gymnasium.wrappers.TimeLimit(Counter(length), 3), seed=0)
        env.reset()
        steps = [env.step(np.zeros(2)) for _ in range(3)]
        assert [step.last for step in steps] == [False, False, True]
        assert [step.discount for step in steps] == [1.0, 1.0, discount]


def test_dictionary_of_boxes_is_flattened_and_actions_rescaled():
    inner = Counter()
    env = GymEnv(inner, seed=0, action_repeat=3)
    assert (env.spec.obs_dim, env.spec.act_dim) == (7, 2)
    obs = env.reset()
    np.testing.assert_array_equal(obs, flatten(inner.observation_space, inner.observe()).astype(np.float32))
    assert obs.dtype == np.float32
    step = env.step(np.array([-1.0, 1.0]))
    assert step.reward == 15.0 and not step.last
    assert inner.actions[0].shape == (1, 2) and inner.actions[0].dtype == np.float64
    np.testing.assert_array_equal(inner.actions[0], [[0.0, 5.0]])
    step = env.step(np.array([7.0, 0.0]))  # clipped; the episode ends in its first frame
    assert step.last and step.reward == 1.0 and len(inner.actions) == 4
    np.testing.assert_array_equal(inner.actions[3], [[2.0, 1.0]])


class Delayed(gymnasium.Wrapper):
    """A wrapper that may remember anything."""


class Heavier(PendulumEnv):
    """Looks like Pendulum, and may have more in it."""


@pytest.mark.parametrize(
    "make_env",
    [
        lambda: Counter(),
        lambda: Delayed(gymnasium.make("Pendulum-v1")),
        lambda: Heavier(),
        lambda: gymnasium.wrappers.NormalizeObservation(gymnasium.make("Pendulum-v1")),
        lambda: gymnasium.wrappers.FrameStackObservation(Savable(), 2),
        lambda: gymnasium.wrappers.TimeLimit(gymnasium.make("Pendulum-v1"), 7),
    ],
)
def test_where_the_state_cannot_be_told_there_is_none(make_env):
    env = GymEnv(make_env(), seed=0)
    env.reset()
    assert env.state() is None


MUJOCO = [
    "HalfCheetah",
    "Hopper",
    "Walker2d",
    "Ant",
    "Humanoid",
    "HumanoidStandup",
    "Swimmer",
    "Reacher",
    "Pusher",
    "InvertedPendulum",
    "InvertedDoublePendulum",
]
KNOWN = ["Pendulum-v1", "MountainCarContinuous-v0", *(f"{name}-v5" for name in MUJOCO), "Ant-v4", "Humanoid-v4"]


@pytest.mark.filterwarnings("ignore:.*is out of date")
@pytest.mark.parametrize("task", KNOWN)
@pytest.mark.parametrize("at", [0, 1, 9])
def test_known_environments_continue_exactly_across_the_end_of_an_episode(task, at, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where MuJoCo leaves a file with its warnings
    monkeypatch.setitem(sys.modules, "imageio", ModuleType("imageio"))  # for rendering only, and not required
    env, other = (
        GymEnv(gymnasium.make(task, max_episode_steps=14, disable_env_checker=True), seed=seed) for seed in (3, 4)
    )
    rng = np.random.default_rng(0)
    env.reset()
    for _ in range(at):
        if env.step(rng.uniform(-1, 1, env.spec.act_dim)).last:
            env.reset()
    other.reset()
    other.step(np.ones(env.spec.act_dim))
    other.restore(safetensors.numpy.load(safetensors.numpy.save(env.state())))
    ends = 0
    for _ in range(32):
        action = rng.uniform(-1, 1, env.spec.act_dim)
        expected, step = env.step(action), other.step(action)
        np.testing.assert_array_equal(step.obs, expected.obs)
        assert step[1:] == expected[1:]
        if step.last:
            ends += 1
            np.testing.assert_array_equal(other.reset(), env.reset())
    assert ends >= 2


def test_own_state_methods_are_used_and_the_time_limit_counts_on():
    env, other = (GymEnv(gymnasium.wrappers.TimeLimit(Savable(9), 5), seed=seed) for seed in (0, 1))
    env.reset()
    for _ in range(3):
        env.step(np.zeros(2))
    state = env.state()
    assert all(isinstance(value, np.ndarray) for value in state.values())
    other.restore(state)
    for last in (False, True):
        step, expected = other.step(np.ones(2)), env.step(np.ones(2))
        np.testing.assert_array_equal(step.obs, expected.obs)
        assert step[1:] == expected[1:] and step.last == last


def changed(**spaces_by_name):
    env = Counter()
    for name, space in spaces_by_name.items():
        setattr(env, name, space)
    return env


@pytest.mark.parametrize(
    "make_env, says",
    [
        (lambda: "CartPole-v1", "CartPole-v1 has the actions Discrete.2.; choose a task with continuous"),
        (lambda: "Pendulum-v9", "did you mean Pendulum-v1"),
        (lambda: "no_such_package:Pendulum-v1", "cannot build 'no_such_package:Pendulum-v1'"),
        (lambda: changed(action_space=spaces.Box(-np.inf, 1, (2,))), "without finite bounds; wrap it"),
        (lambda: changed(action_space=spaces.Box(0, 4, (2,), np.int64)), "continuous"),
        (lambda: changed(observation_space=spaces.Dict({"a": spaces.Discrete(3)})), "Discrete.3.*wrap it"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(make_env, says):
    with pytest.raises(UsageError, match=says) as caught:
        GymEnv(make_env(), seed=0)
    assert "\n" not in str(caught.value)


def test_first_observation_is_checked():
    wrong_size = changed(observation_space=spaces.Box(-1, 1, (3,)))
    wrong_size.observe = lambda: np.zeros(4)
    not_finite = changed(observation_space=spaces.Box(-1, 1, (3,)))
    not_finite.observe = lambda: np.array([0, np.nan, 0])
    missing = Counter()
    missing.observe = lambda: {"count": np.zeros(1)}
    for env, says in [
        (wrong_size, r"shape \(4,\), not \(3,\)"),
        (not_finite, "not finite"),
        (missing, "does not fit"),
    ]:
        with pytest.raises(UsageError, match=f"Counter: .*{says}"):
            GymEnv(env, seed=0).reset()


@pytest.mark.parametrize(
    "task, says",
    [
        ("CartPole-v1", "Discrete"),
        ("pendulum-v1", "did you mean Pendulum-v1"),
        ("Pendulum", "did you mean Pendulum-v1"),
        (":", "cannot build"),
    ],
)
def test_wrong_ids_through_make(task, says):
    with pytest.raises(UsageError, match=says) as caught:
        envs.make(task, seed=0)
    assert "\n" not in str(caught.value)
