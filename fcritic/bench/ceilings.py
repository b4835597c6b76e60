"""What this device can do at best: the two rates by which the floor of any work is reckoned."""

import statistics
import time

import jax
from jaxtyping import Array

from fcritic.networks.precision import on_gpu


def measured() -> dict[str, float]:
    """FLOP per second of a large product in each precision; bytes per second of a large copy, read and written."""
    side, numbers = (8192, 2**29) if on_gpu() else (1024, 2**25)
    matrix = jax.random.normal(jax.random.key(0), (side, side))  # zeros would run faster
    vector = jax.random.normal(jax.random.key(1), (numbers,))
    product = jax.jit(lambda x: x @ x)
    rates = {
        f"{name}_flop_per_second": 2 * side**3 / _seconds(product, matrix.astype(name))
        for name in ("float32", "bfloat16")
    }
    return rates | {"bytes_per_second": 2 * vector.nbytes / _seconds(jax.jit(lambda x: x + 1), vector)}


def _seconds(function, argument: Array) -> float:
    elapsed = []
    for _ in range(12):
        start = time.perf_counter()
        jax.block_until_ready(function(argument))
        elapsed.append(time.perf_counter() - start)
    return statistics.median(elapsed[2:])
