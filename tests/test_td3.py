"""TD3: its target, its noise and its delayed actor against values worked out by hand."""

import dataclasses

from fixed_critics import KEY, SMALL
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic.agents import critic_ensemble
from fcritic.agents.base import update
from fcritic.agents.td3 import TD3, smoothing_noise
from fcritic.types import Transition


def test_smoothing_noise_is_normal_and_clipped():
    noise = np.asarray(smoothing_noise((20_000, 2), 0.2, 0.5, KEY))
    assert abs(noise).max() == pytest.approx(0.5)
    assert (abs(noise) == 0.5).mean() == pytest.approx(0.0124, abs=0.003)  # P(|N| > 2.5)
    assert noise.std() == pytest.approx(0.2, abs=0.005)
    tight = np.asarray(smoothing_noise((1000, 2), 0.2, 0.01, KEY))
    assert abs(tight).max() == pytest.approx(0.01)


def test_the_target_of_td3_by_hand(spec, batch, monkeypatch):
    """The minimum of both targets at the target actor's noisy action, which stays within bounds."""
    agent = TD3(discount=0.9, smoothing_scale=100.0, smoothing_clip=0.25, **SMALL)
    seen = []

    def values(critics, obs, act):
        seen.append(act)
        return jnp.stack([act.sum(axis=1), 1.0 + act.sum(axis=1)])

    monkeypatch.setattr(critic_ensemble, "values", values)
    state = agent.init(spec, KEY)
    found = agent.critic_target(state, batch, KEY)
    plain = np.asarray(jax.vmap(state.target_actor)(batch.next_obs))
    np.testing.assert_allclose(abs(np.asarray(seen[0]) - plain), np.full((5, 2), 0.25), rtol=1e-4)
    expected = np.asarray(batch.reward) + 0.9 * np.asarray(batch.discount) * np.asarray(seen[0]).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    full = dataclasses.replace(agent, smoothing_clip=5.0)
    full.critic_target(state, batch, KEY)
    assert abs(np.asarray(seen[1])).max() == 1.0


def test_exploration_noise_remembers_itself(spec):
    agent = TD3(noise_scale=0.2, noise_memory=0.85, **SMALL)
    policy, memory = agent.init(spec, KEY).actor.params, agent.begin_episode(spec, KEY)
    assert memory.tolist() == [0.0, 0.0]
    act = jax.jit(lambda memory, key: agent.act(policy, memory, jnp.zeros(3), key)[1])
    track = []
    for key in jax.random.split(KEY, 4000):
        memory = act(memory, key)
        track.append(np.asarray(memory))
    track = np.array(track)[100:]
    assert track.std() == pytest.approx(0.2 / np.sqrt(1 - 0.85**2), abs=0.03)  # 0.38, the stationary deviation
    assert np.corrcoef(track[1:, 0], track[:-1, 0])[0, 1] == pytest.approx(0.85, abs=0.03)


def batches(agent, batch: Transition) -> Transition:
    count = agent.batches_per_iteration
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), batch)


def test_the_delayed_actor_and_its_targets_move_every_second_iteration(spec, batch):
    agent = TD3(**SMALL)
    state = agent.init(spec, KEY)
    step = lambda state, i: update(agent, state, batches(agent, batch), KEY, agent.actor_due(i))
    same = lambda a, b: all(
        bool((x == y).all()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )
    first, (_, skipped) = step(state, 0)
    assert not same(first.critics.params, state.critics.params)
    assert (
        same(first.actor, state.actor) and same(first.targets, state.targets) and float(skipped["actor_value"]) == 0
    )
    second, _ = step(first, 1)
    assert not same(second.actor.params, state.actor.params)
    assert not same(second.targets, state.targets) and not same(second.target_actor, state.target_actor)
    assert [agent.actor_updates_before(i) for i in range(5)] == [0, 0, 1, 1, 2]
    mixed = TD3(cycles=3, **SMALL)
    assert [mixed.actor_due(i) for i in range(2)] == [(False, True, False), (True, False, True)]
    _, (critic, actor) = update(mixed, state, batches(mixed, batch), KEY, mixed.actor_due(1))
    assert float(critic["critic_loss"]) > 0 and float(actor["actor_value"]) != 0
