"""The order of kernels that do not need each other.

On a GPU a kernel starts as soon as what it needs is there, takes all the room it can get, and others that many wait
for stand behind it. What may come later can be made to need a result that it does not use.
"""

from functools import partial
from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp
from jaxtyping import Array, Float

Ref = Any


def zero_after(result: Float[Array, "..."], interpret: bool) -> Float[Array, ""]:
    """Zero, as soon as the result is there."""
    zero = pl.pallas_call(
        _zero_kernel,
        out_shape=jax.ShapeDtypeStruct((1,), jnp.float32),
        compiler_params=None if interpret else triton.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name="zero_kernel",
    )(result)
    return zero[0]


def _zero_kernel(result: Ref, out: Ref) -> None:
    del result
    out[...] = jnp.zeros(1, jnp.float32)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def told(rows: Float[Array, "rows width"], vector: Float[Array, " code"], interpret: bool) -> Array:
    """The rows; a gradient of the vector, which has nothing to do with them, is there only after theirs."""
    return rows


def _forward(rows, vector, interpret):
    return rows, vector


def _backward(interpret, vector, grads):
    return grads, jnp.full_like(vector, zero_after(grads, interpret))


told.defvjp(_forward, _backward)
