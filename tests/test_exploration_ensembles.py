"""Ensembles of critics: each option does what it says, and nothing else."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic.exploration.calibration import correlations, measures, wasserstein
from fcritic.exploration.critics import Critic, move
from fcritic.exploration.ensembles import Counts, Ensemble, begin, next_values, policies_of, trained_on, variant
from fcritic.exploration.episodes import first_solved
from fcritic.exploration.family import (
    GAMMA,
    GRID,
    PLANE,
    collect,
    ensemble_curves,
    policies_at,
    posterior_curves,
    true_curve,
)
from fcritic.exploration.learning import Rules, actor_update, fit, learn, objective, slope, summed, sweep
from fcritic.exploration.methods import ENSEMBLES, Method
from fcritic.exploration.planning import discounted_returns
from fcritic.exploration.posterior import Prior
from fcritic.exploration.running import (
    Steps,
    behaviour,
    episodes_to_solve,
    expected_return,
    play,
    remember,
    run,
    world_of,
)
from fcritic.exploration.slopes import slopes_of
from fcritic.exploration.tasks import deep_sea, river_swim

KEY = jax.random.key(0)
begun = jax.jit(begin, static_argnums=(0, 1))
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
    moved = jax.jit(move)(critic, policies, change, 0.0)
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


def one_step() -> Steps:
    return Steps(*(jnp.array([each]) for each in (0, 1, 1, 2)), jnp.array([0.5]))


def test_masks_count_twice_or_not_at_all():
    state = begun(Ensemble("independent", members=200), (1, 3, 3), variant("none"), KEY)
    plain = remember(state, one_step(), jnp.asarray(0.0), KEY)
    np.testing.assert_array_equal(plain.counts.transitions[:, 0, 1, 1, 2], 1)
    np.testing.assert_allclose(plain.counts.rewards[:, 0, 1, 1], 0.5)
    masked = remember(state, one_step(), jnp.asarray(1.0), KEY).counts.transitions[:, 0, 1, 1, 2]
    assert set(np.unique(masked)) == {0.0, 2.0} and 0.35 < float((masked > 0).mean()) < 0.65
    assert float(plain.counts.transitions.sum()) == 200 and float(plain.visits.sum()) == 1


def test_a_member_per_episode_or_per_step():
    policies = jnp.arange(3.0).reshape(3, 1, 1)
    chosen = [behaviour(policies, jnp.asarray(0.0), jax.random.key(i))[0, 0].item() for i in range(30)]
    assert set(chosen) == {0.0, 1.0, 2.0}
    assert behaviour(policies, jnp.asarray(1.0), KEY)[0, 0] == 1.0


def test_policies_that_critics_are_trained_on():
    state = begun(Ensemble("functional", members=3), (1, 2, 2), variant("none"), KEY)
    shapes = {
        name: trained_on(dataclasses.replace(each, members=3), state).shape[:2] for name, each in ENSEMBLES.items()
    }
    assert shapes["functional"] == (3, 3) and shapes["functional-own"] == (3, 1) and shapes["shared"] == (3, 1)


def test_neighbours_are_near_where_there_are_data():
    ensemble = Ensemble("functional", members=3, evaluated="own", neighbours=4)
    state = begun(ensemble, (2, 2, 2), variant("none"), KEY)
    state = dataclasses.replace(state, visits=jnp.array([[3.0, 0.0], [1.0, 2.0]]))
    found = trained_on(ensemble, state)
    assert found.shape == (3, 5, 2, 2)
    moved = jnp.abs(found[:, 1:] - found[:, :1]).max(axis=(0, 1))
    assert moved[0, 1] == 0 and float(jnp.delete(moved.ravel(), 1).min()) > 0.02
    later = trained_on(ensemble, dataclasses.replace(state, visits=state.visits + 1))
    assert not jnp.allclose(later[:, 1:], found[:, 1:])


def test_the_second_term_of_a_member_that_knows_it():
    """Trained at thirty policies near its own, in a world of nine states; before, it knows nothing of slopes."""
    task, ensemble = deep_sea(3), Ensemble("functional", members=2, evaluated="own", neighbours=30, features=30)
    ensemble = dataclasses.replace(ensemble, nearness=0.2, ridge=1e-3)
    state = begun(ensemble, (3, 3, 3), variant("none"), KEY)
    state = dataclasses.replace(state, counts=full_counts(task, 2), visits=jnp.ones((3, 3)))
    rules, weight = Rules(task.shifts, task.gamma, task.ends), jnp.asarray(0.0)

    @jax.jit
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


def test_one_seed_after_the_other_is_all_side_by_side():
    task, small = deep_sea(4), Ensemble("independent", members=4)
    together, _ = run(task, small, variant("prior"), 40, 3)
    alone = episodes_to_solve(task, small, variant("prior"), 40, 3)
    np.testing.assert_array_equal(alone, first_solved(together.bad))


def test_standard_critics_are_greedy():
    ensemble = Ensemble("independent", members=3)
    policies = policies_of(ensemble, begun(ensemble, (1, 2, 2), variant("prior"), KEY))
    assert set(np.unique(policies)) <= {0.0, 1.0}


def test_without_data_priors_stay_and_actors_climb_them():
    ensemble = Ensemble("actors", members=2, actor_limit=2.0)
    state = begun(ensemble, (1, 3, 3), variant("prior"), KEY)
    state = dataclasses.replace(state, visits=jnp.ones((1, 3)))
    after = learn(ensemble, Rules(None, 0.9, False), jnp.asarray(0.0), state)
    np.testing.assert_array_equal(after.critics.weights, state.critics.weights)
    better = jnp.sign(state.critics.weights[:, 0, :, :, 1] - state.critics.weights[:, 0, :, :, 0])
    for _ in range(20):
        after = actor_update(ensemble, after)
    np.testing.assert_array_equal(jnp.sign(after.logits), better)
    assert float(jnp.abs(after.logits).max()) == 2.0


def test_worlds_are_their_tasks():
    task = deep_sea(4)
    world = world_of(task)
    right = jnp.asarray(task.right, jnp.float32)
    steps = play(world, right, KEY)
    np.testing.assert_array_equal(steps.states, np.arange(4))
    assert float(steps.rewards.sum()) == pytest.approx(0.99)
    assert float(expected_return(world, right)) == pytest.approx(0.99)
    river = world_of(river_swim(6))
    assert float(expected_return(river, jnp.zeros((1, 6)))) == pytest.approx(0.1, rel=1e-5)


def test_options_change_what_a_small_ensemble_does():
    """All share a seed, so a difference is the option's. Bootstrapped critics with a prior solve the sea."""
    task, small = deep_sea(4), Ensemble("independent", members=4)
    options = {
        "none": variant("none"),
        "prior": variant("prior"),
        "anchored": variant("anchored"),
        "mask": variant("prior", mask=True),
        "step": variant("prior", per_step=True),
    }
    found = {name: run(task, small, each, 40, 3)[0] for name, each in options.items()}
    paths = [tuple(history.regret.ravel().round(5)) for history in found.values()]
    assert len(set(paths)) == len(paths)
    assert np.isfinite(first_solved(found["prior"].bad)).sum() >= 2
    assert found["prior"].regret.shape == (3, 40)


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
