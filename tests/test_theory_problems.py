"""Generators and features: what each problem is known for, checked by computation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic.errors import UsageError
from fcritic.theory import problems
from fcritic.theory.evaluation import task_of, value_errors
from fcritic.theory.features import FirstOrder, Fixed, Tangent, tabular
from fcritic.theory.trust import covariance, coverage
from studies.theory.rivals import lstd


@pytest.fixture(scope="module")
def linear():
    return problems.linear_mdp(3)


def test_one_weight_vector_serves_all_policies(linear):
    mdp, features = linear
    for seed in range(5):
        pi = problems.random_policy(mdp, seed, spread=0.3)
        np.testing.assert_allclose(features(pi) @ features.weights, mdp.q(pi), rtol=1e-12)
    assert np.linalg.norm(features(pi), axis=-1).max() <= 1
    assert mdp.r.min() >= 0
    assert mdp.r.max() <= 1


def test_successor_features_are_the_discounted_sum_of_x(linear):
    mdp, features = linear
    pi = problems.random_policy(mdp, 0)
    plain = features.x.reshape(-1, 6)
    total = np.linalg.solve(np.eye(80) - mdp.gamma * mdp.pair_chain(pi), plain)
    np.testing.assert_allclose(features(pi).reshape(-1, 6), (1 - mdp.gamma) * total, rtol=1e-10)


def test_the_span_is_closed_under_the_truncated_bellman_operator(linear):
    mdp, features = linear
    pi = problems.random_policy(mdp, 0)
    phi = features.whitened(mdp, pi)(pi).reshape(-1, 6)
    xi = np.random.default_rng(0).normal(size=6) * 20
    cut = np.clip(phi @ xi, 0, mdp.value_range).reshape(mdp.r.shape)
    assert (cut == 0).any()  # the cut bites
    backup = mdp.backup(pi, cut).ravel()
    fit = phi @ np.linalg.lstsq(phi, backup, rcond=None)[0]
    np.testing.assert_allclose(fit, backup, atol=1e-10)


def test_whitening_changes_coordinates_and_nothing_else(linear):
    mdp, features = linear
    pi, other = problems.random_policy(mdp, 0), problems.random_policy(mdp, 1)
    white = features.whitened(mdp, pi)
    pairs = mdp.pairs(mdp.stationary(pi), pi)
    round_ = covariance(white(pi), pairs)
    np.testing.assert_allclose(round_, np.eye(6) * round_[0, 0], atol=1e-8 * round_[0, 0])
    assert np.linalg.norm(white(pi), axis=-1).max() == pytest.approx(1)
    np.testing.assert_allclose(white(other) @ white.weights, mdp.q(other), rtol=1e-9)
    behaviour = mdp.pairs(mdp.stationary(other), other)
    assert coverage(white(pi), pairs, behaviour) == pytest.approx(
        coverage(features(pi), pairs, behaviour), rel=1e-6
    )


def test_the_knob_sets_the_approximation_error(linear):
    mdp, features = linear
    pi = problems.random_policy(mdp, 0)
    for size in (0.0, 0.1, 1.0):
        error = problems.perturb(mdp, features, size)(pi) @ features.weights - mdp.q(pi)
        assert np.sqrt(np.mean(error**2)) == pytest.approx(size, abs=1e-10)


def test_first_order_features_err_by_the_square_of_the_shift(linear):
    mdp, features = linear
    pi, other = problems.random_policy(mdp, 0), problems.random_policy(mdp, 1)
    first = FirstOrder(features, pi)
    np.testing.assert_allclose(first(pi), features(pi), rtol=1e-12)
    error = [np.abs(first(at) - features(at)).max() for at in (pi + 0.1 * (other - pi), pi + 0.05 * (other - pi))]
    assert error[0] / error[1] == pytest.approx(4, rel=0.1)


def test_tangent_features_vanish_at_their_anchor(linear):
    mdp, features = linear
    pi, other = problems.random_policy(mdp, 0), problems.random_policy(mdp, 1)
    assert not Tangent(features.x, pi)(pi).any()
    phi = Tangent(features.x, pi, constant=True)(other)
    assert phi.shape == (20, 4, 6 + 6 * 80)
    np.testing.assert_allclose(phi[2, 3, 6:].reshape(6, 20, 4)[1], features.x[2, 3, 1] * (other - pi))


def test_features_can_be_differentiated(linear):
    mdp, features = linear
    pi, other = problems.random_policy(mdp, 0), problems.random_policy(mdp, 1)
    shift = other - pi
    with jax.enable_x64(True):
        slope = jax.jvp(features, (jnp.asarray(pi),), (jnp.asarray(shift),))[1]
    numeric = (features(pi + 1e-5 * shift) - features(pi - 1e-5 * shift)) / 2e-5
    np.testing.assert_allclose(slope, numeric, atol=1e-7)


def mean_update(problem: problems.Problem) -> np.ndarray:
    """The matrix of semi-gradient TD's mean update of the weights."""
    task = task_of(problem)
    size = task.phi.shape[-1]
    phi = task.phi.reshape(-1, size)
    moved = phi * problem.mdp.gamma
    following = problem.mdp.pair_chain(problem.target) @ moved - phi
    return phi.T @ (task.pairs.ravel()[:, None] * following)


