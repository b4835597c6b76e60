"""Policy gradients on a small linear MDP: against finite differences, exact ones, and the optimum."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_control import ACTIONS, STATES, THETA, problem

from fcritic.theory.control import Control, emphasis, policy_gradient, printed_emphasis
from fcritic.theory.mdp import float64
from fcritic.theory.problems import random_policy

__all__ = ["problem"]


def test_emphasis_makes_the_first_term_exact(problem: Control):
    """With m' = d_mu' (I - gamma P_pi)^-1 eq. (3) is the gradient of J with rho = d_mu; as printed it is not."""
    theta = np.random.default_rng(2).normal(size=THETA.size)
    behaviour = random_policy(problem.mdp, 5)
    weights = problem.features.weights
    shifted = dataclasses.replace(problem, rho=problem.mdp.stationary(behaviour))
    exact = problem.mdp.gradient(theta, problem.policy, shifted.rho)
    for kind in ("emphatic", "both", "exact", "on-policy"):
        np.testing.assert_allclose(policy_gradient(kind, shifted, theta, weights, behaviour), exact, atol=1e-10)
    for kind in ("first", "emphatic-printed"):
        found = policy_gradient(kind, shifted, theta, weights, behaviour)
        assert np.linalg.norm(found - exact) > 0.01 * np.linalg.norm(exact)
    pi = problem.policy(theta)
    visits = sum(0.8**t * shifted.rho @ np.linalg.matrix_power(problem.mdp.chain(pi), t) for t in range(200))
    np.testing.assert_allclose(emphasis(problem.mdp, pi, shifted.rho), visits, atol=1e-9)
    assert printed_emphasis(problem.mdp, pi, shifted.rho).sum() != pytest.approx(visits.sum(), rel=0.01)


def test_the_optimum_is_above_every_policy(problem: Control):
    values = [problem.mdp.objective(random_policy(problem.mdp, seed, 0.1), problem.rho) for seed in range(50)]
    assert problem.optimum >= max(values)
    best = max(
        float(
            problem.mdp.objective(np.eye(ACTIONS)[list(np.unravel_index(index, (ACTIONS,) * STATES))], problem.rho)
        )
        for index in range(ACTIONS**STATES)
    )
    assert problem.optimum == pytest.approx(best)


def test_gradients_by_finite_differences(problem: Control):
    """The functional gradient is that of the estimated J: both terms, whatever the weights."""
    theta, weights = np.random.default_rng(4).normal(size=THETA.size), np.array([1.0, -2.0, 0.5])

    @float64
    def estimate(at):
        pi = problem.policy(at)
        return jnp.einsum("s,sa,sad,d->", problem.rho, pi, problem.features(pi), weights)

    slope = policy_gradient("both", problem, theta, weights, None)
    for index in (0, 3, 9):
        step = 1e-6 * np.eye(theta.size)[index]
        assert (estimate(theta + step) - estimate(theta - step)) / 2e-6 == pytest.approx(slope[index], abs=1e-7)
    assert jax.config.jax_enable_x64 is False
