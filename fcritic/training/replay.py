"""Uniform replay: a ring of transitions that lives on the device."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray
import numpy as np

from fcritic.types import EnvSpec, Transition

CUT, SMALLEST_VARIANCE = 10.0, 1e-6
"""Deviations at which a normalised observation is cut, and what keeps a constant one from a division by zero."""


class Replay(eqx.Module):
    """The last `capacity` steps of every environment, the buffer R of `alg-nn`.

    Rows are time, columns environments, and a whole transition is one strip of numbers: it is written and read in
    one piece, and no consumer of a field can make the compiler rearrange (that is, copy) the ring. All seeds step
    together, so they share one cursor: an index that is not batched keeps the write a cheap slice update when the
    rows are vmapped over seeds.
    """

    rows: Float[Array, "capacity envs width"]
    written: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """How many steps per environment fit."""
        return self.rows.shape[-3]


def width_of(spec: EnvSpec) -> int:
    """Numbers in one transition."""
    return 2 * spec.obs_dim + spec.act_dim + 2


def empty(spec: EnvSpec, envs: int, capacity: int, *axes: int) -> Replay:
    """A ring without transitions, or several of them with one cursor, along leading axes of the rows."""
    return Replay(jnp.zeros((*axes, capacity, envs, width_of(spec))), jax.device_put(np.int32(0)))


def pack(transition: Transition) -> Float[np.ndarray, "*axes width"]:
    """A transition from the host as strips."""
    scalars = (transition.reward[..., None], transition.discount[..., None])
    parts = (transition.obs, transition.act, *scalars, transition.next_obs)
    return np.concatenate(parts, axis=-1, dtype=np.float32)


def unpack(rows: Float[Array | np.ndarray, "*axes width"], spec: EnvSpec) -> Transition:
    """The reverse of `pack`; on the host where the strips are."""
    split = np.split if isinstance(rows, np.ndarray) else jnp.split
    ends = np.cumsum([spec.obs_dim, spec.act_dim, 1, 1]).tolist()
    obs, act, reward, discount, next_obs = split(rows, ends, axis=-1)
    return Transition(obs, act, reward[..., 0], discount[..., 0], next_obs)


def add(replay: Replay, row: Float[Array, "envs width"]) -> Replay:
    """Stores one step of every environment (line 9), over the oldest one where the ring is full."""
    cursor = replay.written % replay.capacity
    rows = jax.lax.dynamic_update_index_in_dim(replay.rows, row, cursor, 0)
    return Replay(rows, replay.written + 1)


def sample(replay: Replay, spec: EnvSpec, shape: tuple[int, ...], key: PRNGKeyArray) -> Transition:
    """Returns transitions drawn uniformly, with replacement, in the given shape."""
    capacity, envs, width = replay.rows.shape
    filled = jnp.minimum(replay.written, capacity).astype(jnp.uint32)
    # The remainder favours low indices by at most (filled * envs) / 2^32.
    index = jax.random.bits(key, shape) % (filled * envs)
    return unpack(replay.rows.reshape(capacity * envs, width)[index], spec)


def sample_newest(
    replay: Replay, spec: EnvSpec, shape: tuple[int, ...], key: PRNGKeyArray, share: float = 0.05
) -> Transition:
    """Returns transitions drawn uniformly from the newest share of the ring, at least one step."""
    capacity, envs, _ = replay.rows.shape
    newest = jnp.maximum(1, jnp.minimum(replay.written, capacity) * share).astype(jnp.uint32) * envs
    index = (jax.random.bits(key, shape) % newest).astype(jnp.int32)
    steps = (replay.written - 1 - index // envs) % capacity
    return unpack(replay.rows[steps, index % envs], spec)


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
        numbers = (np.zeros(obs_dim, np.float32), np.ones(obs_dim, np.float32), np.int32(0))
        return Normalizer(*map(jax.device_put, numbers))

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
        return jnp.clip((obs - mean) / jnp.sqrt(variance + SMALLEST_VARIANCE), -CUT, CUT)

    def undo(self, obs: Float[Array, "*axes obs"]) -> Float[Array, "*axes obs"]:
        """Raw observations from normalised ones that were not cut."""
        mean, variance = (jnp.broadcast_to(value, obs.shape) for value in (self.mean, self.variance))
        return obs * jnp.sqrt(variance + SMALLEST_VARIANCE) + mean
