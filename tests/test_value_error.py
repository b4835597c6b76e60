"""The error of critics over an episode: what follows each step, which steps count, and a critic that is known."""

import numpy as np

from fcritic.training.value_error import returns_to_go, seen_to_the_end


def test_returns_to_go_are_discounted_sums():
    found = returns_to_go(np.array([[1.0, 0.0], [2.0, 0.0], [4.0, 8.0]]), 0.5)
    np.testing.assert_array_equal(found, [[3.0, 2.0], [4.0, 4.0], [4.0, 8.0]])


def test_all_of_an_episode_that_ended_counts_and_half_of_one_whose_time_was_over():
    counted = seen_to_the_end(np.array([3.0, 3.0]), np.array([True, False]), 4)
    np.testing.assert_array_equal(counted.T, [[True, True, True, False], [True, True, False, False]])
