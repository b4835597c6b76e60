"""The warm-up: actions drawn ahead and steps stored in blocks are those of single iterations."""

import dataclasses

import jax
import numpy as np
import pytest
from short_trainings import SPEC, config, training_of

from fcritic.runs.directory import RunDirectory
from fcritic.runs.fingerprint import fingerprint
from fcritic.training import device as device_module
from fcritic.training import replay, warmup
from fcritic.training.device import Device, Learning
from fcritic.training.loop import Training, train
from fcritic.training.signals import Interrupted
from fcritic.types import Transition

__all__ = ["config"]


def test_actions_by_chance_are_those_that_jax_draws_from_the_keys_of_an_iteration():
    streams = np.array([[0, 3], [7, 2**32 - 1]], np.uint32)

    @jax.jit
    def drawn(stream, iteration):
        key = jax.random.fold_in(jax.random.wrap_key_data(stream), iteration)
        keys = jax.random.split(jax.random.split(key)[0], 3)
        return jax.vmap(lambda own: jax.random.uniform(jax.random.split(own)[1], (2,), minval=-1.0))(keys)

    actions = warmup.uniform_actions(streams, 1000, (5, 3, 2))
    assert actions.shape == (5, 2, 3, 2) and actions.dtype == np.float32
    for number in range(5):
        for seed in range(2):
            expected = drawn(streams[seed], np.uint32(1000 + number))
            np.testing.assert_array_equal(actions[number, seed], expected)
    many = warmup.uniform_actions(streams, 0, (4000, 3, 2))
    assert np.abs(many).max() <= 1 and abs(many.mean()) < 0.01 and abs(many.std() - 3**-0.5) < 0.01
    assert len(np.unique(many)) > 0.99 * many.size


def test_where_a_block_begins_does_not_matter():
    chance = lambda: warmup.Chance(np.array([[1, 2]], np.uint32), 2, 3)
    one, other = chance(), chance()
    for number in (0, 1, 2, 131, 500, 499):  # forwards, over the end of a block, and back
        np.testing.assert_array_equal(one.actions(number), chance().actions(number))
    assert not np.array_equal(one.actions(0), other.actions(1))


def test_an_episode_remembers_who_was_drawn_when_it_began(tiny):
    """As if the device had been asked in every iteration."""
    learning = Learning(tiny, SPEC, envs=2, capacity=20, normalize=True, recency=8.0)
    state = learning.start([4, 5])
    begun = np.array([[0, 17], [9, 30]])
    device = Device(learning, state)
    device.remember(warmup.Chance(np.asarray(state.keys), 2, SPEC.act_dim).episode_keys(begun))
    found = device.memory
    obs, all_fresh = np.zeros((2, 2, 3), np.float32), np.ones((2, 2), bool)
    for (seed, env), iteration in np.ndenumerate(begun):
        device.act(obs, all_fresh, iteration)
        assert int(found[seed, env]) == int(device.memory[seed, env])


def step_number(number: int) -> Transition:
    rows = np.random.default_rng(number).normal(size=(2, 2, 10)).astype(np.float32)
    return Transition(rows[..., :3], rows[..., 3:5], rows[..., 5], rows[..., 6], rows[..., 7:])


@pytest.mark.parametrize("capacity", [5, 7, 100])
@pytest.mark.parametrize("block", [1, 4, 128])
def test_blocks_fill_the_ring_as_single_steps_do(tiny, monkeypatch, capacity, block):
    monkeypatch.setattr(device_module, "BLOCK", block)
    learning = Learning(tiny, SPEC, envs=2, capacity=capacity, normalize=True, recency=8.0)
    rows = np.zeros((2, capacity, 2, replay.width_of(SPEC)), np.float32)
    device = Device(learning, learning.start([1, 2]))
    for number in range(18):
        device.store(step_number(number))
        rows[:, number % capacity] = replay.pack(step_number(number))
        if number in (2, 3, 11, 17):  # someone looks: what is left is stored, nothing twice
            device.flush()
            device.flush()
            np.testing.assert_array_equal(device.state.replay.rows, rows)
            assert int(device.state.replay.written) == number + 1


def test_the_state_of_a_training_in_its_warm_up_holds_all_but_the_pending_step(config, tmp_path):
    with training_of(config, tmp_path / "run") as training:
        for number in range(1, 12):
            training.advance(1)
            if number % 3 == 0 or number == 11:
                training.device.flush()
                assert int(training.device.state.replay.written) == number - 1
        state = training.device.state
        stored = replay.unpack(state.replay.rows[:, :10], training.vector.spec)
        expected = warmup.uniform_actions(np.asarray(state.keys), 0, (10, 2, 1))
        np.testing.assert_array_equal(np.moveaxis(stored.act, 1, 0), expected)


@pytest.mark.parametrize("actions", ["uniform", "policy"])
def test_a_warm_up_stopped_anywhere_is_the_uninterrupted_one(config, tmp_path, monkeypatch, actions):
    config = dataclasses.replace(config, warmup_actions=actions)
    whole = train(config, tmp_path / "whole", quiet=True)
    for module in (warmup, device_module):  # other blocks change nothing either
        monkeypatch.setattr(module, "BLOCK", 7)
    for stop in (1, 9, 44, 45, 46):  # 45: the last before learning begins
        with RunDirectory.create_or_open(tmp_path / "parts", config.to_json(), "test") as run:
            training = Training.begin(config, run, quiet=True)
            training.advance(stop - training.progress.iteration)
            training.stop.number = 15
            with pytest.raises(Interrupted):
                training.run()
    parts = train(config, tmp_path / "parts", quiet=True)
    assert fingerprint(whole.path) == fingerprint(parts.path)
