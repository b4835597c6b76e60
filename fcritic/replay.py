"""Uniform replay: a ring of transitions that lives on the device."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fcritic.types import EnvSpec, Transition


class Replay(eqx.Module):
    """The last `capacity` steps of every environment, the buffer R of `alg-nn`.

    Rows are time, columns environments. All seeds step together, so they share one cursor: an index that is
    not batched keeps the write a cheap slice update when the rows are vmapped over seeds.
    """

    rows: Transition
    written: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """How many steps per environment fit."""
        return self.rows.reward.shape[-2]


def empty(spec: EnvSpec, envs: int, capacity: int) -> Replay:
    """A ring without transitions."""
    zeros = lambda *shape: jnp.zeros((capacity, envs, *shape))
    rows = Transition(zeros(spec.obs_dim), zeros(spec.act_dim), zeros(), zeros(), zeros(spec.obs_dim))
    return Replay(rows, jnp.zeros((), jnp.int32))


def add(replay: Replay, transition: Transition) -> Replay:
    """Stores one step of every environment (line 9), over the oldest one where the ring is full."""
    cursor = replay.written % replay.capacity
    write = lambda ring, new: jax.lax.dynamic_update_index_in_dim(ring, new.astype(ring.dtype), cursor, 0)
    return Replay(jax.tree.map(write, replay.rows, transition), replay.written + 1)


def sample(replay: Replay, shape: tuple[int, ...], key: PRNGKeyArray) -> Transition:
    """Transitions drawn uniformly, with replacement, in the given shape."""
    row_key, env_key = jax.random.split(key)
    filled = jnp.minimum(replay.written, replay.capacity)
    row = jax.random.randint(row_key, shape, 0, filled)
    env = jax.random.randint(env_key, shape, 0, replay.rows.reward.shape[-1])
    return jax.tree.map(lambda ring: ring[row, env], replay.rows)


class Normalizer(eqx.Module):
    """Running mean and variance of the observations, learned from replayed batches.

    The k-th update has rate w / (w + k): with w = 1 all batches count alike, with a larger w late ones count
    more, since early ones came from worse policies. Networks and probes live in the normalised space.
    """

    mean: Float[Array, " obs"]
    variance: Float[Array, " obs"]
    updates: Int[Array, ""]

    @staticmethod
    def identity(obs_dim: int) -> "Normalizer":
        """Changes nothing until its first update."""
        return Normalizer(jnp.zeros(obs_dim), jnp.ones(obs_dim), jnp.zeros((), jnp.int32))

    def update(self, obs: Float[Array, "*axes obs"], recency: float) -> "Normalizer":
        """Moves toward the statistics of a batch."""
        batch = obs.reshape(-1, obs.shape[-1])
        rate = recency / (recency + self.updates)
        delta = batch.mean(axis=0) - self.mean
        mean = self.mean + rate * delta
        # The spread of a mixture: spread within each part, plus that between the two means.
        variance = (1 - rate) * self.variance + rate * batch.var(axis=0) + rate * (1 - rate) * delta**2
        return Normalizer(mean, variance, self.updates + 1)

    def __call__(self, obs: Float[Array, "*axes obs"]) -> Float[Array, "*axes obs"]:
        """Observations with mean 0 and variance 1, cut at 10 deviations against rare sensors."""
        mean, variance = (jnp.broadcast_to(value, obs.shape) for value in (self.mean, self.variance))
        return jnp.clip((obs - mean) / jnp.sqrt(variance + 1e-6), -10.0, 10.0)