def test_baird_is_the_classic_one_over_seven():
    problem = problems.baird()
    star = np.hstack([2 * np.eye(6, 8), np.zeros((6, 0))])
    star[:, 7] = 1
    star = np.vstack([star, [0] * 6 + [1, 2]])
    classic = star.T @ (0.99 * np.tile(star[6], (7, 1)) - star) / 7
    update = mean_update(problem)
    np.testing.assert_allclose(update[:8, :8], classic / 7, atol=1e-12)
    assert np.linalg.eigvals(classic).real.max() > 0.01  # it blows up
    assert np.linalg.matrix_rank(task_of(problem).phi.reshape(14, -1)) == 14  # complete: any values can be had
    np.testing.assert_allclose(problem.mdp.stationary(problem.behaviour), np.full(7, 1 / 7))
    np.testing.assert_allclose(problem.mdp.q(problem.target), 0)


def test_rewards_give_baird_other_values_and_the_same_instability():
    rewards = np.linspace(0, 1, 7)
    problem = problems.baird(rewards=rewards)
    np.testing.assert_allclose(problem.mdp.q(problem.target)[:, 1], rewards + 0.99 * 100)
    np.testing.assert_allclose(mean_update(problem), mean_update(problems.baird()))


def test_tsitsiklis_van_roy_grows_by_six_fifths():
    """One least-squares fit to the backup of w takes it to 6 gamma w / 5."""
    problem = problems.tsitsiklis_van_roy(0.9)
    task = task_of(problem)
    backup = problem.mdp.backup(problem.target, task.phi @ np.array([1.0, 0.0, 0.0]))
    phi = task.phi[:, 0, 0]
    assert phi @ backup[:, 0] / (phi @ phi) == pytest.approx(1.2 * 0.9)
    np.testing.assert_allclose(task.pairs, 0.25)


def test_kolter_blows_up_near_a_share_of_seven_tenths():
    def error(share: float) -> float:
        task = task_of(problems.kolter(share))
        assert task.states[0] == pytest.approx(share)
        return float(value_errors(task, lstd(task)))

    np.testing.assert_allclose(problems.kolter().mdp.q(problems.kolter().target)[:, 0], [1, 1.05])
    shares = np.linspace(0.68, 0.74, 61)
    errors = [error(share) for share in shares]
    assert error(0.5) < 2e-3
    assert error(0.9) < 0.1
    assert shares[np.argmax(errors)] == pytest.approx(0.711, abs=2e-3)
    assert max(errors) > 5


def test_garnet_has_its_branches_and_one_piece():
    mdp = problems.garnet(0, states=10, actions=2, branches=3)
    np.testing.assert_array_equal((mdp.P > 1e-3).sum(-1) <= 3, True)
    assert mdp.stationary(problems.uniform_policy(mdp)).min() > 0
    np.testing.assert_array_equal(mdp.P, problems.garnet(0, states=10, actions=2, branches=3).P)
    assert (mdp.P != problems.garnet(1, states=10, actions=2, branches=3).P).any()


def test_river_swim_is_the_known_one():
    mdp = problems.river_swim(6)
    np.testing.assert_allclose(mdp.P[2, 1], [0, 0.05, 0.6, 0.35, 0, 0])
    np.testing.assert_allclose(mdp.P[0, 1], [0.4, 0.6, 0, 0, 0, 0])
    np.testing.assert_allclose(mdp.P[5, 1], [0, 0, 0, 0, 0.4, 0.6])
    np.testing.assert_allclose(mdp.P[3, 0], [0, 0, 1, 0, 0, 0])
    right, left = np.tile([0.0, 1.0], (6, 1)), np.tile([1.0, 0.0], (6, 1))
    assert mdp.objective(right) > 5 * mdp.objective(left)
    assert mdp.objective(left) == pytest.approx(0.005 / 0.05)


def test_pairs_of_policies(linear):
    mdp, features = linear
    target, behaviour = problems.disjoint_policies(mdp)
    assert (target * behaviour).max() == 0
    pairs = [mdp.pairs(mdp.stationary(each), each) for each in (target, behaviour)]
    assert np.isfinite(coverage(features(target), *pairs))
    assert np.isinf(coverage(tabular(mdp)(target), *pairs))


@pytest.mark.parametrize("family", [problems.rare_action, problems.idle_behaviour])
def test_coverage_grows_as_one_over_the_share(family):
    def found(share: float) -> float:
        task = task_of(family(share))
        return float(coverage(task.phi, task.target_pairs, task.pairs))

    base = 5 if family is problems.rare_action else 1
    assert (found(0.001) - base) / (found(0.01) - base) == pytest.approx(10, rel=0.15)
    assert np.isinf(found(0.0))


def test_arguments_that_make_no_problem_are_refused():
    one_action = problems.garnet(actions=1)
    refused = [
        lambda: problems.kolter(0.99), lambda: problems.garnet(branches=0), lambda: problems.river_swim(1),
        lambda: problems.rare_action(1.5), lambda: problems.disjoint_policies(one_action),
    ]  # fmt: skip
    for make in refused:
        with pytest.raises(UsageError):
            make()


def test_fixed_features_ignore_the_policy(linear):
    mdp, features = linear
    fixed = Fixed(features.x)
    np.testing.assert_array_equal(fixed(problems.random_policy(mdp, 0)), fixed(problems.random_policy(mdp, 1)))
