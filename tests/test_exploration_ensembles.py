"""Ensembles of critics: each option does what it says, and nothing else."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_exploration_critics import KEY, begun

from fcritic.envs.exact import deep_sea, river_swim
from fcritic.exploration.ensembles import Ensemble, policies_of, trained_on, variant
from fcritic.exploration.known import first_solved
from fcritic.exploration.learning import (
    Rules,
    Steps,
    actor_update,
    behaviour,
    episodes_to_solve,
    expected_return,
    learn,
    play,
    remember,
    run,
    world_of,
)
from studies.exploration.methods import ENSEMBLES


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
