"""RiverSwim, DeepSea and the trap as environments, against their exact models."""

import itertools

import numpy as np
import pytest

from fcritic import envs
from fcritic.envs.toy import FiniteEnv, TrapEnv
from fcritic.errors import UsageError
from fcritic.exploration.known import optimal_return, policy_returns


def episode(env, policy) -> tuple[float, list]:
    """Return and steps of an episode under a policy from observations to actions."""
    obs, steps = env.reset(), []
    while not steps or not steps[-1].last:
        steps.append(env.step(np.array([policy(obs)])))
        obs = steps[-1].obs
    return sum(step.reward for step in steps), steps


def rightwards(env):
    """Always right, as a policy of observations; 1 takes action 1, -1 the other."""
    right = 2.0 * env.model.right.ravel() - 1
    return lambda obs: right[obs.argmax()]


def exact(env, probability) -> float:
    """The expected return of taking action 1 with these probabilities (layers, states)."""
    model = env.model
    over_time = np.broadcast_to(probability, (model.layers, model.states))[np.arange(model.horizon) % model.layers]
    return float(policy_returns(model, model.P, model.reward, over_time))


def test_left_and_right_in_the_river_have_their_exact_values():
    env = FiniteEnv("riverswim-6", seed=0)
    left, steps = episode(env, lambda obs: -1.0)
    assert left == pytest.approx(0.1) and len(steps) == 20
    assert all(step.discount == 1 for step in steps)  # time is up, the river goes on
    returns = [episode(env, lambda obs: 1.0)[0] for _ in range(500)]
    error = np.std(returns) / np.sqrt(len(returns))
    assert np.mean(returns) == pytest.approx(exact(env, env.model.right), abs=4 * error)
    assert exact(env, env.model.right) == pytest.approx(optimal_return(env.model), abs=0.05)


def test_an_action_between_is_a_probability():
    env = FiniteEnv("riverswim-6", seed=1)
    returns = [episode(env, lambda obs: 0.6)[0] for _ in range(500)]
    error = np.std(returns) / np.sqrt(len(returns))
    assert np.mean(returns) == pytest.approx(exact(env, np.full((1, 6), 0.8)), abs=4 * error)
    assert exact(env, np.full((1, 6), 0.8)) < exact(env, env.model.right) - 10 * error


@pytest.mark.parametrize("size", [4, 10])
def test_only_right_in_every_row_finds_the_treasure(size):
    env = FiniteEnv(f"deepsea-{size}", seed=0)
    assert env.spec.obs_dim == size * size
    found, steps = episode(env, rightwards(env))
    assert found == pytest.approx(optimal_return(env.model)) == pytest.approx(0.99)
    assert [step.last for step in steps] == [False] * (size - 1) + [True]
    assert [step.discount for step in steps] == [1.0] * (size - 1) + [0.0]  # the bottom is the end of the task
    assert [step.obs.sum() for step in steps] == [1.0] * (size - 1) + [0.0]
    stray = lambda obs: -rightwards(env)(obs) if obs[:size].any() else rightwards(env)(obs)
    assert episode(env, stray)[0] < 0
    if size == 10:  # in a small sea one action may happen to be right all along
        assert max(episode(env, lambda obs, sign=sign: sign)[0] for sign in (-1.0, 1.0)) < 0


def test_the_stochastic_sea_has_its_exact_value():
    env = FiniteEnv("deepsea-5-stochastic", seed=3)
    returns = [episode(env, rightwards(env))[0] for _ in range(1500)]
    error = np.std(returns) / np.sqrt(len(returns))
    assert np.mean(returns) == pytest.approx(exact(env, env.model.right), abs=4 * error)
    assert error < 0.1 < np.std(returns)


@pytest.mark.parametrize("name", ["riverswim-6", "deepsea-4-stochastic", "trap"])
def test_restore_is_exact(name):
    env, other = envs.make(name, seed=0), envs.make(name, seed=1)
    rng = np.random.default_rng(0)
    env.reset()
    over = False
    for _ in range(120):
        other.restore(env.state())
        if over:
            np.testing.assert_array_equal(env.reset(), other.reset())
        act = rng.uniform(-0.2, 1, 1)
        step, expected = other.step(act), env.step(act)
        np.testing.assert_array_equal(step.obs, expected.obs)
        assert step[1:] == expected[1:]
        over = step.last


def test_the_trap_ends_below_zero_and_times_out_above():
    env = TrapEnv(seed=0)
    found, steps = episode(env, lambda obs: -0.001)
    assert (found, len(steps), steps[0].discount) == (1.0, 1, 0.0)
    missed, steps = episode(env, lambda obs: 0.5)
    assert (missed, len(steps), steps[-1].discount) == (0.0, 50, 1.0)
    assert steps[0].obs[0] == pytest.approx(-0.9) and steps[-1].obs[0] == 1.0  # 2 s - 1, at last at the wall
    actions = itertools.chain([1.0] * 3, itertools.repeat(-1.0))
    found, steps = episode(env, lambda obs: next(actions))
    assert found == 1.0 and len(steps) in (6, 7)  # three steps there, three or four back, by rounding
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.zeros(1))


def test_seeds_differ_and_repeat():
    play = lambda seed: [episode(env, lambda obs: 0.5)[0] for env in [FiniteEnv("riverswim-6", seed=seed)] * 20]
    assert play(0) == play(0) != play(1)


def test_names_and_what_is_refused():
    assert envs.make("deepsea-7", seed=0).spec.obs_dim == 49
    assert envs.task_spec("riverswim-12").obs_dim == 12
    with pytest.raises(UsageError, match="did you mean trap"):
        envs.make("trapp", seed=0)
    with pytest.raises(UsageError, match="did you mean deepsea-10"):
        envs.make("depsea-10", seed=0)
    with pytest.raises(UsageError, match="larger than deepsea-100"):
        envs.make("deepsea-101", seed=0)
    with pytest.raises(UsageError, match="at least 3 states"):
        envs.make("riverswim-2", seed=0)
    with pytest.raises(UsageError, match="action_repeat"):
        envs.make("trap", seed=0, action_repeat=2)
    for name, forged in (("deepsea-4", [0, 0, 2, 99]), ("riverswim-6", [0, 0, -1, 0])):
        with pytest.raises(ValueError, match="has no step"):
            envs.make(name, seed=0).restore({"place": np.array(forged)})
