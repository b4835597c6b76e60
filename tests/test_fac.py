"""The agent: which update touches what, and who does not hear of whom."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick_programs import actor_step, critic_step, quick_jit
from test_losses import start

from fcritic import ensembles
from fcritic.agents import base
from fcritic.agents.base import Learner, options_of, update
from fcritic.agents.fac import FAC, Explore
from fcritic.agents.recipes import RECIPES, find_recipe
from fcritic.errors import UsageError

KEY = jax.random.key(3)


def same(a, b) -> bool:
    return all(bool((x == y).all()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def without(tree, index):
    return jax.tree.map(lambda leaf: jnp.delete(leaf, index, axis=0), tree)


def test_a_critic_step_moves_critics_and_targets_only(tiny, spec, batch):
    state = start(tiny, spec)
    after, metrics = critic_step(tiny, state, batch, KEY)
    assert same(after.actors, state.actors)
    for part in ("encoder", "head"):
        old, new = getattr(state.critics.params, part), getattr(after.critics.params, part)
        assert all(bool((x != y).any()) for x, y in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True))
    assert all(np.isfinite(float(value)) for value in metrics.values())


@pytest.mark.parametrize(
    "optimiser", [optax.adam(0.1), optax.chain(optax.clip(1.0), optax.add_decayed_weights(0.1), optax.adam(0.1))]
)
def test_a_learner_counts_its_updates_wherever_its_optimiser_does(optimiser):
    learner = Learner.start({"weight": np.ones(2, np.float32)}, optimiser)
    for updates in range(3):
        assert int(learner.updates) == updates
        learner = learner.apply({"weight": jnp.ones(2)}, optimiser)
    with pytest.raises(TypeError, match="counts no updates"):
        _ = Learner.start(learner.params, optax.sgd(0.1)).updates


def test_polyak_moves_the_two_delayed_parts_by_tau(tiny, spec, batch):
    agent = dataclasses.replace(tiny, tau=0.25)
    state = start(agent, spec)
    after, _ = critic_step(agent, state, batch, KEY)
    expected = jax.tree.map(lambda old, new: 0.75 * old + 0.25 * new, state.targets, after.critics.params.head)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), after.targets, expected)
    assert jax.tree.structure(after.targets) == jax.tree.structure(after.critics.params.head)


def test_an_actor_step_moves_actors_only(tiny, spec, batch):
    state = start(tiny, spec)
    after, _ = actor_step(tiny, state, batch, KEY)
    assert same(after.critics, state.critics) and same(after.targets, state.targets)
    assert not same(after.actors.params, state.actors.params)


def test_several_actor_steps_are_so_many_steps_on_the_same_batch(tiny, spec, batch):
    state = start(tiny, spec)
    after, metrics = actor_step(dataclasses.replace(tiny, actor_steps=3), state, batch, KEY)
    for _ in range(3):
        state, last = actor_step(tiny, state, batch, KEY)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, after.actors.params, state.actors.params)
    assert float(metrics["actor_value"]) == pytest.approx(float(last["actor_value"]), rel=1e-4)
    with pytest.raises(UsageError, match=r"--actor-steps must be at least 1"):
        dataclasses.replace(tiny, actor_steps=0)


def test_an_actor_step_raises_the_value_that_its_critic_gives(tiny, spec, batch):
    """Ascent: the paper prints minus in two algorithms and plus in a third."""
    state = start(tiny, spec)
    before = actor_step(tiny, state, batch, KEY)[1]["actor_value"]
    for _ in range(20):
        state, metrics = actor_step(tiny, state, batch, KEY)
    assert metrics["actor_value"] > before + 1e-4


def test_a_critic_does_not_hear_of_another_critic(tiny, spec, batch):
    state = start(tiny, spec)
    shake = lambda tree: jax.tree.map(lambda leaf: leaf.at[1].add(0.3), tree)
    shaken = dataclasses.replace(
        state,
        critics=dataclasses.replace(state.critics, params=shake(state.critics.params)),
        targets=shake(state.targets),
    )
    after, after_shaken = (critic_step(tiny, s, batch, KEY)[0] for s in (state, shaken))
    assert same(without(after.critics.params, 1), without(after_shaken.critics.params, 1))
    assert same(without(after.targets, 1), without(after_shaken.targets, 1))
    assert not same(after.critics.params, after_shaken.critics.params)


def test_an_actor_hears_of_its_own_critic_only(tiny, spec, batch):
    state = start(tiny, spec)
    params = jax.tree.map(lambda leaf: leaf.at[1].add(0.3), state.critics.params)
    shaken = dataclasses.replace(state, critics=dataclasses.replace(state.critics, params=params))
    after, after_shaken = (actor_step(tiny, s, batch, KEY)[0].actors.params for s in (state, shaken))
    assert same(without(after, 1), without(after_shaken, 1))
    assert not same(ensembles.member(after, 1), ensembles.member(after_shaken, 1))


def test_without_pairing_actors_hear_of_other_critics(tiny, spec, batch):
    agent = dataclasses.replace(tiny, pairing="mean")
    state = start(agent, spec)
    params = jax.tree.map(lambda leaf: leaf.at[1].add(0.3), state.critics.params)
    shaken = dataclasses.replace(state, critics=dataclasses.replace(state.critics, params=params))
    after, after_shaken = (actor_step(agent, s, batch, KEY)[0].actors.params for s in (state, shaken))
    assert not same(without(after, 1), without(after_shaken, 1))


def test_every_critic_learns_from_every_actor_but_a_plain_one_from_its_own(tiny, spec, batch):
    for functional in (True, False):
        agent = dataclasses.replace(tiny, functional=functional)
        state = start(agent, spec)
        actors = jax.tree.map(lambda leaf: leaf.at[2].add(0.5), state.actors.params)
        moved = dataclasses.replace(state, actors=dataclasses.replace(state.actors, params=actors))
        one, other = (critic_step(agent, s, batch, KEY)[0].critics.params for s in (state, moved))
        assert same(ensembles.member(one, 0), ensembles.member(other, 0)) == (not functional)
        assert not same(ensembles.member(one, 2), ensembles.member(other, 2))


def test_one_update_is_g_critic_steps_then_one_actor_step(tiny, spec, batch):
    """The scan against the loop of the paper, each update with its own batch."""
    state = start(tiny, spec)
    batches = jax.tree.map(lambda leaf: jnp.stack([leaf * s for s in (1.0, 0.5, 0.25, 2.0)]), batch)
    after, _ = quick_jit(lambda s: update(tiny, s, batches, KEY, (True,)))(state)
    expected = state
    for g in range(3):
        expected, _ = critic_step(tiny, expected, jax.tree.map(lambda leaf, g=g: leaf[g], batches), KEY)
    expected, _ = actor_step(tiny, expected, jax.tree.map(lambda leaf: leaf[3], batches), KEY)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5), after, expected)


def test_an_iteration_that_is_written_out_for_a_gpu_is_the_same(tiny, spec, batch, monkeypatch):
    """No loop over critic updates, and all of it in a loop of one round, how many being told at run time."""
    agent = dataclasses.replace(tiny, precision="float32")
    batches = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1], 2 * leaf, leaf + 1]), batch)
    state = start(agent, spec)
    run = lambda *given: update(agent, given[0], batches, jax.random.key(3), (True,), given[1])
    iterate = lambda: quick_jit(lambda *given: run(*given))
    loops = lambda: str(iterate().trace(state, jnp.asarray(1)).jaxpr).count("while[")
    assert loops() == 0
    wanted = iterate()(state, jnp.asarray(1))
    monkeypatch.setattr(base, "on_gpu", lambda: True)
    assert loops() == 1
    written_out = iterate()
    found = written_out(state, jnp.asarray(1))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), found, wanted)
    untouched = written_out(state, jnp.asarray(0))[0]
    jax.tree.map(np.testing.assert_array_equal, untouched, state)


def test_the_rollout_actor_is_drawn_per_episode_and_acts_without_noise(tiny, spec):
    drawn = jax.vmap(lambda key: tiny.begin_episode(spec, key))(jax.random.split(KEY, 300))
    assert set(np.asarray(drawn).tolist()) == {0, 1, 2}
    state, obs = start(tiny, spec), jnp.array([0.1, -0.4, 2.0])
    for index in range(3):
        action = tiny.act(state.actors.params, jnp.array(index), obs, KEY)[0]
        np.testing.assert_allclose(action, ensembles.member(state.actors.params, index)(obs), rtol=1e-5)
        np.testing.assert_array_equal(
            action, tiny.act(state.actors.params, jnp.array(index), obs, jax.random.key(99))[0]
        )
    per_step = dataclasses.replace(tiny, explore=Explore(per_step=True))
    actions = {
        float(per_step.act(state.actors.params, jnp.array(0), obs, jax.random.key(i))[0][0]) for i in range(30)
    }
    assert len(actions) == 3


@pytest.mark.parametrize("per_step", [False, True])
def test_where_one_actor_collects_only_the_first_acts(tiny, spec, per_step):
    alone = dataclasses.replace(tiny, explore=Explore(actors=1, per_step=per_step))
    state, obs = start(alone, spec), jnp.array([0.1, -0.4, 2.0])
    first = ensembles.member(state.actors.params, 0)(obs)
    for number in range(20):
        key = jax.random.key(number)
        action = alone.act(state.actors.params, alone.begin_episode(spec, key), obs, key)[0]
        np.testing.assert_allclose(action, first, rtol=1e-5)
    with pytest.raises(UsageError, match=r"--explore\.actors must be at most the members, 3, not 4"):
        dataclasses.replace(tiny, explore=Explore(actors=4))


def test_exploration_noise_remembers_itself_and_is_unknown_to_the_critics(tiny, spec, batch):
    noisy = dataclasses.replace(tiny, explore=Explore(noise=0.2, memory=0.5))
    state, obs = start(noisy, spec), jnp.array([0.1, -0.4, 2.0])
    memory = noisy.begin_episode(spec, KEY)
    np.testing.assert_array_equal(memory.noise, np.zeros(spec.act_dim))
    plain = ensembles.member(state.actors.params, memory.actor)(obs)
    expected = np.zeros(spec.act_dim)
    for number in range(5):
        key = jax.random.key(number)
        action, memory = noisy.act(state.actors.params, memory, obs, key)
        expected = 0.5 * expected + 0.2 * np.asarray(jax.random.normal(key, (spec.act_dim,)))
        np.testing.assert_allclose(memory.noise, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(action, np.clip(plain + expected, -1, 1), rtol=1e-5, atol=1e-6)
    learned = [critic_step(agent, state, batch, KEY)[0].critics.params for agent in (tiny, noisy)]
    assert same(*learned)
    with pytest.raises(UsageError, match=r"--explore\.memory"):
        Explore(memory=1.0)


def test_recipes_change_what_they_say():
    changed = lambda name: dict(options_of(find_recipe(name)).items() - options_of(FAC()).items())
    assert changed("fac") == {}
    assert changed("fac-shared") == {"encoder.shared": True}
    assert changed("fac-first-term") == {"second_term": 0.0}
    assert changed("fac-plain") == {"functional": False}
    assert all(line for _, line in RECIPES.values())
    with pytest.raises(UsageError, match="did you mean fac-shared"):
        find_recipe("fac-shred")


def test_impossible_sizes_are_refused_by_the_name_of_their_option(tiny):
    with pytest.raises(UsageError, match="--members must be at least 1"):
        dataclasses.replace(tiny, members=0)
    with pytest.raises(UsageError, match="names layer -4"):
        dataclasses.replace(tiny, encoder=dataclasses.replace(tiny.encoder, layers=(-4,)))
