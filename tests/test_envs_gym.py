"""Gymnasium's environments through the adapter: the same numbers, and what cannot be used is refused."""

from counting_env import Counter
import gymnasium
from gymnasium import spaces
from gymnasium.spaces.utils import flatten
import numpy as np
import pytest

from fcritic import envs
from fcritic.envs.gym import GymEnv
from fcritic.errors import UsageError


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
                scaled = act.astype(np.float64) * (high - low) / 2 + (high + low) / 2
                obs, reward, terminated, truncated, _ = reference.step(scaled.astype(np.float32))
                total += reward
                if terminated or truncated:
                    break
            np.testing.assert_array_equal(step.obs, obs)
            assert step.obs.dtype == np.float32
            assert step.reward == total
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
        (lambda: "no_such_package:Pendulum-v1", "there is no module no_such_package"),
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
        (":", "is not a module"),
    ],
)
def test_wrong_ids_through_make(task, says):
    with pytest.raises(UsageError, match=says) as caught:
        envs.make(task, seed=0)
    assert "\n" not in str(caught.value)
