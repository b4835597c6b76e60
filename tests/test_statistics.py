"""Our statistics against scipy's and against cases that can be computed by hand."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from scipy.stats import rankdata

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


def test_the_interval_is_scipys_bootstrap_widened_for_few_seeds():
    """With one task there is nothing to stratify, so both resample alike. 1.173 = sqrt(12 / 11) 2.201 / 1.960."""
    scores = np.random.default_rng(3).normal(size=(12, 1))
    ours = statistics.interval(scores, statistics.mean, resamples=6000)
    theirs = stats.bootstrap((scores[:, 0],), np.mean, n_resamples=6000, method="percentile", rng=1)
    assert ours.value == pytest.approx(scores.mean())
    for end, resampled in zip(ours[1:], theirs.confidence_interval, strict=True):
        assert end - ours.value == pytest.approx(1.173 * (resampled - ours.value), abs=0.04)


def test_tasks_are_not_resampled():
    """Tasks of very different heights, seeds that agree: nothing is uncertain."""
    scores = np.array([[1.0, 1000.0]] * 5)
    assert statistics.interval(scores, statistics.mean) == (500.5, 500.5, 500.5)


@pytest.mark.parametrize("seeds", [2, 3, 4, 20])
def test_an_interval_covers_the_truth_as_often_as_it_says(seeds):
    generator, covered = np.random.default_rng(seeds), 0
    for number in range(300):
        low, high = statistics.interval(generator.normal(size=(seeds, 1)), statistics.mean, 300, seed=number)[1:]
        covered += low <= 0 <= high
    assert 0.91 < covered / 300 < 0.985


# Comparisons of two methods


@pytest.mark.parametrize(("seeds", "p"), [(1, 1), (2, 1 / 3), (3, 0.1), (4, 2 / 70), (5, 2 / 252)])
def test_separated_seeds_by_hand(seeds, p):
    """Of the (2n choose n) orders of both methods' seeds one separates them, and one the other way round."""
    found = statistics.compared(np.arange(seeds) + 100.0, np.arange(seeds, dtype=float))
    assert found.p == pytest.approx(p) and found.better.value == found.better.high == 1
    assert (found.better.low > 0.5) == (p < 0.05)
    turned = statistics.compared(np.arange(seeds, dtype=float), np.arange(seeds) + 100.0)
    assert turned.p == pytest.approx(p) and turned.better == pytest.approx((0, 0, 1 - found.better.low))


def test_the_lower_end_of_one_against_one_by_hand():
    """A pair that is won with chance q is won by chance as often as 2.5 % where q is 0.025."""
    assert statistics.compared(np.ones(1), np.zeros(1)).better.low == pytest.approx(0.025, abs=1e-5)


@pytest.mark.parametrize("sizes", [(4, 4), (3, 6), (7, 4), (9, 9)])
def test_p_is_mann_and_whitneys(sizes):
    generator = np.random.default_rng(sum(sizes))
    for _ in range(20):
        ours, theirs = (generator.normal(size=size) + shift for size, shift in zip(sizes, (0.8, 0), strict=True))
        exact = stats.mannwhitneyu(ours, theirs, method="exact")
        found = statistics.compared(ours, theirs)
        assert found.p == pytest.approx(exact.pvalue)
        assert found.better.value == pytest.approx(exact.statistic / ours.size / theirs.size)
        assert (found.better.low > 0.5 or found.better.high < 0.5) == (found.p < 0.05)


def test_with_ties_nothing_is_decided_that_dealing_the_seeds_anew_would_not():
    """Against the law of the pairs won over all ways to deal the seeds to both methods."""
    generator, decided = np.random.default_rng(2), 0
    for shift in [0, 1, 1, 2, 2, 2] * 20:
        scores = generator.integers(0, 4, 9) + np.repeat([shift, 0], [4, 5])
        p = statistics.compared(scores[:4], scores[4:]).p
        dealt = [np.array(mine) for mine in combinations(range(9), 4)]
        away = [abs(rankdata(scores)[mine].sum() - 20) for mine in dealt]  # 20: mean of the rank sums of four
        if p < 0.05:
            decided += 1
            assert np.mean(np.array(away) >= away[0]) < 0.05
    assert decided > 20
    same = statistics.compared(np.zeros(4), np.zeros(4))
    assert same.p == 1 and same.better.value == 0.5 and same.better.low < 0.2 < 0.8 < same.better.high


@pytest.mark.parametrize(("sizes", "shift"), [((3, 3), 1.0), ((4, 4), 0.0), ((4, 4), 2.0), ((3, 8), 1.0)])
def test_the_interval_of_a_few_seeds_covers_the_truth(sizes, shift):
    """Of normal seeds, which the interval does not know. The percentile bootstrap covered 60 to 80 % here."""
    generator, truth = np.random.default_rng(1), stats.norm.cdf(shift / np.sqrt(2))
    drawn = ((generator.normal(size=sizes[0]) + shift, generator.normal(size=sizes[1])) for _ in range(400))
    covered = [low <= truth <= high for _, low, high in (statistics.compared(*each).better for each in drawn)]
    assert np.mean(covered) > 0.94


def test_how_many_seeds_would_decide():
    assert statistics.deciding_seeds(1.0) == statistics.deciding_seeds(0.0) == 4
    # 5 v 5, 23 of 25 pairs: p is 0.032, 22 of 25: 0.056 (tables of Mann and Whitney)
    assert statistics.deciding_seeds(23 / 25) == 5 and statistics.deciding_seeds(22.9 / 25) == 6
    assert statistics.deciding_seeds(0.5) is None


def test_areas_by_hand():
    assert statistics.area_under_curve(np.array([0, 10, 30]), np.array([0.0, 10.0, 10.0])) == pytest.approx(
        250 / 30
    )
    assert statistics.area_under_curve(np.array([5]), np.array([7.0])) == 7.0
    with pytest.raises(ValueError, match="rise"):
        statistics.area_under_curve(np.array([0, 0]), np.array([1.0, 2.0]))
