"""The trust metrics against hand values, brute force and finite differences."""

import jax
import numpy as np
import pytest
import scipy.linalg

from fcritic.theory.control import LogLinear, TabularSoftmax
from fcritic.theory.features import Fixed, Successor
from fcritic.theory.mdp import FiniteMDP, float64
from fcritic.theory.trust import covariance, coverage, drift, gradient_parts, invert

STATES, ACTIONS, D = 7, 3, 4
compiled_drift = float64(jax.jit(drift))
compiled_parts = float64(jax.jit(gradient_parts))


class Problem:
    """A linear MDP with its successor features, made by hand so that these tests stand alone."""

    def __init__(self, seed: int, gamma: float = 0.8):
        rng = np.random.default_rng(seed)
        x = rng.dirichlet(np.ones(D), (STATES, ACTIONS))
        following = rng.dirichlet(np.ones(STATES), D)
        w = rng.uniform(size=D)
        start = rng.dirichlet(np.ones(STATES))
        self.mdp = FiniteMDP(x @ following, x @ w, gamma, start)
        self.features = Successor(x, following, w, gamma)

    def measure(self, pi):
        return self.mdp.pairs(self.mdp.stationary(pi), pi)


@pytest.fixture(params=[0, 1])
def problem(request) -> Problem:
    return Problem(request.param)


def random_policy(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(ACTIONS), STATES)


def test_coverage_of_a_policy_by_itself_is_the_rank(problem: Problem):
    pi = random_policy(1)
    measure = problem.measure(pi)
    assert coverage(problem.features(pi), measure, measure) == pytest.approx(D, abs=1e-8)
    tabular = np.eye(STATES * ACTIONS).reshape(STATES, ACTIONS, -1)
    assert coverage(tabular, measure, measure) == pytest.approx(STATES * ACTIONS)


def test_coverage_is_the_limit_of_its_ridge_definition(problem: Problem):
    target, behaviour = random_policy(1), random_policy(2)
    phi = problem.features(target)
    found = coverage(phi, problem.measure(target), problem.measure(behaviour))
    ridge = covariance(phi, problem.measure(behaviour)) + 1e-9 * np.eye(D)
    lengths = np.einsum("sai,ij,saj->sa", phi, np.linalg.inv(ridge), phi)
    assert found == pytest.approx(np.sum(problem.measure(target) * lengths), rel=1e-4)


def test_coverage_agrees_with_monte_carlo():
    problem, count = Problem(3), 200_000
    target, behaviour = random_policy(1), random_policy(2)
    phi = problem.features(target)
    rng = np.random.default_rng(0)
    pairs = [rng.choice(STATES * ACTIONS, count, p=problem.measure(pi).ravel()) for pi in (target, behaviour)]
    visited, collected = (phi.reshape(-1, D)[index] for index in pairs)
    inverse = np.linalg.inv(collected.T @ collected / count)
    estimate = np.einsum("ni,ij,nj->n", visited, inverse, visited).mean()
    assert coverage(phi, problem.measure(target), problem.measure(behaviour)) == pytest.approx(estimate, rel=0.02)


def test_coverage_by_hand():
    """Two pairs with one-hot features: C is the sum of target over behaviour probabilities."""
    phi = np.eye(2).reshape(2, 1, 2)
    target, behaviour = np.array([[0.25], [0.75]]), np.array([[0.5], [0.5]])
    assert coverage(phi, target, behaviour) == pytest.approx(0.25 / 0.5 + 0.75 / 0.5)


def test_coverage_is_infinite_only_where_a_visited_feature_leaves_the_range():
    phi = np.eye(2).reshape(2, 1, 2)
    first, second = np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]])
    assert coverage(phi, first, second) == np.inf
    assert coverage(phi, first, first) == pytest.approx(1.0)  # the missing direction is not visited
    shared = np.ones((2, 1, 1))
    assert coverage(shared, first, second) == pytest.approx(1.0)


def test_the_rank_tolerance_decides_what_is_covered():
    phi = np.eye(2).reshape(2, 1, 2)
    target, rare = np.array([[0.5], [0.5]]), np.array([[1 - 1e-6], [1e-6]])
    assert coverage(phi, target, rare) == pytest.approx(0.5 / (1 - 1e-6) + 0.5e6)
    assert coverage(phi, target, rare, tolerance=1e-5) == np.inf


def test_the_norm_scales_with_the_vector_and_zero_is_in_every_range():
    anchor = invert(np.diag([4.0, 0.0]))
    assert anchor.rank == 1
    np.testing.assert_allclose(anchor.norm(np.array([[2.0, 0.0], [0.0, 0.0], [2e-9, 0.0]])), [1.0, 0.0, 1e-9])
    assert np.isinf(anchor.norm(np.array([[0.0, 1.0], [0.0, 1e-7], [2.0, 1e-3]]))).all()


