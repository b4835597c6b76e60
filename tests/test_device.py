"""The device's half of the loop: seeds, streams, warm-up, and what is written where."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic.agents.recipes import find_recipe
from fcritic.training.device import Device, Learning
from fcritic.training.warmup import uniform_actions
from fcritic.types import EnvSpec, Transition

SPEC = EnvSpec(obs_dim=3, act_dim=2)


@pytest.fixture
def learning(tiny):
    return Learning(tiny, SPEC, envs=2, capacity=20, normalize=True, recency=8.0)


def transition(seeds: list[int], number: int) -> Transition:
    """What the environments of these seeds returned at a step, the same for a seed whoever runs beside it."""
    draws = [np.random.default_rng([seed, number]).normal(size=(2, 9)).astype(np.float32) for seed in seeds]
    rows = np.stack(draws)
    return Transition(
        rows[..., :3], rows[..., 3:5], rows[..., 5], np.ones(rows.shape[:2], np.float32), rows[..., 6:]
    )


def run(learning, seeds, warm=3, total=8, change=lambda step: step):
    """A device that has stored and learned so many steps."""
    device = Device(learning, learning.start(seeds))
    for number in range(total):
        step = change(transition(seeds, number))
        device.store(step) if number < warm else device.learn(step, number)
    return device


def member(state, index):
    """One seed of a state, without what all seeds share."""
    parts = (state.agent, state.normalizer, state.replay.rows, state.tally, state.keys)
    return jax.tree.map(lambda leaf: np.asarray(leaf[index]), parts)


def test_a_seed_is_the_same_whoever_runs_beside_it(learning):
    """To rounding: batched kernels may add up in another order. Adam turns rounding of tiny gradients into
    steps, hence the tolerance of a few learning rates."""
    alone, beside = run(learning, [5]).state, run(learning, [4, 5]).state
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-3), member(alone, 0), member(beside, 1)
    )


def test_seeds_do_not_leak_into_each_other(learning):
    """Other transitions for one seed change nothing, bit for bit, in the other."""
    clean = run(learning, [1, 2]).state
    of_second = lambda step: jax.tree.map(lambda leaf: np.stack([leaf[0], leaf[1] + 1]), step)
    changed = run(learning, [1, 2], change=of_second).state
    jax.tree.map(np.testing.assert_array_equal, member(clean, 0), member(changed, 0))
    with pytest.raises(AssertionError):
        jax.tree.map(np.testing.assert_array_equal, member(clean, 1), member(changed, 1))


def test_different_seeds_differ_and_the_same_seed_repeats(learning):
    first, again = run(learning, [1, 2]).state, run(learning, [1, 2]).state
    jax.tree.map(np.testing.assert_array_equal, member(first, 0), member(again, 0))
    weights = first.agent.actors.params.network.layers[0].weight
    assert not np.allclose(weights[0], weights[1])


def test_two_iterations_see_different_batches_and_actions(learning):
    """The same state and iteration give the same numbers; another iteration gives others."""
    device = run(learning, [1], total=5)
    state, weights = device.state, []
    for iteration in (7, 7, 8):
        device.put(jax.tree.map(lambda leaf: leaf.copy(), state), device.memory)
        device.learn(transition([1], 5), iteration)
        weights.append(np.asarray(device.state.agent.critics.params.head.joint.layers[0].weight))
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[1], weights[2])
    actions = [uniform_actions(np.asarray(state.keys), i, (1, 2, 2))[0] for i in (0, 0, 1)]
    np.testing.assert_array_equal(actions[0], actions[1])
    assert not np.array_equal(actions[1], actions[2])
    assert not np.array_equal(actions[0][0, 0], actions[0][0, 1])  # environments have their own numbers


def test_memory_is_redrawn_only_where_an_episode_begins(learning):
    device = Device(learning, learning.start([3]))
    obs = np.zeros((1, 2, 3), np.float32)
    seen = set()
    for iteration in range(30):
        before = device.memory
        device.act(obs, np.array([[False, True]]), iteration)
        assert int(device.memory[0, 0]) == int(before[0, 0])
        seen.add(int(device.memory[0, 1]))
    assert seen == {0, 1, 2}


def test_warm_up_stores_without_learning(learning):
    before = learning.start([1])
    weights = np.asarray(before.agent.critics.params.head.joint.layers[0].weight)
    device = Device(learning, before)
    device.store(transition([1], 0))
    device.flush()
    after = device.state
    np.testing.assert_array_equal(after.agent.critics.params.head.joint.layers[0].weight, weights)
    assert int(after.replay.written) == 1 and not after.tallied.any()


def test_to_look_at_the_state_changes_nothing(learning):
    """Steps that are kept back are handed over by `flush` alone; until then there is no whole state to look at."""
    device = Device(learning, learning.start([1]))
    device.store(transition([1], 0))
    leaves = device.leaves
    with pytest.raises(RuntimeError, match=r"1 steps are not in the replay yet; call flush\(\) first"):
        _ = device.state
    assert device.leaves is leaves
    device.flush()
    assert int(device.state.replay.written) == int(device.state.replay.written) == 1


def test_metrics_are_means_since_they_were_taken(learning):
    device = run(learning, [1, 2])
    summed, counts = device.state.tally, device.state.tallied
    means = device.take_metrics()
    np.testing.assert_array_equal(counts, [15, 5])  # five iterations of three critic updates and one of the actors
    np.testing.assert_allclose(means["critic_loss"], summed[0]["critic_loss"] / 15, rtol=1e-6)
    np.testing.assert_allclose(means["actor_value"], summed[1]["actor_value"] / 5, rtol=1e-6)
    assert device.take_metrics() == {} and not device.state.tallied.any()


def test_acting_uses_normalised_observations(learning):
    device = run(learning, [1])
    state, fresh = device.state, np.zeros((1, 2), bool)
    obs = jnp.full((1, 2, 3), 0.7)
    action, memory = device.act(obs, fresh, 0), device.memory
    agent, normalizer = jax.tree.map(lambda leaf: leaf[0], (state.agent, state.normalizer))
    expected = learning.agent.act(agent.actors.params, memory[0, 0], normalizer(obs[0, 0]), jax.random.key(0))[0]
    np.testing.assert_allclose(action[0, 0], expected, rtol=1e-4)
    raw = dataclasses.replace(learning, normalize=False)
    expected = learning.agent.act(agent.actors.params, memory[0, 0], obs[0, 0], jax.random.key(0))[0]
    np.testing.assert_allclose(Device(raw, state).act(obs, fresh, 0)[0, 0], expected, rtol=1e-4)


def test_the_update_is_compiled_once(learning, monkeypatch):
    compiled, own = [], Device.lowered
    monkeypatch.setattr(Device, "lowered", lambda self, which: compiled.append(which) or own(self, which))
    device = run(learning, [1])
    device.put(device.state, device.memory)
    device.learn(transition([1], 8), 8)
    assert compiled == [(True,)]


@pytest.mark.parametrize("recipe", ["tiny fac", "sac", "td3"])
def test_the_ring_is_never_copied(learning, recipe):
    """The compiler once rearranged whole fields of the ring in every iteration to please one matrix product."""
    if recipe != "tiny fac":
        agent = dataclasses.replace(find_recipe(recipe), batch_size=8)
        learning = dataclasses.replace(learning, agent=agent)
    learning = dataclasses.replace(learning, capacity=977)
    lowered = Device(learning, learning.start([1, 2])).lowered(learning.agent.actor_due(1))
    program = lowered.compile({"xla_backend_optimization_level": 0})  # machine code only: the text is the same
    shapes = re.findall(r"= f32\[([\d,]+)\][^ ]* copy\(", program.as_text())
    assert [shape for shape in shapes if "977" in shape.split(",")] == []
