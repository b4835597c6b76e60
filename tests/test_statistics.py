"""Our statistics against scipy's and against cases that can be computed by hand."""

import numpy as np
import pytest
from scipy import stats

from fcritic.results import statistics


@pytest.mark.parametrize("shape", [(4, 1), (10, 3), (7, 2), (1, 1), (3, 1)])
def test_the_interquartile_mean_is_scipys_trimmed_mean(shape):
    scores = np.random.default_rng(sum(shape)).normal(size=shape)
    assert statistics.interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25, axis=None))


def test_a_failed_seed_hardly_moves_it():
    good = np.array([[700.0], [710.0], [720.0], [730.0]])
    failed = good.copy()
    failed[0] = 0.0
    assert statistics.interquartile_mean(good) == statistics.interquartile_mean(failed) == 715.0
    assert statistics.mean(failed) == 540.0


def test_the_interval_is_scipys_bootstrap():
    """With one task there is nothing to stratify, so both resample alike."""
    scores = np.random.default_rng(3).normal(size=(12, 1))
    ours = statistics.interval(scores, statistics.mean, resamples=6000)
    theirs = stats.bootstrap((scores[:, 0],), np.mean, n_resamples=6000, method="percentile", rng=1)
    assert ours.value == pytest.approx(scores.mean())
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.03)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.03)


def test_tasks_are_not_resampled():
    """Tasks of very different heights, seeds that agree: nothing is uncertain."""
    scores = np.array([[1.0, 1000.0]] * 5)
    assert statistics.interval(scores, statistics.mean) == (500.5, 500.5, 500.5)


def test_an_interval_covers_the_truth_as_often_as_it_says():
    generator, covered = np.random.default_rng(0), 0
    for number in range(300):
        low, high = statistics.interval(generator.normal(size=(20, 1)), statistics.mean, 300, seed=number)[1:]
        covered += low <= 0 <= high
    assert 0.88 < covered / 300 < 0.97  # a percentile bootstrap of 20 is a little too short


def test_probability_of_improvement_is_mann_whitneys():
    generator = np.random.default_rng(2)
    ours, theirs = generator.integers(0, 6, (9, 1)).astype(float), generator.integers(0, 6, (5, 1)).astype(float)
    u = stats.mannwhitneyu(ours[:, 0], theirs[:, 0]).statistic
    assert statistics.probability_of_improvement(ours, theirs) == pytest.approx(u / 45)
    assert statistics.probability_of_improvement(ours, ours) == 0.5
    far = statistics.improvement_interval(ours + 100, theirs, 200)
    assert far == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="tasks differ"):
        statistics.probability_of_improvement(ours, np.ones((3, 2)))


def test_profiles_and_areas_by_hand():
    profile = statistics.performance_profile(
        np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([-1.0, 0.0, 1.5, 3.0])
    )
    np.testing.assert_array_equal(profile, [1.0, 0.75, 0.5, 0.0])
    assert statistics.area_under_curve(np.array([0, 10, 30]), np.array([0.0, 10.0, 10.0])) == pytest.approx(
        250 / 30
    )
    assert statistics.area_under_curve(np.array([5]), np.array([7.0])) == 7.0
    with pytest.raises(ValueError, match="rise"):
        statistics.area_under_curve(np.array([0, 0]), np.array([1.0, 2.0]))
