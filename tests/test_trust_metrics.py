"""Trust metrics from samples in float32, against the exact ones of finite MDPs and brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic.agents import trust_metrics as sampled
from fcritic.theory import trust as exact
from fcritic.theory.control import TabularSoftmax
from fcritic.theory.mdp import FiniteMDP, float64
from fcritic.theory.problems import disjoint_policies, linear_mdp

STATES, ACTIONS, D = 12, 3, 4


@pytest.fixture(params=[0, 1])
def linear(request):
    return linear_mdp(request.param, states=STATES, actions=ACTIONS, dim=D)


def policies(seed: int) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.random.default_rng(seed).dirichlet(np.ones(ACTIONS), (2, STATES)))


def pairs_of(mdp: FiniteMDP, pi: np.ndarray) -> np.ndarray:
    return np.asarray(mdp.pairs(mdp.stationary(pi), pi))


def flat(phi) -> jax.Array:
    return jnp.asarray(np.asarray(phi).reshape(-1, phi.shape[-1]), jnp.float32)


def weights(measure) -> jax.Array:
    return jnp.asarray(np.asarray(measure).ravel(), jnp.float32)


def norm_of(phi, measure, **options) -> sampled.Norm:
    return sampled.norm(flat(phi), weights(measure), **options)


DEFINITION_1 = {"outside": sampled.OUTSIDE}


def test_coverage_of_all_pairs_is_the_exact_one(linear):
    mdp, features = linear
    target, behaviour = policies(3)
    phi, own, logged = features(target), pairs_of(mdp, target), pairs_of(mdp, behaviour)
    found = sampled.coverage(norm_of(phi, logged), flat(phi), weights(own))
    assert found.dtype == np.float32
    assert float(found) == pytest.approx(float(exact.coverage(phi, own, logged)), rel=1e-4)


def test_coverage_does_not_depend_on_coordinates(linear):
    mdp, features = linear
    target, behaviour = policies(3)
    own, logged = pairs_of(mdp, target), pairs_of(mdp, behaviour)
    plain, rng = features(target), np.random.default_rng(0)
    changed = np.asarray(plain) @ (np.eye(D) + 0.3 * rng.normal(size=(D, D)))
    of = lambda phi: float(sampled.coverage(norm_of(phi, logged), flat(phi), weights(own)))
    assert of(changed) == pytest.approx(of(plain), rel=1e-3)
    far = np.asarray(plain) @ rng.normal(
        size=(D, D)
    )  # where the smallest directions are below what float32 can tell
    with jax.enable_x64(True):
        rows, own_, logged_ = (np.asarray(each, np.float64) for each in (np.reshape(far, (-1, D)), own, logged))
        exactly = sampled.norm(jnp.asarray(rows), jnp.asarray(logged_.ravel()), least=1e-12, **DEFINITION_1)
        assert float(sampled.coverage(exactly, jnp.asarray(rows), jnp.asarray(own_.ravel()))) == pytest.approx(
            of(plain), rel=1e-4
        )
    visited = lambda phi: float(sampled.concentrability(rate_of(mdp, target, phi, logged), weights(logged)))
    assert visited(changed) == pytest.approx(visited(plain), rel=1e-3)


def test_policies_without_common_actions_need_common_features():
    mdp, features = linear_mdp(0, states=STATES, actions=4, dim=D)
    target, behaviour = disjoint_policies(mdp)
    own, logged = pairs_of(mdp, target), pairs_of(mdp, behaviour)
    tabular = np.eye(STATES * 4).reshape(STATES, 4, -1)
    assert sampled.coverage(norm_of(tabular, logged, **DEFINITION_1), flat(tabular), weights(own)) == np.inf
    assert norm_of(tabular, logged).share_outside(flat(tabular), weights(own)) == pytest.approx(1.0)
    shared = features(target)
    assert norm_of(shared, logged).share_outside(flat(shared), weights(own)) < 1e-6
    found = float(sampled.coverage(norm_of(shared, logged, **DEFINITION_1), flat(shared), weights(own)))
    assert found == pytest.approx(float(exact.coverage(shared, own, logged)), rel=1e-4)
    assert found < 100


def test_a_direction_that_was_never_logged_is_infinite_where_it_is_visited():
    phi = jnp.eye(2)
    strict = sampled.norm(phi[:1], **DEFINITION_1)
    assert (strict.rank, sampled.coverage(strict, phi[1:])) == (1, np.inf)
    assert sampled.coverage(strict, 3 * phi[:1]) == pytest.approx(9.0)
    assert sampled.coverage(strict, phi, jnp.array([1.0, 0.0])) == pytest.approx(1.0)  # not visited
    logged = sampled.norm(phi[:1])
    assert (logged.rank, sampled.coverage(logged, phi[1:]), logged.share_outside(phi[1:])) == (1, 0, 1)
    assert sampled.coverage(logged, 3 * phi[:1]) == pytest.approx(9.0)
    assert sampled.coverage(logged, phi, jnp.array([1.0, 0.0])) == pytest.approx(1.0)
    assert logged.share_outside(phi, jnp.array([1.0, 3.0])) == pytest.approx(0.75)


def test_the_norm_is_that_of_a_pseudo_inverse():
    rows = np.random.default_rng(0).normal(size=(50, 6)) * [1, 1, 0.3, 0.1, 1e-3, 0]
    found, inside = sampled.norm(jnp.asarray(rows, jnp.float32)), rows * [1, 1, 1, 1, 0, 0]
    inverse = np.linalg.pinv(rows.T @ rows / 50, rcond=1e-4, hermitian=True)
    assert float(found.rank) == 4
    expected = np.einsum("ni,ij,nj->n", inside, inverse, inside)
    np.testing.assert_allclose(found.squared(jnp.asarray(inside, jnp.float32)), expected, rtol=1e-3)


# Delta


@float64
def slopes_of(features, theta):
    """Probabilities and features of a softmax policy and their slopes in its parameters."""
    policy, theta = TabularSoftmax(STATES, ACTIONS), jnp.asarray(theta)
    described = lambda at: features(policy(at))
    slopes = (policy(theta), jax.jacobian(policy)(theta), described(theta), jax.jacfwd(described)(theta))
    return [np.asarray(each, np.float32) for each in slopes]


def test_delta_of_all_pairs_is_the_exact_one(linear):
    mdp, features = linear
    theta = np.random.default_rng(6).normal(size=STATES * ACTIONS)
    reference = policies(4)[0]
    phi, measure = features(reference), pairs_of(mdp, reference)
    anchor = exact.invert(exact.covariance(phi, measure))
    expected = exact.drift(TabularSoftmax(STATES, ACTIONS), features, mdp.start, theta, anchor)
    found = sampled.drift_of_choices(
        *map(jnp.asarray, slopes_of(features, theta)), norm_of(phi, measure), weights(mdp.start)
    )
    for name in ("first", "first_printed", "second"):
        assert float(getattr(found, name)) == pytest.approx(float(getattr(expected, name)), rel=1e-4)
    assert float(found.delta) == pytest.approx(float(expected.delta()), rel=1e-4)
    assert float(found.delta_printed) == pytest.approx(float(expected.delta("printed")), rel=1e-4)


def small_network():
    """Actions of 2 numbers at 5 states, a code of 3 numbers and features of 6, of 8 parameters."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    obs, hidden, coding, theta = draw(5, 4), draw(6, 9), draw(3, 8), draw(8)
    act = lambda at: jnp.tanh(obs @ at.reshape(4, 2))
    code = lambda at: jnp.tanh(coding @ at)
    features = lambda state, code, action: jnp.tanh(hidden @ jnp.concatenate([state, code, action]))
    logged = draw(40, 6)
    return act, code, features, obs, theta, sampled.norm(logged), np.asarray(logged)


