"""Algorithm 2 against loops in NumPy, its exact version, and values that are known."""

import jax
import numpy as np
import pytest

from fcritic.errors import UsageError
from fcritic.theory.evaluation import (
    BLOCK,
    Task,
    evaluate,
    evaluate_exact,
    fixed_point,
    make_task,
    printed_choice,
    sample,
    smallest_eigenvalue,
    step_for,
    task_of,
    value_errors,
)
from fcritic.theory.features import tabular
from fcritic.theory.mdp import FiniteMDP
from fcritic.theory.problems import disjoint_policies, linear_mdp, random_policy, tsitsiklis_van_roy
from fcritic.theory.trust import covariance
from studies.theory.rivals import lstd


@pytest.fixture(scope="module")
def task() -> Task:
    """Policies without a common action, features whitened under the target."""
    mdp, features = linear_mdp(0, states=8, dim=3)
    target, behaviour = disjoint_policies(mdp)
    return make_task(mdp, behaviour, target, features.whitened(mdp, target)(target))


@pytest.fixture
def certain() -> Task:
    """Two states that follow each other, one action, tabular: every sample in a state is the same."""
    P = np.array([[[0.0, 1.0]], [[1.0, 0.0]]])
    mdp = FiniteMDP(P, np.array([[1.0], [0.0]]), 0.5, np.array([1.0, 0.0]))
    only = np.ones((2, 1))
    return make_task(mdp, only, only, tabular(mdp)(only))


def keys(count: int, seed: int = 0) -> jax.Array:
    return jax.random.split(jax.random.key(seed), count)


def exact_by_loops(task: Task, outer: int, truncate: bool, first: np.ndarray) -> np.ndarray:
    """One fit after another, written out with sums over pairs."""
    states, actions, size = task.phi.shape
    weights = [first]
    for _ in range(outer):
        matrix, vector = np.zeros((size, size)), np.zeros(size)
        for s in range(states):
            for a in range(actions):
                value = 0.0
                for following in range(states):
                    for b in range(actions):
                        q = task.phi[following, b] @ weights[-1]
                        q = min(max(q, 0.0), 1 / (1 - task.gamma)) if truncate else q
                        value += task.P[s, a, following] * task.target[following, b] * q
                chance = task.states[s] * task.behaviour[s, a]
                matrix += chance * np.outer(task.phi[s, a], task.phi[s, a])
                vector += chance * task.phi[s, a] * (task.r[s, a] + task.gamma * value)
        weights.append(np.linalg.lstsq(matrix, vector, rcond=1e-10)[0])
    return np.array(weights)


@pytest.mark.parametrize("truncate", [True, False])
def test_the_exact_version_is_a_sequence_of_least_squares_fits(task: Task, truncate: bool):
    first = np.array([5.0, -20.0, 3.0])
    found = evaluate_exact(task, outer=3, truncate=truncate, first=first)
    np.testing.assert_allclose(found, exact_by_loops(task, 3, truncate, first), rtol=1e-8)


def test_truncation_bites_only_where_it_is_on(task: Task):
    first = np.array([5.0, -20.0, 3.0])
    cut, free = (evaluate_exact(task, outer=1, truncate=each, first=first)[1] for each in (True, False))
    assert np.abs(cut - free).max() > 0.1


def test_the_exact_version_finds_the_true_values_without_a_common_action(task: Task):
    path = evaluate_exact(task, outer=300)
    assert value_errors(task, path[-1]) < 1e-10
    errors = value_errors(task, path[:100]) ** 2
    assert (errors <= errors[0] * task.gamma ** np.arange(100) * (1 + 1e-9)).all()


def test_the_fixed_point_is_that_of_td(task: Task):
    np.testing.assert_allclose(fixed_point(task), lstd(task), rtol=1e-8)
    unstable = task_of(tsitsiklis_van_roy())
    np.testing.assert_allclose(fixed_point(unstable), 0, atol=1e-12)  # from zero it never leaves
    away = evaluate_exact(unstable, outer=400, first=np.array([1.0, 0, 0]))[-1]
    assert away[0] == pytest.approx(0.6 * 99)  # 6 gamma / 5 of half the upper limit


def test_where_there_is_no_rest_the_fixed_point_says_so(task: Task):
    """Rewards drive the unstable weight to infinity."""
    unstable = task_of(tsitsiklis_van_roy())
    driven = unstable._replace(r=np.array([[1.0, 0.0], [1.0, 0.0]]))
    assert np.isnan(fixed_point(driven, truncate=False)).all()
    assert np.isfinite(fixed_point(driven)).all()


def test_one_inner_loop_by_hand(certain: Task):
    """With step one and a tabular critic, each state's weight becomes its target as soon as it was seen."""
    first = np.array([0.5, 4.0])
    found = evaluate(certain, keys(1), outer=1, inner=50, step=1.0, first=first, truncate=False)[0, 1]
    np.testing.assert_allclose(found, [1.0 + 0.5 * 4.0, 0.0 + 0.5 * 0.5])
    cut = evaluate(certain, keys(1), outer=1, inner=50, step=1.0, first=first)[0, 1]
    np.testing.assert_allclose(cut, [1.0 + 0.5 * 2.0, 0.25])  # 4 is cut to 1 / (1 - gamma) = 2


