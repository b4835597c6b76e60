"""Rivals of Algorithm 2: single updates by hand, and what each is known for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic.errors import UsageError
from fcritic.theory.evaluation import Task, make_task, sample, task_of, value_errors
from fcritic.theory.problems import baird, disjoint_policies, linear_mdp, random_policy
from studies.theory.rivals import Corrected, Emphatic, Seen, SemiGradient, SoftTarget, learn, learn_all, lstd

X, FOLLOWING = np.array([1.0, 2.0]), np.array([0.5, 1.0])
WEIGHTS = np.array([1.0, -1.0])
DELTA = 3.0 + 0.5 * (0.5 - 1.0) - (1.0 - 2.0)
"""r + gamma <x', xi> - <x, xi> = 3 - 0.25 + 1."""


@pytest.fixture
def seen() -> Seen:
    return Seen(jnp.array(X), jnp.array(3.0), jnp.array(FOLLOWING), jnp.array(0.5), jnp.array(4.0))


def keys(count: int) -> jax.Array:
    return jax.random.split(jax.random.key(0), count)


def test_semi_gradient_by_hand(seen: Seen):
    (found,) = SemiGradient(0.1).update((jnp.array(WEIGHTS),), seen)
    np.testing.assert_allclose(found, WEIGHTS + 0.1 * DELTA * X, rtol=1e-5)


def test_corrected_by_hand(seen: Seen):
    helper = np.array([0.2, 0.1])  # <h, x> = 0.4
    weights, moved = Corrected(0.1, 0.3).update((jnp.array(WEIGHTS), jnp.array(helper)), seen)
    np.testing.assert_allclose(weights, WEIGHTS + 0.1 * (DELTA * X - 0.5 * 0.4 * FOLLOWING), rtol=1e-5)
    np.testing.assert_allclose(moved, helper + 0.1 * ((DELTA - 0.4) * X - 0.3 * helper), rtol=1e-5)


def test_emphatic_by_hand(seen: Seen):
    weights, trace = Emphatic(0.1).update((jnp.array(WEIGHTS), jnp.array(2.0)), seen)
    assert trace == pytest.approx(1 + 0.5 * 4.0 * 2.0)
    np.testing.assert_allclose(weights, WEIGHTS + 0.1 * 5.0 * DELTA * X, rtol=1e-5)


def test_soft_target_by_hand(seen: Seen):
    target = np.array([0.0, 2.0])
    delta = 3.0 + 0.5 * 2.0 + 1.0
    weights, moved = SoftTarget(0.1, 0.25, 0.5).update((jnp.array(WEIGHTS), jnp.array(target)), seen)
    expected = WEIGHTS + 0.1 * (delta * X - 0.5 * WEIGHTS)
    np.testing.assert_allclose(weights, expected, rtol=1e-5)
    np.testing.assert_allclose(moved, target + 0.25 * (expected - target), rtol=1e-5)


@pytest.fixture(scope="module")
def on_policy() -> Task:
    mdp, features = linear_mdp(0, states=8, dim=3, gamma=0.5)
    pi = random_policy(mdp, 0)
    return make_task(mdp, pi, pi, features.whitened(mdp, pi)(pi))


@pytest.mark.parametrize(
    "rival", [SemiGradient(0.1), Corrected(0.1, 0.1), Emphatic(0.05), SoftTarget(0.1, 0.05, 0.0)]
)
def test_all_learn_on_policy(on_policy: Task, rival):
    found = learn(rival, on_policy, keys(4), records=4, every=5000)
    assert found.shape == (4, 5, 3)
    assert value_errors(on_policy, found[:, -1]).max() < 0.05


def test_the_ridge_biases(on_policy: Task):
    found = learn(SoftTarget(0.1, 0.05, 0.5), on_policy, keys(4), records=4, every=5000)
    assert value_errors(on_policy, found[:, -1]).min() > 0.2


def test_semi_gradient_diverges_on_baird_and_corrections_do_not():
    problem = baird()
    task = task_of(problem)
    rivals = {0: SemiGradient(0.05), 1: Corrected(0.05, 0.0)}
    found = learn_all(rivals, task, keys(3), records=2, every=20_000, first=problem.first)
    paths = [value_errors(task, found[index]) for index in rivals]
    assert paths[0][:, -1].min() > 1e4
    assert paths[1][:, -1].max() < 12


def test_the_mean_emphasis_is_the_discounted_sum():
    """E[F | s, a] d_mu(s, a) = sum_k gamma^k (P_pi')^k d_mu, which makes the mean update stable."""
    mdp, features = linear_mdp(0, states=5, dim=3, gamma=0.5)
    mu, pi = random_policy(mdp, 0, 5.0), random_policy(mdp, 1, 5.0)
    task = make_task(mdp, mu, pi, features(pi))
    expected = np.linalg.solve(np.eye(20) - 0.5 * mdp.pair_chain(pi).T, task.pairs.ravel())
    with jax.enable_x64(True):
        _, pairs, _ = sample(task, jax.random.key(0), 30_000, "trajectory", jnp.int32(0))
    ratios, trace, total = pi / mu, 0.0, np.zeros((5, 4))
    for state, action in zip(*np.divmod(pairs, 4), strict=True):
        trace = 1 + 0.5 * ratios[state, action] * trace
        total[state, action] += trace / 30_000
    np.testing.assert_allclose(total.ravel(), expected, atol=0.03)


def test_ratios_that_do_not_exist_are_refused():
    mdp, features = linear_mdp(0)
    target, behaviour = disjoint_policies(mdp)
    task = make_task(mdp, behaviour, target, features(target))
    with pytest.raises(UsageError, match="importance ratios do not exist"):
        learn(Emphatic(0.1), task, keys(1), records=1, every=1)


def test_lstd_solves_the_projected_equation(on_policy: Task):
    assert value_errors(on_policy, lstd(on_policy)) < 1e-12
    mdp, features = linear_mdp(0, states=8)
    mu, pi = random_policy(mdp, 0), random_policy(mdp, 1)
    task = make_task(mdp, mu, pi, features.x[:, :, :2])
    weights = lstd(task)
    residual = mdp.backup(pi, task.phi @ weights) - task.phi @ weights
    np.testing.assert_allclose(np.einsum("sa,sad,sa->d", task.pairs, task.phi, residual), 0, atol=1e-12)


def test_rivals_side_by_side_learn_as_they_do_alone(on_policy: Task):
    options = {"records": 4, "every": 5000}
    both = learn_all({1: SemiGradient(0.1), 2: SoftTarget(0.1)}, on_policy, keys(4), **options)
    np.testing.assert_allclose(both[1], learn(SemiGradient(0.1), on_policy, keys(4), **options), rtol=1e-8)
    assert np.abs(both[1] - both[2]).max() > 0.01