def test_gradient_parts_give_the_exact_gradient(problem: Problem):
    policy = TabularSoftmax(STATES, ACTIONS)
    theta = np.random.default_rng(5).normal(size=STATES * ACTIONS)
    first, second = compiled_parts(policy, problem.features, problem.mdp.start, theta)
    exact = problem.mdp.gradient(theta, policy)
    np.testing.assert_allclose((first + second).T @ problem.features.weights, exact, atol=1e-12)
    step = 1e-6
    for index in (0, 10, 20):
        moved = np.eye(len(theta))[index] * step
        ends = [float(problem.mdp.objective(policy(theta + sign * moved))) for sign in (1, -1)]
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(exact[index], abs=1e-8)


def errors_of_norm_one(matrix: np.ndarray, count: int) -> np.ndarray:
    draws = np.random.default_rng(8).normal(size=(count, D))
    return draws / np.sqrt(np.einsum("ni,ij,nj->n", draws, matrix, draws))[:, None]


def coefficients(problem: Problem, policy, theta, reference):
    matrix = covariance(problem.features(reference), problem.measure(reference))
    return matrix, compiled_drift(policy, problem.features, problem.mdp.start, theta, invert(matrix))


def test_coefficients_bound_every_weight_error_and_the_exact_ones_are_reached(problem: Problem):
    policy = TabularSoftmax(STATES, ACTIONS)
    theta = np.random.default_rng(6).normal(size=STATES * ACTIONS)
    matrix, found = coefficients(problem, policy, theta, random_policy(4))
    parts = compiled_parts(policy, problem.features, problem.mdp.start, theta)
    errors = errors_of_norm_one(matrix, 20_000)
    for part, exact, bound in zip(
        (*parts, parts[0] + parts[1]),
        (found.first_exact, found.second_exact, found.exact),
        (found.first, found.second, found.first + found.second),
        strict=True,
    ):
        largest = np.abs(errors @ part).max()
        assert largest <= exact + 1e-12
        assert exact <= bound + 1e-12
        assert largest > 0.97 * exact  # random search comes close to the supremum
    total = parts[0] + parts[1]
    assert found.exact <= found.first + found.second <= 2 * found.delta() + 1e-12
    largest = scipy.linalg.eigh(total @ total.T, matrix, eigvals_only=True)[-1]
    assert found.euclidean == pytest.approx(np.sqrt(largest))
    assert np.linalg.norm(errors @ total, axis=1).max() <= found.euclidean + 1e-12


@pytest.mark.parametrize("length", [1.0, 2.0])
def test_coefficients_by_hand(length: float):
    """One state, two actions, features (1, 0) and (0, length) for every policy, A = I.

    Where both features have one length the printed C_1 vanishes, while the error of the gradient does not.
    """
    phi = Fixed(np.array([[[1.0, 0.0], [0.0, length]]]))
    found = compiled_drift(TabularSoftmax(1, 2), phi, np.ones(1), np.zeros(2), invert(np.eye(2)))
    # grad pi = (+-1/4, -+1/4) for either parameter
    assert found.first == pytest.approx(0.25 + 0.25 * length)
    assert found.first_printed == pytest.approx(abs(0.25 - 0.25 * length))
    assert found.first_exact == pytest.approx(0.25 * np.hypot(1, length))
    assert found.second == found.second_exact == 0.0
    assert found.delta("printed") == found.first_printed < found.delta("exact") < found.delta()


def test_the_second_coefficient_by_finite_differences(problem: Problem):
    policy = LogLinear(problem.features.x)
    theta = np.random.default_rng(9).normal(size=D)
    reference = random_policy(4)
    matrix, found = coefficients(problem, policy, theta, reference)
    step = 1e-6
    slopes = [
        (problem.features(policy(theta + step * unit)) - problem.features(policy(theta - step * unit))) / (2 * step)
        for unit in np.eye(D)
    ]
    lengths = [np.sqrt(np.einsum("sai,ij,saj->sa", slope, np.linalg.inv(matrix), slope)) for slope in slopes]
    expected = np.einsum("s,sa,sa->", problem.mdp.start, policy(theta), np.max(lengths, axis=0))
    assert found.second == pytest.approx(expected, rel=1e-6)


def test_delta_is_infinite_outside_the_range_of_the_anchor(problem: Problem):
    policy = TabularSoftmax(STATES, ACTIONS)
    found = drift(
        policy, problem.features, problem.mdp.start, np.zeros(STATES * ACTIONS), invert(np.diag([1.0, 1, 1, 0]))
    )
    assert found.delta() == found.delta("exact") == found.euclidean == np.inf
