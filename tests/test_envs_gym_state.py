"""The state of Gymnasium's environments: told exactly where it is known, and not at all elsewhere."""

from counting_env import Counter
import gymnasium
from gymnasium.envs.classic_control.pendulum import PendulumEnv
import numpy as np
import pytest
import safetensors.numpy

from fcritic.envs.gym import GymEnv
from fcritic.errors import UsageError


class Savable(Counter):
    """One that can tell its state; its random numbers come from a counter to keep that short."""

    def get_state(self):
        return {"count": np.array(self.count), "noise": np.array(self.noise)}

    def set_state(self, state):
        self.count, self.noise = int(state["count"]), float(state["noise"])


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
    name for name, spec in gymnasium.registry.items() if str(spec.entry_point).startswith("gymnasium.envs.mujoco")
]
"""Every MuJoCo task of Gymnasium, v4 and v5. They are built with what the standard install has."""

REFUSED = "Pusher-v4"
"""Gymnasium builds it with MuJoCo 2 only."""


@pytest.mark.filterwarnings("ignore:.*is out of date")
@pytest.mark.parametrize("task", ["Pendulum-v1", "MountainCarContinuous-v0", *sorted({*MUJOCO} - {REFUSED})])
def test_known_environments_continue_exactly_across_the_end_of_an_episode(task, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where MuJoCo leaves a file with its warnings
    env, other = (
        GymEnv(gymnasium.make(task, max_episode_steps=14, disable_env_checker=True), seed=seed) for seed in (3, 4)
    )
    rng = np.random.default_rng(0)
    for at in (0, 1, 9):
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


@pytest.mark.filterwarnings("ignore:.*is out of date")
def test_the_one_task_that_gymnasium_refuses_is_refused_in_a_line():
    assert {f"{name}-v{version}" for name in ("Hopper", "Humanoid", "Pusher") for version in (4, 5)} < {*MUJOCO}
    with pytest.raises(UsageError, match=r"cannot build 'Pusher-v4': .* only supported on `mujoco<3`"):
        GymEnv(REFUSED, seed=0)


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
