"""Critics of exploration and how they learn: targets, sweeps and slopes against values worked out by hand."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import quick_jit

from fcritic.envs.exact import deep_sea, river_swim
from fcritic.exploration.ensembles import Counts, Critic, Ensemble, begin, move, next_values, trained_on, variant
from fcritic.exploration.learning import Rules, fit, objective, slope, summed, sweep
from studies.exploration.family import GAMMA, discounted_returns
from studies.exploration.slopes import slopes_of

KEY = jax.random.key(0)
begun = quick_jit(begin, static_argnums=(0, 1))
"""Compiled, which is faster than one operation at a time."""


def full_counts(task, members: int, visits: float = 1e6) -> Counts:
    """As if every pair had been seen so often that frequencies are probabilities."""
    shape = (members, *task.P.shape)
    transitions = jnp.broadcast_to(jnp.asarray(task.P * visits, jnp.float32), shape)
    return Counts(transitions, jnp.broadcast_to(jnp.asarray(task.reward * visits, jnp.float32), shape[:-1]))


def test_a_standard_critic_is_a_functional_one_with_a_constant_code():
    standard = Critic(1, 3, 0, jnp.asarray(1.0), key=KEY)
    functional = Critic(1, 3, 8, jnp.asarray(1.0), key=KEY)
    low, high = jnp.zeros((1, 3)), jnp.ones((1, 3))
    np.testing.assert_array_equal(standard(low), standard(high))
    assert float(jnp.abs(functional(low) - functional(high)).max()) > 0.1
    np.testing.assert_array_equal(functional(low), functional.prior(low))
    alike = Critic(1, 3, 8, jnp.asarray(1.0), policy_prior=False, key=KEY)
    np.testing.assert_allclose(alike(low), alike(high), rtol=1e-6)


def test_a_move_changes_values_at_its_policies_as_asked():
    critic = Critic(2, 3, 16, jnp.asarray(1.0), key=KEY)
    policies = jax.random.uniform(KEY, (4, 2, 3))
    change = jax.random.normal(KEY, (4, 2, 3, 2))
    moved = quick_jit(move)(critic, policies, change, 0.0)
    found = jax.vmap(moved)(policies) - jax.vmap(critic)(policies)
    np.testing.assert_allclose(found, change, atol=2e-3)
    np.testing.assert_array_equal(moved.first, critic.first)


def test_targets_tell_the_kinds_apart():
    q = jnp.array([[1.0, 0.0], [0.0, 3.0]]).reshape(2, 1, 1, 1, 2)  # two members, one state
    pi = jnp.full((2, 1, 1, 1), 0.25)
    found = {kind: next_values(kind, q, pi).ravel().tolist() for kind in ("shared", "independent", "actors")}
    assert found == {"shared": [1.5, 1.5], "independent": [1.0, 3.0], "actors": [0.75, 0.75]}


@pytest.mark.parametrize("task", [river_swim(5), deep_sea(5, stochastic=True)], ids=lambda task: task.name)
def test_sums_over_next_states(task):
    random = np.random.default_rng(0)
    counts = random.random((2, *task.P.shape)).astype(np.float32)
    after = random.random((2, 3, task.layers, task.states)).astype(np.float32)
    rules = Rules(task.shifts, task.gamma, task.ends)
    expected = np.einsum("nlsak,nplsk->nplsa", counts, after[..., task.successors])
    np.testing.assert_allclose(summed(rules, jnp.asarray(counts), jnp.asarray(after)), expected, rtol=1e-5)


def test_a_sweep_by_hand():
    """One state that leads to itself: (sum of rewards + gamma n V + lambda p) / (n + lambda)."""
    rules = Rules(None, 0.5, False)
    counts = Counts(jnp.array([3.0, 0.0]).reshape(1, 1, 1, 2, 1), jnp.array([6.0, 0.0]).reshape(1, 1, 1, 2))
    q = jnp.array([1.0, 4.0]).reshape(1, 1, 1, 1, 2)
    prior = jnp.array([5.0, 7.0]).reshape(1, 1, 1, 1, 2)
    pi = jnp.full((1, 1, 1, 1), 0.5)
    found = {
        (kind, weight): sweep(kind, rules, counts, jnp.asarray(weight), prior, pi, q).ravel().tolist()
        for kind in ("independent", "functional")
        for weight in (0.0, 1.0)
    }
    assert found["independent", 0.0] == pytest.approx([(6 + 0.5 * 3 * 4) / 3, 4.0])  # never visited: as it was
    assert found["independent", 1.0] == pytest.approx([(6 + 0.5 * 3 * 4 + 5) / 4, 7.0])
    assert found["functional", 0.0] == pytest.approx([(6 + 0.5 * 3 * 2.5) / 3, 4.0])


def test_functional_critics_find_the_exact_return_of_every_trained_policy():
    task, ensemble = river_swim(4), Ensemble("functional", members=3)
    critics = begun(ensemble, (1, 4, 4), variant("prior"), KEY).critics
    policies = jax.random.uniform(KEY, (5, 1, 4))
    tables = jnp.broadcast_to(policies, (3, *policies.shape))
    rules = Rules(None, GAMMA, False)
    learned = fit(ensemble, rules, full_counts(task, 3), jnp.asarray(0.0), critics, tables, 150)
    q = jax.vmap(lambda critic: jax.vmap(critic)(policies))(learned)[:, :, 0, 0]
    share = policies[None, :, 0, 0]
    found = q[..., 0] + share * (q[..., 1] - q[..., 0])
    exact = discounted_returns(task.P, task.reward, np.asarray(policies[:, 0], float), GAMMA)
    np.testing.assert_allclose(found, np.broadcast_to(exact, (3, 5)), atol=0.01)


def test_the_actors_gradient_has_both_terms_or_one():
    critic = Critic(1, 3, 8, jnp.asarray(1.0), key=KEY)
    logits, share = jnp.array([[0.3, -0.2, 0.1]]), jnp.array([[1.0, 0.0, 0.0]])
    both = jax.grad(objective, argnums=1)(critic, logits, share, True)
    first = jax.grad(objective, argnums=1)(critic, logits, share, False)
    q, policy = critic(jax.nn.sigmoid(logits)), jax.nn.sigmoid(logits)
    np.testing.assert_allclose(first, share * (policy * (1 - policy) * (q[..., 1] - q[..., 0])), rtol=1e-5)
    assert float(jnp.abs(both - first)[0, 1]) > 1e-4  # states that are not visited matter through the code
    np.testing.assert_allclose(slope(critic, logits, share, True), both, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(slope(critic, logits, share, False), first, rtol=1e-4, atol=1e-7)
    step = 1e-2
    moved = [objective(critic, logits.at[0, 1].add(sign * step), share) for sign in (1, -1)]
    assert float(both[0, 1]) == pytest.approx(float(moved[0] - moved[1]) / (2 * step), rel=0.05)


def test_the_second_term_of_a_member_that_knows_it():
    """Trained at thirty policies near its own, in a world of nine states; before, it knows nothing of slopes."""
    task, ensemble = deep_sea(3), Ensemble("functional", members=2, evaluated="own", neighbours=30, features=30)
    ensemble = dataclasses.replace(ensemble, nearness=0.2, ridge=1e-3)
    state = begun(ensemble, (3, 3, 3), variant("none"), KEY)
    state = dataclasses.replace(state, counts=full_counts(task, 2), visits=jnp.ones((3, 3)))
    rules, weight = Rules(task.shifts, task.gamma, task.ends), jnp.asarray(0.0)

    @quick_jit
    def found(critics):
        one = functools.partial(slopes_of, ensemble, rules, weight, jnp.ones((3, 3)) / 9)
        learned = fit(ensemble, rules, state.counts, weight, critics, trained_on(ensemble, state), 12)
        return jax.vmap(one)(critics, state.logits, state.counts), learned

    before, learned = found(state.critics)
    after, _ = found(learned)

    def cosine(one, other):
        return float(jnp.vdot(one, other) / jnp.linalg.norm(one) / jnp.linalg.norm(other))

    assert abs(cosine(before.second, before.exact)) < 0.5 and cosine(after.second, after.exact) > 0.8
    np.testing.assert_allclose(before.exact, after.exact, atol=1e-5)  # all pairs were visited: the world is known