def test_delta_of_a_network_is_that_of_all_its_slopes():
    act, code, features, obs, theta, reference, logged = small_network()
    found = sampled.drift_of_actions(act, code, features, obs, theta, reference)
    inverse = np.linalg.inv(logged.T @ logged / len(logged))
    length = lambda slopes: np.sqrt(np.einsum("sip,ij,sjp->sp", slopes, inverse, slopes))
    of = lambda acting, described: jax.vmap(lambda s, a: features(s, code(described), a))(obs, act(acting))
    first, second = (np.asarray(each) for each in jax.jacfwd(of, (0, 1))(theta, theta))
    assert float(found.first) == pytest.approx(length(first).mean(axis=0).max(), rel=1e-4)
    assert float(found.second) == pytest.approx(length(second).max(axis=1).mean(), rel=1e-4)
    mean_length = lambda at: reference.length(of(at, theta)).mean()
    ends = [[float(mean_length(theta + sign * 1e-2 * unit)) for sign in (1, -1)] for unit in np.eye(8)]
    slopes = np.array([(above - below) / 2e-2 for above, below in ends])
    assert float(found.first_printed) == pytest.approx(abs(slopes).max(), rel=1e-2)
    assert float(found.first_printed) < float(found.first)


def test_delta_does_not_depend_on_coordinates():
    act, code, features, obs, theta, reference, logged = small_network()
    change = jnp.eye(6) + 0.3 * jnp.asarray(np.random.default_rng(1).normal(size=(6, 6)), jnp.float32)
    changed = lambda state, described, action: change @ features(state, described, action)
    norm = sampled.norm(jnp.asarray(logged) @ change.T)
    plain = sampled.drift_of_actions(act, code, features, obs, theta, reference)
    found = sampled.drift_of_actions(act, code, changed, obs, theta, norm)
    np.testing.assert_allclose(found, plain, rtol=1e-3)