def test_reset_starts_from_zero_and_the_warm_start_from_the_target(certain: Task):
    """One step of size 0.1 from either start; a state that is not drawn keeps its start."""
    first = np.array([1.0, 1.0])
    for seed in range(4):
        printed = evaluate(certain, keys(1, seed), outer=1, inner=1, step=0.1, first=first)[0, 1]
        warm = evaluate(certain, keys(1, seed), outer=1, inner=1, step=0.1, first=first, reset=False)[0, 1]
        drawn = int(np.argmax(printed != 0))
        target = [1.5, 0.5][drawn]
        assert printed[drawn] == pytest.approx(0.1 * target)
        assert printed[1 - drawn] == 0
        assert warm[drawn] == pytest.approx(1 + 0.1 * (target - 1))
        assert warm[1 - drawn] == 1


@pytest.mark.parametrize("sampling", ["independent", "trajectory"])
@pytest.mark.parametrize("reset", [True, False])
def test_sampled_weights_approach_the_exact_ones(task: Task, sampling: str, reset: bool):
    inner = 4 * BLOCK
    step = step_for(task, inner)
    found = evaluate(task, keys(8), outer=40, inner=inner, step=step, reset=reset, sampling=sampling)
    errors = value_errors(task, found)
    assert errors[:, -1].max() < 0.01 * task.mdp.value_range
    exact = evaluate_exact(task, outer=40)
    assert np.abs(found.mean(0) - exact).max() < 0.2


def test_blocks_do_not_change_what_is_computed(certain: Task):
    """The tabular fit is reached for lengths on both sides of the block's length."""
    for inner in (BLOCK - 1, BLOCK, 2 * BLOCK):
        found = evaluate(certain, keys(2), outer=30, inner=inner, step=0.5)[:, -1]
        np.testing.assert_allclose(found, [[4 / 3, 2 / 3]] * 2, atol=1e-8)


def test_seeds_differ_and_repeat(task: Task):
    options = {"outer": 40, "inner": BLOCK, "step": 0.1}
    found = evaluate(task, keys(8), **options)
    assert np.abs(found[0, -1] - found[1, -1]).max() > 1e-4
    np.testing.assert_array_equal(found, evaluate(task, keys(8), **options))
    turned = evaluate(task, keys(8)[::-1], **options)  # a seed does not depend on those beside it
    np.testing.assert_allclose(found, turned[::-1], rtol=1e-9)


@pytest.mark.parametrize("sampling", ["independent", "trajectory"])
def test_samples_have_the_right_frequencies(task: Task, sampling: str):
    with jax.enable_x64(True):
        _, pairs, following = jax.jit(sample, static_argnums=(2, 3))(
            jax.tree.map(jax.numpy.asarray, task), jax.random.key(0), 40_000, sampling, jax.numpy.int32(0)
        )
    pairs, following = np.asarray(pairs), np.asarray(following)
    seen = np.zeros((32, 8))
    np.add.at(seen, (pairs, following), 1 / 40_000)
    expected = (task.pairs[:, :, None] * task.P).reshape(32, 8)
    assert np.abs(seen - expected).max() < 0.01
    assert not seen[expected == 0].any()
    if sampling == "trajectory":
        np.testing.assert_array_equal(pairs[1:] // 4, following[:-1])


def test_the_error_in_values_is_the_error_in_weights(task: Task):
    """The corollary: ||Q - Q^pi|| under d_pi is the distance to xi* in the norm of A_pi."""
    truth = lstd(task)
    weights = np.random.default_rng(0).normal(size=(4, 3))
    matrix = covariance(task.phi, task.target_pairs)
    gap = weights - truth
    np.testing.assert_allclose(value_errors(task, weights) ** 2, np.einsum("ni,ij,nj->n", gap, matrix, gap))


def test_the_practical_step_forgets_its_start_in_one_inner_loop(task: Task):
    smallest = smallest_eigenvalue(task)
    assert smallest == pytest.approx(np.linalg.eigvalsh(covariance(task.phi, task.pairs))[0])
    inner = 100_000
    assert (1 - step_for(task, inner) * smallest) ** inner == pytest.approx(np.exp(-10), rel=0.1)
    assert step_for(task, 1) == pytest.approx(1.0)  # features within the unit ball, the longest of length one


def test_the_printed_choice_follows_its_formula():
    mdp, features = linear_mdp(0, states=8, dim=3)
    pi = random_policy(mdp, 0)
    task = make_task(mdp, pi, pi, features(pi))
    epsilon, choice = 0.001, printed_choice(task, 0.001)
    distance = np.abs(np.linalg.matrix_power(mdp.chain(pi), 3) - mdp.stationary(pi)).sum(1).max() / 2
    assert distance <= choice.constant * choice.rate**4 * (1 + 1e-9)  # the bound covers (s, a, s')
    slowness = np.log(1 / choice.rate) / np.log(2 * choice.constant / epsilon)
    first = choice.smallest / 130 / (2 / 0.1) ** 2 * slowness / 2
    second = choice.smallest * (0.1**2 * choice.smallest) * epsilon / 4 * slowness
    assert choice.step == pytest.approx(min(first, second))
    assert choice.inner > 1 / (choice.smallest * choice.step)
    with pytest.raises(UsageError, match="epsilon must be in"):
        printed_choice(task, 2.0)


def test_arguments_are_refused_in_one_line(task: Task):
    with pytest.raises(UsageError, match="unknown sampling 'trajectori'; did you mean trajectory"):
        evaluate(task, keys(1), outer=1, inner=1, step=0.1, sampling="trajectori")
    with pytest.raises(UsageError, match="must be at least 1"):
        evaluate(task, keys(1), outer=0, inner=1, step=0.1)
    with pytest.raises(UsageError, match="features must have the shape"):
        make_task(task.mdp, task.behaviour, task.target, task.phi[0])
