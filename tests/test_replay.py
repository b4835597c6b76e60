"""The ring and the normaliser against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np

from fcritic.training import replay
from fcritic.training.replay import Normalizer
from fcritic.types import EnvSpec, Transition

SPEC = EnvSpec(obs_dim=2, act_dim=1)


def step(number: int, envs: int) -> Transition:
    """A transition whose every field tells its time and environment."""
    tag = 100.0 * number + np.arange(envs)
    column = tag[:, None]
    return Transition(np.tile(column, 2), column, tag, np.full(envs, number % 2), np.tile(column + 0.5, 2))


def test_the_ring_keeps_the_last_steps_of_every_environment():
    ring = replay.empty(SPEC, envs=3, capacity=4)
    for number in range(6):
        ring = replay.add(ring, replay.pack(step(number, 3)))
    assert int(ring.written) == 6
    stored = sorted(np.asarray(replay.unpack(ring.rows, SPEC).reward).ravel().tolist())
    assert stored == sorted(100.0 * n + e for n in (2, 3, 4, 5) for e in range(3))


def test_samples_are_whole_transitions_drawn_evenly_from_what_was_written():
    ring = replay.empty(SPEC, envs=2, capacity=10)
    for number in range(5):
        ring = replay.add(ring, replay.pack(step(number, 2)))
    batch = replay.sample(ring, SPEC, (3, 4000), jax.random.key(0))
    assert batch.obs.shape == (3, 4000, 2) and batch.reward.shape == (3, 4000)
    np.testing.assert_array_equal(batch.obs[..., 0], batch.reward)
    np.testing.assert_array_equal(batch.next_obs[..., 1], batch.reward + 0.5)
    np.testing.assert_array_equal(batch.discount, (batch.reward // 100) % 2)
    found, counts = np.unique(np.asarray(batch.reward), return_counts=True)
    assert found.tolist() == sorted(100.0 * n + e for n in range(5) for e in range(2))
    assert abs(counts / 12000 - 0.1).max() < 0.015  # five deviations


def test_a_full_ring_is_sampled_whole():
    ring = replay.empty(SPEC, envs=1, capacity=3)
    for number in range(7):
        ring = replay.add(ring, replay.pack(step(number, 1)))
    batch = replay.sample(ring, SPEC, (300,), jax.random.key(1))
    assert set(np.asarray(batch.reward).tolist()) == {400.0, 500.0, 600.0}


def test_equal_weights_give_the_mean_and_variance_of_all_batches():
    batches = np.random.default_rng(0).normal(3.0, 2.0, (20, 50, 4)).astype(np.float32)
    normalizer = Normalizer.identity(4)
    for batch in batches:
        normalizer = normalizer.update(jnp.asarray(batch), recency=1.0)
    everything = batches.reshape(-1, 4)
    np.testing.assert_allclose(normalizer.mean, everything.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(normalizer.variance, everything.var(axis=0), rtol=1e-4)
    scaled = normalizer(jnp.asarray(everything))
    np.testing.assert_allclose(scaled.mean(axis=0), np.zeros(4), atol=1e-4)
    np.testing.assert_allclose(scaled.std(axis=0), np.ones(4), rtol=1e-3)


def test_recent_batches_count_more_when_asked_to():
    normalizer = even = Normalizer.identity(1)
    for value in [0.0] * 20 + [1.0] * 20:
        batch = jnp.full((5, 1), value)
        normalizer, even = normalizer.update(batch, recency=8.0), even.update(batch, recency=1.0)
    assert abs(float(even.mean[0]) - 0.5) < 1e-5 < 0.9 < float(normalizer.mean[0])


def test_a_sensor_that_hardly_moves_is_cut_off():
    normalizer = Normalizer.identity(2).update(jnp.zeros((10, 2)), recency=1.0)
    np.testing.assert_allclose(normalizer(jnp.array([5.0, -5.0])), [10.0, -10.0])
