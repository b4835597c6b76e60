"""Bias, layer norm and ReLU of a layer in one kernel forward and one backward.

Forward the compiler does as well; backward it needs a handful of kernels, most of them for the sums over rows.
"""

from functools import partial
from typing import Any

import jax
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp
from jaxtyping import Array, Float

EPSILON = 1e-5
"""That of `equinox.nn.LayerNorm`."""
TILE, WARPS = 16, 4

Ref = Any
Rows = Float[Array, "rows width"]


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def normalised(before: Rows, vectors: Float[Array, "8 width"], relu: bool, interpret: bool) -> Rows:
    """The layer's output from its product. Vectors: bias, scale, offset; the rest is not used."""
    return _forward(before, vectors, relu, interpret)[0]


def _forward(before, vectors, relu, interpret):
    out = _call(partial(_kernel, relu=relu), [before], vectors, False, interpret)
    return out[0], (before, vectors)


def _backward(relu, interpret, kept, grad):
    before, vectors = kept
    step, sums = _call(partial(_back_kernel, relu=relu), [before, grad], vectors, True, interpret)
    return step, jnp.pad(sums.sum(axis=0), ((0, 4), (0, 0)))


normalised.defvjp(_forward, _backward)


def _kernel(before: Ref, vectors: Ref, out: Ref, relu: bool) -> None:
    standard, _ = standardise(before[...].astype(jnp.float32) + vectors[0, :][None])
    rows = standard * vectors[1, :][None] + vectors[2, :][None]
    out[...] = (jnp.maximum(rows, 0.0) if relu else rows).astype(out.dtype)


def _back_kernel(before: Ref, grad: Ref, vectors: Ref, step: Ref, sums: Ref, relu: bool) -> None:
    standard, inverse = standardise(before[...].astype(jnp.float32) + vectors[0, :][None])
    grads = grad[...].astype(jnp.float32)
    if relu:
        grads = jnp.where(standard * vectors[1, :][None] + vectors[2, :][None] > 0, grads, 0.0)
    sums[1, :] = (grads * standard).sum(axis=0)
    sums[2, :] = grads.sum(axis=0)
    grads = standardise_backward(grads * vectors[1, :][None], standard, inverse)
    sums[0, :] = grads.sum(axis=0)
    sums[3, :] = jnp.zeros_like(vectors[0, :])
    step[...] = grads.astype(step.dtype)


def standardise(rows: Array) -> tuple[Array, Array]:
    """Rows with mean 0 and variance 1, and what they were multiplied with."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    inverse = lax.rsqrt((centred * centred).mean(axis=1, keepdims=True) + EPSILON)
    return centred * inverse, inverse


def standardise_backward(grads: Array, standard: Array, inverse: Array) -> Array:
    """The gradient through `standardise`."""
    along = (grads * standard).mean(axis=1, keepdims=True)
    return inverse * (grads - grads.mean(axis=1, keepdims=True) - standard * along)


def _call(kernel, tiled: list[Array], vectors: Array, sums: bool, interpret: bool) -> list[Array]:
    count, width = tiled[0].shape
    tile = min(TILE, count)
    rows = pl.BlockSpec((tile, width), lambda k: (k, 0))
    out_specs, out_shape = [rows], [jax.ShapeDtypeStruct((count, width), tiled[0].dtype)]
    if sums:
        out_specs.append(pl.BlockSpec((None, 4, width), lambda k: (k, 0, 0)))
        out_shape.append(jax.ShapeDtypeStruct((count // tile, 4, width), jnp.float32))
    outs = pl.pallas_call(
        kernel,
        grid=(count // tile,),
        in_specs=[*[rows] * len(tiled), pl.BlockSpec(vectors.shape, lambda k: (0, 0))],
        out_specs=out_specs,
        out_shape=out_shape,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=WARPS, num_stages=1),
        interpret=interpret,
    )(*tiled, vectors)
    return list(outs)
