"""Random streams: Threefry-2x32, the same numbers as JAX's default generator, in far fewer operations on a CPU.

JAX compiles every use of its generator on a CPU to a loop of many tiny operations: they were half of all operations
of a SAC update. Written out round by round, XLA makes each use one fused operation. Keys made here are
ordinary JAX keys: `jax.random` works on them.

Outside of compiled programs the same rounds are computed by NumPy: as single operations of JAX they took most of
the time in which a training starts.
"""

from collections.abc import Hashable
import functools
import math
from types import ModuleType

import jax
from jax import lax
from jax.core import Tracer
from jax.extend.random import define_prng_impl
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, UInt32
import numpy as np

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def stream(seed: int) -> PRNGKeyArray:
    """The key from which everything random of one seed is derived."""
    if isinstance(seed, int):
        return wrap(np.array([0, seed], np.uint32))
    return jax.random.key(seed, impl=_IMPLEMENTATION)


def wrap(data: UInt32[Array, "2"]) -> PRNGKeyArray:
    """The key with this data."""
    return jax.random.wrap_key_data(data, impl=_IMPLEMENTATION)


def apart(key: PRNGKeyArray, count: int = 2) -> list[PRNGKeyArray]:
    """The keys of `jax.random.split`, one by one; to take an array of keys apart, JAX compiles programs."""
    if isinstance(key, Tracer):
        return list(jax.random.split(key, count))
    kind = jax.random.key_impl(key)
    if kind == _own_kind() and key.shape == ():
        words = split_all(np.asarray(jax.random.key_data(key)), count)
    else:
        words = np.asarray(jax.random.key_data(jax.random.split(key, count)))
    return [jax.random.wrap_key_data(each, impl=kind) for each in words]


@functools.cache
def _own_kind() -> Hashable:
    return jax.random.key_impl(wrap(np.zeros(2, np.uint32)))


def split_all(keys: UInt32[np.ndarray, "*axes 2"], count: int) -> UInt32[np.ndarray, "*axes count 2"]:
    """`jax.random.split` of many keys at once, on the host and as bare data."""
    low = np.arange(count, dtype=np.uint32).reshape((1,) * (keys.ndim - 1) + (count,))
    return np.stack(threefry(keys, np.zeros_like(low), low), axis=-1)


def threefry(
    key: UInt32[Array, "*axes 2"], high: UInt32[Array, "*shape"], low: UInt32[Array, "*shape"]
) -> tuple[UInt32[Array, "*shape"], UInt32[Array, "*shape"]]:
    """20 rounds of Threefry-2x32 (Salmon 2011) on counters of two words, by JAX or by NumPy as the words are.

    Leading axes of the key are those of the counters, or 1.
    """
    first, second = key[..., :1], key[..., 1:]
    shape = (*key.shape[:-1], *[1] * (high.ndim - key.ndim + 1))
    words = [word.reshape(shape) for word in (first, second, first ^ second ^ np.uint32(_PARITY))]
    high, low = high + words[0], low + words[1]
    for block in range(5):
        for turn in _ROTATIONS[block % 2]:
            high = high + low
            low = ((low << np.uint32(turn)) | (low >> np.uint32(32 - turn))) ^ high
        high = high + words[(block + 1) % 3]
        low = low + words[(block + 2) % 3] + np.uint32(block + 1)
    return high, low


def _library(key: Array) -> ModuleType:
    """NumPy for a key that has a value, JAX within a transformation."""
    return jnp if isinstance(key, Tracer) else np


def _counted(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Two words for every entry of a shape, by its position."""
    library = _library(key)
    low = library.arange(math.prod(shape), dtype=library.uint32).reshape(shape)
    return threefry(library.asarray(key), library.zeros_like(low), low)


def _seed(seed: Array) -> Array:
    word = lax.convert_element_type(seed, jnp.uint32)
    return jnp.stack([jnp.zeros_like(word), word])


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    words = _library(key).stack(_counted(key, shape), axis=-1)
    return jax.device_put(words) if isinstance(words, np.ndarray) else words


def _fold_in(key: Array, data: Array) -> Array:
    word = lax.convert_element_type(data, jnp.uint32)
    return jnp.stack(threefry(key, jnp.zeros_like(word), word))


def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    high, low = _counted(key, shape)
    if bit_width == 64:
        return (high.astype(jnp.uint64) << 32) | low.astype(jnp.uint64)
    return (high ^ low).astype(f"uint{bit_width}")


_IMPLEMENTATION = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="threefry2x32-fused",
    tag="ftf",
)
