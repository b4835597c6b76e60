"""Gradients of weights, sums over many rows, by few programs.

Nothing waits for them before the optimiser does. But the compiler's products take all of a GPU for a moment, and
attention, for which others do wait, stands behind them. Here one program for each tile of a weight goes
through all rows, and the rest of the GPU is left to others.
"""

from functools import partial

import jax
from jax import lax
from jax.experimental import pallas as pl
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.kernels.pallas import Ref, call, whole

SIDE = 128
"""Rows and columns of a tile of a weight."""
STEP, WARPS, STAGES = 64, 8, 3
"""Rows that a program takes at once, its warps, and how many loads it has under way."""
LEAST = 16
"""The fewest rows of a product."""


def weight_gradient(
    rows: Float[Array, "rows inputs"],
    grads: Float[Array, "rows outputs"],
    *after: Float[Array, "..."],
) -> Float[Array, "inputs outputs"]:
    """Returns rows^T grads, the gradient of a weight, from inputs and gradients of the outputs.

    It begins when the arrays `after` are there.
    """
    (count, inputs), outputs = rows.shape, grads.shape[1]
    tall, wide = min(SIDE, inputs), min(SIDE, outputs)
    if count < STEP or count % LEAST or inputs % tall or outputs % wide:
        return jnp.dot(rows.T, grads, preferred_element_type=jnp.float32).astype(rows.dtype)
    return call(
        _weight_kernel,
        grid=(inputs // tall, outputs // wide),
        in_specs=[
            pl.BlockSpec((count, tall), lambda i, j: (0, i)),
            pl.BlockSpec((count, wide), lambda i, j: (0, j)),
            *map(whole, after),
        ],
        out_specs=pl.BlockSpec((tall, wide), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((inputs, outputs), rows.dtype),
        warps=WARPS,
        stages=STAGES,
        name="weight_kernel",
    )(rows, grads, *after)


def _weight_kernel(rows: Ref, grads: Ref, *refs: Ref) -> None:
    out = refs[-1]

    def add(first: int, step: int, number: Array, total: Array) -> Array:
        part = pl.ds(first + number * step, step)
        return total + jnp.dot(rows[part, :].T, grads[part, :], preferred_element_type=jnp.float32)

    count, rest = rows.shape[0], rows.shape[0] % STEP
    total = lax.fori_loop(0, count // STEP, partial(add, 0, STEP), jnp.zeros(out.shape, jnp.float32))
    total = lax.fori_loop(0, rest // LEAST, partial(add, count - rest, LEAST), total)
    out[...] = total.astype(out.dtype)
