"""What this device can do at best: the two rates by which the floor of any work is reckoned."""

import statistics
import time

import jax
import jax.numpy as jnp
from jaxtyping import Array


def measured(dtype: jnp.dtype) -> dict[str, float]:
    """FLOP per second of a large product in this type, and bytes per second of a large copy, read and written."""
    on_gpu = jax.default_backend() == "gpu"
    side, numbers = (8192, 2**29) if on_gpu else (1024, 2**25)
    matrix = jax.random.normal(jax.random.key(0), (side, side)).astype(dtype)  # zeros would run faster
    vector = jax.random.normal(jax.random.key(1), (numbers,))
    return {
        "flop_per_second": 2 * side**3 / _seconds(jax.jit(lambda x: x @ x), matrix),
        "bytes_per_second": 2 * vector.nbytes / _seconds(jax.jit(lambda x: x + 1), vector),
    }


def _seconds(function, argument: Array) -> float:
    elapsed = []
    for _ in range(12):
        start = time.perf_counter()
        jax.block_until_ready(function(argument))
        elapsed.append(time.perf_counter() - start)
    return statistics.median(elapsed[2:])
