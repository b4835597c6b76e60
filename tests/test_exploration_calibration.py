"""Curves and surfaces of returns over a family of policies: those of ensembles beside the exact posterior's."""

import numpy as np
import pytest

from fcritic.envs.exact import river_swim
from fcritic.exploration.known import Prior
from studies.exploration.family import (
    GAMMA,
    GRID,
    PLANE,
    collect,
    correlations,
    discounted_returns,
    ensemble_curves,
    measures,
    policies_at,
    posterior_curves,
    true_curve,
    wasserstein,
)
from studies.exploration.methods import Method


def test_distances_of_curves():
    exact = np.random.default_rng(0).normal(size=(1000, 3)) + np.arange(3.0)
    grid = np.array([0.0, 0.5, 1.0])
    same = measures(exact, exact, grid)
    assert same["std_ratio"] == pytest.approx(1) and same["wasserstein"] == same["argmax_distance"] == 0
    np.testing.assert_allclose(wasserstein(exact + 2.0, exact), 2.0)
    np.testing.assert_allclose(
        correlations(np.array([[0, 0, 1.0], [1, -1, 1.0]])), [[1, -1, 0], [-1, 1, 0], [0] * 3]
    )
    assert measures(exact + np.array([0, 0, 5.0]), exact, grid)["argmax_distance"] > 0.05


def test_curves_of_an_ensemble_and_of_the_posterior():
    task, random = river_swim(3), np.random.default_rng(0)
    data, record = collect(task, 100, random)
    exact = posterior_curves(task, data, Prior(), 200, random)
    assert exact.shape == (200, len(GRID)) and true_curve(task).shape == GRID.shape
    functional = ensemble_curves(task, record, Method("functional", "none"), 1.0, 6, seed=0)
    refitted = ensemble_curves(task, record, Method("actors", "none"), 1.0, 6, seed=0, refit=True)
    greedy = ensemble_curves(task, record, Method("independent", "none"), 1.0, 6, seed=0)
    P, reward = data.empirical()
    empirical = discounted_returns(P[:, 0], reward[:, 0], np.repeat(GRID[:, None], 3, axis=1), GAMMA)[0]
    np.testing.assert_allclose(refitted, np.broadcast_to(empirical, refitted.shape), atol=1e-3)
    assert np.abs(functional.mean(axis=0) - empirical).max() < 0.2  # between its six policies it interpolates
    bend = np.abs(np.diff(greedy, n=2, axis=1)).max()
    assert bend < 1e-4  # a standard critic's curve is a line


def test_surfaces_over_policies_with_two_parameters():
    task, random = river_swim(4), np.random.default_rng(0)
    policies = policies_at(task, PLANE)
    assert policies.shape == (81, 4) and len(np.unique(policies, axis=0)) == 81
    np.testing.assert_array_equal(policies[:, [1, 2]], PLANE)  # the left and the right half
    data, record = collect(task, 100, random)
    P, reward = data.empirical()
    empirical = discounted_returns(P[:, 0], reward[:, 0], policies, GAMMA)[0]
    refitted = ensemble_curves(task, record, Method("actors", "none"), 1.0, 3, 0, refit=True, points=PLANE)
    np.testing.assert_allclose(refitted, np.broadcast_to(empirical, refitted.shape), atol=1e-3)
    assert posterior_curves(task, data, Prior(), 5, random, PLANE).shape == (5, 81)
