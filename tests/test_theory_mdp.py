"""Finite MDPs: exact quantities against values by hand, series and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic.errors import UsageError
from fcritic.theory.mdp import FiniteMDP, softmax
from fcritic.theory.problems import garnet, random_policy


@pytest.fixture
def two_states() -> FiniteMDP:
    """Action 0 stays, action 1 changes the state; only staying in the second state pays."""
    P = np.zeros((2, 2, 2))
    P[[0, 1], 0, [0, 1]] = 1.0
    P[[0, 1], 1, [1, 0]] = 1.0
    return FiniteMDP(P, np.array([[0.0, 0.0], [1.0, 0.0]]), 0.5, np.array([1.0, 0.0]))


@pytest.fixture
def mdp() -> FiniteMDP:
    return garnet(1, states=6, actions=3)


@pytest.fixture
def pi(mdp: FiniteMDP) -> np.ndarray:
    return random_policy(mdp, 2)


def test_values_by_hand(two_states: FiniteMDP):
    """Change from the first state, stay in the second: V(1) = 1 / (1 - 0.5) = 2 and V(0) = 0.5 * 2."""
    pi = np.array([[0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(two_states.v(pi), [1.0, 2.0])
    np.testing.assert_allclose(two_states.q(pi), [[0.5, 1.0], [2.0, 0.5]])
    assert two_states.objective(pi) == pytest.approx(1.0)
    assert two_states.objective(pi, [0.5, 0.5]) == pytest.approx(1.5)
    np.testing.assert_allclose(two_states.stationary(pi), [0.0, 1.0], atol=1e-12)  # a transient state is no harm
    np.testing.assert_allclose(two_states.occupancy(pi), [0.5, 0.5])  # (1 - gamma) at once, gamma afterwards
    np.testing.assert_allclose(two_states.chain(pi), [[0, 1], [0, 1]])


def test_values_are_the_discounted_series(mdp: FiniteMDP, pi: np.ndarray):
    chain, rewards = mdp.chain(pi), (pi * mdp.r).sum(1)
    power, total, visits = np.eye(mdp.states), np.zeros(mdp.states), np.zeros(mdp.states)
    for step in range(400):
        total += mdp.gamma**step * power @ rewards
        visits += (1 - mdp.gamma) * mdp.gamma**step * mdp.start @ power
        power = power @ chain
    np.testing.assert_allclose(mdp.v(pi), total, rtol=1e-12)
    np.testing.assert_allclose(mdp.occupancy(pi), visits, rtol=1e-12)
    np.testing.assert_allclose(mdp.stationary(pi), power[0], rtol=1e-10)
    np.testing.assert_allclose(mdp.backup(pi, mdp.q(pi)), mdp.q(pi), rtol=1e-12)
    np.testing.assert_allclose(
        (mdp.pairs(mdp.occupancy(pi), pi) * mdp.r).sum() / (1 - mdp.gamma), mdp.objective(pi)
    )


def test_the_pair_chain_moves_pairs(mdp: FiniteMDP, pi: np.ndarray):
    pairs = mdp.pairs(mdp.stationary(pi), pi).ravel()
    np.testing.assert_allclose(pairs @ mdp.pair_chain(pi), pairs, atol=1e-14)
    q = mdp.r.ravel() + mdp.gamma * mdp.pair_chain(pi) @ mdp.q(pi).ravel()
    np.testing.assert_allclose(q, mdp.q(pi).ravel(), rtol=1e-12)


def test_the_gradient_matches_finite_differences(mdp: FiniteMDP):
    logits = np.random.default_rng(0).normal(size=mdp.r.shape)
    found = mdp.gradient(logits)
    for index in [(0, 0), (3, 2), (5, 1)]:
        step = np.zeros_like(logits)
        step[index] = 1e-5
        slope = (mdp.objective(softmax(logits + step)) - mdp.objective(softmax(logits - step))) / 2e-5
        assert found[index] == pytest.approx(slope, rel=1e-6)


def test_the_gradient_is_the_policy_gradient_theorem(mdp: FiniteMDP):
    """d J / d logits = occupancy(s) pi(a|s) (Q(s, a) - V(s)) / (1 - gamma)."""
    logits = np.random.default_rng(0).normal(size=mdp.r.shape)
    pi = softmax(logits)
    advantage = mdp.q(pi) - mdp.v(pi)[:, None]
    expected = mdp.pairs(mdp.occupancy(pi), pi) * advantage / (1 - mdp.gamma)
    np.testing.assert_allclose(mdp.gradient(logits), expected, rtol=1e-10)


def test_the_gradient_in_another_parametrisation(mdp: FiniteMDP):
    """One number that leans every state towards the first action."""
    lean = lambda theta: softmax(theta * np.eye(mdp.actions)[:1] * np.ones((mdp.states, 1)))
    found = mdp.gradient(0.3, lean)
    slope = (mdp.objective(lean(0.3 + 1e-5)) - mdp.objective(lean(0.3 - 1e-5))) / 2e-5
    assert found == pytest.approx(slope, rel=1e-6)


def test_exact_quantities_can_be_mapped_over_policies(mdp: FiniteMDP):
    policies = np.stack([random_policy(mdp, seed) for seed in range(3)])
    with jax.enable_x64(True):
        values = jax.jit(jax.vmap(mdp.q))(policies)
    np.testing.assert_allclose(values[1], mdp.q(policies[1]), rtol=1e-12)


def test_double_precision_stays_inside(mdp: FiniteMDP, pi: np.ndarray):
    assert mdp.v(pi).dtype == np.float64
    assert isinstance(mdp.v(pi), np.ndarray)
    assert jnp.ones(1).dtype == jnp.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"P": lambda P: P * 1.1}, "P[s, a] must sum to one, not 1.1"),
        ({"P": lambda P: P[:, :, :1]}, "P must have the shape [S, A, S]"),
        ({"P": lambda P: P * np.nan}, "must be a probability"),
        ({"P": lambda P: P + np.array([0.5, -0.5])}, "must be a probability"),
        ({"r": lambda r: r[:1]}, "r must have the shape [2, 2]"),
        ({"r": lambda r: r + np.inf}, "must be finite"),
        ({"start": lambda start: start / 2}, "start must sum to one, not 0.5"),
        ({"start": lambda start: np.ones(3) / 3}, "start must have 2 entries"),
        ({"gamma": lambda gamma: 1.0}, "gamma must be in [0, 1), not 1"),
        ({"gamma": lambda gamma: -0.1}, "gamma must be in [0, 1), not -0.1"),
        ({"gamma": lambda gamma: float("nan")}, "gamma must be in [0, 1), not nan"),
    ],
)
def test_an_mdp_that_is_none_is_refused_in_one_line(two_states: FiniteMDP, change: dict, message: str):
    fields = {name: getattr(two_states, name) for name in ("P", "r", "gamma", "start")}
    ((name, alter),) = change.items()
    with pytest.raises(UsageError) as error:
        FiniteMDP(**{**fields, name: alter(fields[name])})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_chain_in_two_parts_is_refused(two_states: FiniteMDP):
    with pytest.raises(UsageError, match="2 closed parts and no unique stationary distribution"):
        two_states.stationary(np.array([[1.0, 0.0], [1.0, 0.0]]))


def test_a_policy_that_is_none_is_refused(two_states: FiniteMDP):
    with pytest.raises(UsageError, match=r"pi\[s\] must sum to one, not 2 at \[1\]"):
        two_states.v(np.array([[1.0, 0.0], [1.0, 1.0]]))
    with pytest.raises(UsageError, match="a policy must have the shape"):
        two_states.v(np.ones((3, 1)))


def test_an_mdp_cannot_be_changed(two_states: FiniteMDP):
    with pytest.raises(ValueError, match="read-only"):
        two_states.P[0, 0, 0] = 0.0