def test_delta_is_infinite_where_a_slope_leaves_what_was_logged():
    act, code, features, obs, theta, _, logged = small_network()
    flat_ = logged.copy()
    flat_[:, 0] = 0.0
    narrow = sampled.norm(jnp.asarray(flat_), **DEFINITION_1)
    assert sampled.drift_of_actions(act, code, features, obs, theta, narrow).delta == np.inf
    deaf = lambda state, code, action: features(state, code, action).at[0].set(0.0)
    assert np.isfinite(sampled.drift_of_actions(act, code, deaf, obs, theta, narrow).delta)


def test_what_lies_outside_of_the_data_has_no_length_unless_it_is_asked_for():
    act, code, features, obs, theta, _, logged = small_network()
    logged = logged.copy()
    logged[:, 1:] = 0.0
    narrow = sampled.norm(jnp.asarray(logged))
    vectors = jnp.asarray(np.random.default_rng(0).normal(size=(1000, 6)), jnp.float32).at[:, 0].set(0.0)
    assert (narrow.squared(vectors) == 0).all()
    beyond = lambda state, code, action: features(state, code, action).at[0].set(0.0)
    assert float(sampled.drift_of_actions(act, code, beyond, obs, theta, narrow).delta) == 0


# Visits


def rate_of(mdp: FiniteMDP, target: np.ndarray, phi, logged: np.ndarray) -> jax.Array:
    """Visits of a policy on all triples (s, a, s') of an MDP, summed to pairs."""
    states, actions = mdp.r.shape
    phi = np.asarray(phi)
    following = np.einsum("sa,sad->sd", target, phi)  # features of s' and the policy's actions there
    after = np.einsum("sax,xd->sad", mdp.P, following)
    first = np.einsum("s,sd->d", mdp.start, following)[None]
    measure = weights(logged)
    gamma = jnp.full(states * actions, mdp.gamma, jnp.float32)
    return sampled.visits(norm_of(phi, logged), flat(phi), flat(after), flat(first), gamma, measure)


def test_visits_of_tabular_features_are_the_ratio_of_the_two_measures(linear):
    mdp, _ = linear
    target, behaviour = policies(3)
    logged = pairs_of(mdp, behaviour)
    tabular = np.eye(STATES * ACTIONS).reshape(STATES, ACTIONS, -1)
    found = rate_of(mdp, target, tabular, logged)
    own = np.asarray(mdp.occupancy(target))[:, None] * target
    np.testing.assert_allclose(found, (own / logged).ravel(), rtol=2e-3)
    assert float(sampled.concentrability(found, weights(logged))) == pytest.approx(
        (own**2 / logged).sum(), rel=1e-3
    )


def test_few_directions_ask_for_less_than_coverage(linear):
    mdp, features = linear
    target, behaviour = policies(3)
    logged, own = pairs_of(mdp, behaviour), np.asarray(mdp.occupancy(target))[:, None] * target
    phi = features(target)
    found = float(sampled.concentrability(rate_of(mdp, target, phi, logged), weights(logged)))
    assert 1 - 1e-4 <= found <= float(exact.coverage(phi, own, logged)) + 1e-4


def test_the_nearest_pair_is_another_one():
    logged = jnp.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    np.testing.assert_allclose(sampled.nearest(logged, logged, jnp.arange(3)), [1.0, np.sqrt(18), 1.0], rtol=1e-5)
    np.testing.assert_allclose(sampled.nearest(jnp.array([[0.0, 0.5]]), logged[:2]), [0.5], rtol=1e-5)


def test_coverage_with_the_data_of_another_is_that_of_the_mixture(linear):
    mdp, features = linear
    target, behaviour = policies(3)
    other = policies(4)[0]
    phi = features(target)
    own, logged, added = (pairs_of(mdp, pi) for pi in (target, behaviour, other))
    moment = lambda measure: sampled.second_moment(flat(phi), weights(measure))
    found = sampled.coverage_with(moment(logged), moment(added), moment(own), share=0.3, ridge=0.0)
    assert float(found) == pytest.approx(float(exact.coverage(phi, own, 0.7 * logged + 0.3 * added)), rel=1e-4)
    best = sampled.coverage_with(moment(logged), moment(own), moment(own), share=0.3, ridge=0.0)
    assert float(best) < float(sampled.coverage_with(moment(logged), moment(logged), moment(own), 0.3, 0.0))
