import numpy as np
import pytest

from fcritic import envs
from fcritic.envs.toy import PROBES, ProbeEnv
from fcritic.errors import UsageError

DISCOUNT = 0.9


def policies():
    return [lambda obs: np.array([0.3 - 0.6 * obs[0]]), lambda obs: np.array([-0.8 + 0.5 * obs[0]])]


def discounted_return(env, obs, act, policy, horizon=300):
    """Sum along a real rollout; a time limit goes on in the next episode, which is the same task there."""
    total, weight = 0.0, 1.0
    for _ in range(horizon):
        step = env.step(act)
        total += weight * step.reward
        weight *= DISCOUNT * step.discount
        if weight == 0:
            break
        obs = env.reset() if step.last else step.obs
        act = policy(obs)
    return total


@pytest.mark.parametrize("name", PROBES)
def test_action_values_equal_rollouts(name):
    env = ProbeEnv(name, seed=0)
    rng = np.random.default_rng(0)
    for policy in policies():
        for start in range(env.probe.steps):
            for _ in range(4):
                obs = env.reset()
                for _ in range(start):
                    obs = env.step(policy(obs)).obs
                act = rng.uniform(-1, 1, 1)
                claimed = env.action_value(policy, obs, act, DISCOUNT)
                assert claimed == pytest.approx(discounted_return(env, obs, act, policy), abs=1e-6)
                if env._step < env.probe.steps:
                    env.reset()


@pytest.mark.parametrize("name", PROBES)
def test_best_policy_is_not_beaten(name):
    env = ProbeEnv(name, seed=0)
    for _ in range(6):
        obs = env.reset()
        best = env.action_value(env.best_policy, obs, env.best_policy(obs), DISCOUNT)
        for policy in policies():
            for act in np.linspace(-1, 1, 9):
                assert env.action_value(policy, obs, np.array([act]), DISCOUNT) <= best + 1e-6


def test_values_as_documented():
    policy = policies()[0]

    def value(name, obs, act=0.0):
        return ProbeEnv(name, seed=0).action_value(policy, np.array([obs]), np.array([act]), DISCOUNT)

    assert value("constant", 0.0) == 1
    assert (value("observation", 1.0), value("observation", -1.0)) == (1, -1)
    assert (value("delay", 0.0), value("delay", 1.0)) == (pytest.approx(DISCOUNT), 1)
    assert (value("action", 0.0, 0.5), value("action", 0.0, -0.5)) == (1, 0)
    assert (value("both", 1.0, 0.5), value("both", -1.0, 0.5)) == (1, 0)
    assert value("limit", 0.0) == pytest.approx(1 / (1 - DISCOUNT))
    for step in range(5):
        assert value("terminate", step / 5) == pytest.approx((1 - DISCOUNT ** (5 - step)) / (1 - DISCOUNT))
    assert value("policy", 0.0, act=1.0) == pytest.approx(DISCOUNT * policy(np.array([1.0]))[0])
    assert value("policy", 1.0, act=0.4) == pytest.approx(0.4)


def test_limit_and_termination_differ_only_in_the_discount():
    for name, discount in [("limit", 1.0), ("terminate", 0.0)]:
        env = ProbeEnv(name, seed=0)
        env.reset()
        steps = [env.step(np.zeros(1)) for _ in range(5)]
        assert [step.last for step in steps] == [False] * 4 + [True]
        assert [step.discount for step in steps] == [1.0] * 4 + [discount]
        with pytest.raises(RuntimeError, match="call reset"):
            env.step(np.zeros(1))


@pytest.mark.parametrize("name", ["observation", "both"])
def test_signs_are_drawn_evenly_and_by_seed(name):
    def signs(seed):
        env = ProbeEnv(name, seed=seed)
        return [float(env.reset()[0]) for _ in range(400)]

    assert set(signs(0)) == {-1.0, 1.0} and abs(np.mean(signs(0))) < 0.2
    assert signs(0) == signs(0) != signs(1)


@pytest.mark.parametrize("name", PROBES)
def test_restore_is_exact(name):
    env, other = ProbeEnv(name, seed=0), ProbeEnv(name, seed=1)
    rng = np.random.default_rng(0)
    env.reset()
    over = False
    for _ in range(30):
        other.restore(env.state())
        if over:
            np.testing.assert_array_equal(env.reset(), other.reset())
        act = rng.uniform(-1, 1, 1)
        step, expected = other.step(act), env.step(act)
        np.testing.assert_array_equal(step.obs, expected.obs)
        assert step[1:] == expected[1:]
        over = step.last


def test_made_by_name():
    assert envs.make("probe-delay", seed=0).name == "probe-delay"
    assert envs.probe_tasks()[0] == "probe-constant" and len(envs.probe_tasks()) == 8
    with pytest.raises(UsageError, match="did you mean probe-delay"):
        envs.make("probe-delya", seed=0)
    with pytest.raises(UsageError, match="did you mean probe-delay"):
        ProbeEnv("delya", seed=0)
    with pytest.raises(UsageError, match="action_repeat"):
        envs.make("probe-delay", seed=0, action_repeat=2)
