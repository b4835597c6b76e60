"""The short way through dm_control's tolerance gives the numbers of the long one."""

import itertools

import numpy as np
import pytest

from fcritic import envs
from fcritic.envs.dmc import load_suite

SIGMOIDS = ("gaussian", "hyperbolic", "long_tail", "reciprocal", "cosine", "linear", "quadratic", "tanh_squared")
BOUNDS = ((0.0, 0.0), (-1.0, 2.0), (10, float("inf")), (float("-inf"), 0.3), (1.4, 1.4))


@pytest.fixture
def rewards():
    load_suite()
    from dm_control.utils import rewards

    assert rewards.tolerance is not rewards.tolerance.__wrapped__
    return rewards


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("sigmoid", SIGMOIDS)
def test_single_numbers_are_those_of_dm_control(rewards, sigmoid):
    drawn = np.random.default_rng(0).normal(scale=5, size=50)
    numbers = [*drawn, *np.array([0.0, -0.0, 2.0, -1.0, 10.0, 1e-300, np.inf, -np.inf, np.nan])]
    for x, bounds, margin, value in itertools.product(numbers, BOUNDS, (0, 0.7, 10), (0.1, 0.5)):
        arguments = {"bounds": bounds, "margin": margin, "sigmoid": sigmoid, "value_at_margin": value}
        short, long = rewards.tolerance(x, **arguments), rewards.tolerance.__wrapped__(x, **arguments)
        assert type(short) is type(long) is float
        assert np.float64(short).tobytes() == np.float64(long).tobytes(), (x, arguments)


def test_what_is_no_single_number_is_left_to_dm_control(rewards):
    for x in (np.linspace(-1, 1, 5), 0.3, 2, np.float32(0.3), np.array(0.3)):
        short, long = (call(x, (0.0, 0.5), 0.2) for call in (rewards.tolerance, rewards.tolerance.__wrapped__))
        assert type(short) is type(long)
        np.testing.assert_array_equal(short, long)
    for wrong in ({"bounds": (1, 0)}, {"margin": -1}, {"margin": 1, "sigmoid": "straight"}):
        with pytest.raises(ValueError):
            rewards.tolerance(np.float64(3), **wrong)


@pytest.mark.parametrize("task", ["cheetah-run", "walker-run", "cartpole-swingup", "humanoid-walk", "fish-swim"])
def test_a_task_gives_the_rewards_that_it_gave(rewards, monkeypatch, task):
    def trace():
        env = envs.make(task, seed=3)
        env.reset()
        drawn = np.random.default_rng(1).uniform(-1, 1, (40, env.spec.act_dim))
        return [env.step(action).reward for action in drawn]

    short = trace()
    monkeypatch.setattr(rewards, "tolerance", rewards.tolerance.__wrapped__)
    assert short == trace() and len(set(short)) > 2
