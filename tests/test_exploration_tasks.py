"""Tasks, exact values, posteriors and tabular learners, against values by hand."""

import dataclasses

import numpy as np
import pytest

from fcritic.envs.exact import MAPPING_SEED, deep_sea, river_swim
from fcritic.errors import UsageError
from fcritic.exploration.known import (
    LEARNERS,
    Data,
    Episode,
    Learner,
    PosteriorSampling,
    Prior,
    RandomisedValues,
    best_values,
    explore,
    first_solved,
    optimal_return,
    play,
    policy_returns,
    reward_posterior,
    sample_models,
    strayed,
)
from studies.exploration.deepsea import standard_score
from studies.exploration.family import discounted_returns


def right_policy(task) -> np.ndarray:
    """Always right, as the probability of action 1."""
    return np.broadcast_to(task.right, (task.horizon, task.states)).astype(float)


def test_river_swim_has_the_known_values():
    task = river_swim(6)
    assert task.horizon == 20 and not task.ends
    assert optimal_return(task) == pytest.approx(3.397, abs=5e-4)
    left = policy_returns(task, task.P, task.reward, np.zeros((20, 6)))
    assert left == pytest.approx(20 * 0.005)
    np.testing.assert_allclose(task.P.sum(axis=-1), 1)
    assert [river_swim(n).horizon for n in (12, 20)] == [40, 67]


def test_backward_induction_by_hand():
    """Three states, two steps: right at the last state pays 1, and stays with probability 0.6."""
    task = river_swim(3, horizon=2)
    q = best_values(task, task.P, task.reward)
    np.testing.assert_allclose(q[1], [[0.005, 0], [0, 0], [0, 1]])
    np.testing.assert_allclose(q[0, 2], [0.0, 1 + 0.6])
    np.testing.assert_allclose(q[0, 1], [0.005, 0.05 * 0.005 + 0.35])
    np.testing.assert_allclose(q[0, 0], [0.01, 0.4 * 0.005])


def test_discounted_returns_by_hand():
    task = river_swim(6)
    left = discounted_returns(task.P, task.reward, np.zeros((1, 6)), 0.9)
    assert left[0, 0] == pytest.approx(0.005 / (1 - 0.9))


def test_deep_sea_is_the_standard_construction():
    size = 7
    task = deep_sea(size)
    assert task.ends and task.horizon == size
    np.testing.assert_array_equal(task.right, np.random.RandomState(MAPPING_SEED).binomial(1, 0.5, [size, size]))
    assert optimal_return(task) == pytest.approx(0.99)
    assert policy_returns(task, task.P, task.reward, right_policy(task)) == pytest.approx(0.99)
    assert policy_returns(task, task.P, task.reward, 1 - right_policy(task)) == 0
    rows, columns = np.indices((size, size))
    going = task.reward[rows, columns, task.right]
    np.testing.assert_allclose(going, np.where(columns == size - 1, 1, 0) - 0.01 / size)
    assert (task.reward[rows, columns, 1 - task.right] == 0).all() and (task.noise == 0).all()


def test_stochastic_deep_sea():
    size = 5
    task = deep_sea(size, stochastic=True)
    going = task.P[np.arange(size)[:, None], np.arange(size), task.right]
    np.testing.assert_allclose(going, np.broadcast_to([0, 1 / size, 1 - 1 / size], (size, size, 3)))
    noisy = np.zeros((size, size))
    noisy[-1, [0, -1]] = 1
    np.testing.assert_array_equal(task.noise, np.stack([noisy, noisy], axis=-1))
    right = policy_returns(task, task.P, task.reward, right_policy(task))
    assert right == pytest.approx((1 - 1 / size) ** (size - 1) - 0.01)
    assert optimal_return(task) > right  # which goes left where the treasure is out of reach


def test_bad_episodes_and_the_first_solved_one():
    task = deep_sea(5)
    random = np.random.default_rng(0)
    policies = np.stack([right_policy(task), 1 - right_policy(task)])
    episode = play(task, policies, random)
    np.testing.assert_array_equal(strayed(task, episode), [False, True])
    np.testing.assert_allclose(episode.rewards.sum(axis=1), [0.99, 0.0])
    np.testing.assert_array_equal(episode.states[0], np.arange(5))
    bad = np.ones((2, 30), bool)
    bad[0, [9, 10]] = False  # 2 good of 11: a share of 9/11 bad
    np.testing.assert_array_equal(first_solved(bad), [11, np.inf])
    assert standard_score(3, np.array([107.0, 108.0])) == 0.5


@dataclasses.dataclass(frozen=True)
class Fixed(Learner):
    """Goes right with this probability, whatever it has seen."""

    right: float

    def plan(self, data, random):
        going = right_policy(data.task)
        policy = self.right * going + (1 - self.right) * (1 - going)
        return np.broadcast_to(policy, (len(data.visits), *policy.shape))


def test_where_steps_may_fail_a_policy_is_judged_by_its_return():
    """A failed step right leaves the diagonal without a step left, so the standard count calls it good."""
    task = deep_sea(10, stochastic=True)
    assert task.slips and not deep_sea(10).slips
    lucky = ~strayed(task, play(task, Fixed(0.5).plan(Data(task, 20_000), None), np.random.default_rng(0)))
    chance = sum((0.5 * 0.9) ** step * 0.5 * 0.1 for step in range(10)) + (0.5 * 0.9) ** 10
    assert lucky.mean() == pytest.approx(chance, abs=0.01) and chance > 0.09
    assert explore(task, Fixed(0.5), 20, 3).bad.all()
    assert not explore(task, Fixed(1.0), 20, 3).bad.any()


def test_sizes_that_make_no_sense_are_refused():
    with pytest.raises(UsageError, match="at least 3"):
        river_swim(2)
    with pytest.raises(UsageError, match="at least 2"):
        deep_sea(1)


def one_pair(rewards: list[float]) -> Data:
    """Visits of state 1 and action 1 in a river of three states; the last two lead to state 2."""
    data = Data(river_swim(3, horizon=len(rewards)), 1)
    states = np.ones((1, len(rewards)), int)
    outcomes = np.array([[1] * (len(rewards) - 2) + [2, 2]])
    data.add(Episode(states, states, outcomes, np.array([rewards])))
    return data


def test_posterior_updates_by_hand():
    data = one_pair([1.0, 2.0, 3.0, 2.0])
    np.testing.assert_array_equal(data.transitions[0, 0, 1, 1], [0, 2, 2])
    found = reward_posterior(Prior(mean=1.0, weight=2.0, shape=3.0, rate=4.0), data)
    # n = 4, mean 2, scatter 2; (2 * 1 + 8) / 6; 3 + 2; 4 + (2 + 2 * 4 / 6) / 2
    pair = (0, 0, 1, 1)
    assert found.mean[pair] == pytest.approx(10 / 6)
    assert (found.weight[pair], found.shape[pair]) == (6, 5)
    assert found.rate[pair] == pytest.approx(4 + (2 + 8 / 6) / 2)
    untouched = (0, 0, 0, 0)
    assert [float(getattr(found, name)[untouched]) for name in ("mean", "weight", "shape", "rate")] == [1, 2, 3, 4]


def test_sampled_models_have_the_posteriors_moments():
    data, draws = one_pair([1.0, 2.0, 3.0, 2.0]), 20000
    many = Data(data.task, draws)
    for name in ("transitions", "reward_sum", "square_sum"):
        getattr(many, name)[:] = getattr(data, name)
    random = np.random.default_rng(0)
    P, reward = sample_models(Prior(), many, random)
    np.testing.assert_allclose(P[:, 0, 1, 1].mean(axis=0), [1 / 7, 3 / 7, 3 / 7], atol=0.01)
    assert P[:, 0, 1, 1, 1].var() == pytest.approx(3 / 7 * 4 / 7 / 8, rel=0.05)
    post = reward_posterior(Prior(), data)
    variance = post.rate / (post.weight * (post.shape - 1))  # of Student's t
    assert reward[:, 0, 1, 1].mean() == pytest.approx(float(post.mean[0, 0, 1, 1]), abs=0.02)
    assert reward[:, 0, 1, 1].var() == pytest.approx(float(variance[0, 0, 1, 1]), rel=0.1)
    known = sample_models(Prior(noise=2.0), many, random)[1][:, 0, 1, 1]
    assert known.mean() == pytest.approx(8 / 5, abs=0.05) and known.var() == pytest.approx(4 / 5, rel=0.05)


def test_randomised_values_are_bayesian_regression():
    """The last step's values have the mean and variance of a linear regression with indicator features."""
    data = one_pair([1.0, 2.0, 3.0, 2.0])
    many = Data(data.task, 20000)
    for name in ("transitions", "reward_sum"):
        getattr(many, name)[:] = getattr(data, name)
    learner = RandomisedValues(sigma=0.5, weight=2.0)
    q = learner.values(many, np.random.default_rng(1))
    X, y = np.ones((4, 1)), np.array([1.0, 2, 3, 2])
    precision = X.T @ X / 0.25 + 2.0 / 0.25 * np.eye(1)
    mean = np.linalg.solve(precision, X.T @ y / 0.25)[0]
    assert q[:, -1, 1, 1].mean() == pytest.approx(mean, abs=0.01)
    assert q[:, -1, 1, 1].var() == pytest.approx(1 / precision[0, 0], rel=0.05)
    assert q[:, -1, 0, 0].var() == pytest.approx(0.25 / 2, rel=0.05)  # never visited
    # one step earlier the targets carry the drawn values of the next states, two of four visits lead to each
    following = q[:, -1].max(axis=-1)
    target = (8 + 2 * following[:, 1] + 2 * following[:, 2]) / 6
    assert (q[:, -2, 1, 1] - target).var() == pytest.approx(0.25 / 6, rel=0.05)


def test_posterior_sampling_explores_and_greedy_does_not():
    task = river_swim(4)
    regret = {name: explore(task, LEARNERS[name], 150, 5).regret for name in ("psrl", "rlsvi", "greedy")}
    late = {name: each[:, -50:].mean() / optimal_return(task) for name, each in regret.items()}
    assert late["psrl"] < 0.2 and late["rlsvi"] < 0.2 and late["greedy"] > 0.9


def test_posterior_sampling_solves_a_small_sea():
    history = explore(deep_sea(5), PosteriorSampling(), 200, 5, stop_when_solved=True)
    assert np.isfinite(first_solved(history.bad)).all()
    assert history.bad.shape[1] < 200
