"""The two halves of a transformer block around its attention, each one kernel forward and one backward.

A block of the actor encoder is small: layer by layer it is dozens of kernels that last 2 microseconds each and wait
for one another. Both halves work row by row, so a program takes a tile of rows through all that they do. Gradients
of weights are ordinary matrix products of what the backward kernels leave behind.
`fcritic.networks.transformer.Block` is the plain reference.
"""

from collections.abc import Callable
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
TILE, WARPS = 32, 4
"""Rows of a tile and warps of a program, the fastest of those tried on an H200 (docs/performance.md)."""

Ref = Any
Rows = Float[Array, "rows width"]


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def project(
    x: Rows,
    vectors: Float[Array, "8 width"],
    query: Float[Array, "width width"],
    key: Float[Array, "width width"],
    value: Float[Array, "width width"],
    interpret: bool,
) -> tuple[Rows, Rows, Rows]:
    """Query, key and value of normalised rows. Vectors: scale, offset, three biases; the rest is not used."""
    return _project_forward(x, vectors, query, key, value, interpret)[0]


def _project_forward(x, vectors, query, key, value, interpret):
    weights = (query, key, value)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    out = _call(_project_kernel, x.shape[0], (x,), (vectors, *weights), [like] * 3, interpret)
    return tuple(out), (x, vectors, *weights)


def _project_kernel(x: Ref, vectors: Ref, query: Ref, key: Ref, value: Ref, *outs: Ref) -> None:
    rows = _lower(_affine(_standard(_float(x))[0], vectors, 0))
    for index, (weight, out) in enumerate(zip((query, key, value), outs, strict=True)):
        out[...] = _lower(_dot(rows, weight[...]) + vectors[2 + index, :][None])


def _project_backward(interpret, kept, grads):
    x, vectors, *weights = kept
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    step, normal, sums = _call(
        _project_back_kernel, x.shape[0], (x, *grads), (vectors, *weights), [like] * 2, interpret, sums=True
    )
    return (step, sums, *(_weight_gradient(normal, grad, x.dtype) for grad in grads))


def _project_back_kernel(x, d_query, d_key, d_value, vectors, query, key, value, step, normal, sums) -> None:
    standard, inverse = _standard(_float(x))
    normal[...] = _lower(_affine(standard, vectors, 0))
    grad = jnp.zeros_like(standard)
    for index, (weight, back) in enumerate(((query, d_query), (key, d_key), (value, d_value))):
        grad += _dot_transposed(back[...], weight[...])
        sums[2 + index, :] = _float(back).sum(axis=0)
    sums[0, :] = (grad * standard).sum(axis=0)
    sums[1, :] = grad.sum(axis=0)
    for unused in (5, 6, 7):
        sums[unused, :] = jnp.zeros_like(vectors[0, :])
    step[...] = _lower(_standard_backward(grad * vectors[0, :][None], standard, inverse))


project.defvjp(_project_forward, _project_backward)


@partial(jax.custom_vjp, nondiff_argnums=(6,))
def feed(
    mixed: Rows,
    x: Rows,
    vectors: Float[Array, "8 width"],
    output: Float[Array, "width width"],
    expand: Float[Array, "width hidden"],
    contract: Float[Array, "hidden width"],
    interpret: bool,
) -> Rows:
    """What attention mixed, projected and added to `x`; then the feed-forward layer, added to the sum.

    Vectors: scale, offset, biases of `output`, of `contract` and, in four parts, of `expand`.
    """
    return _feed_forward(mixed, x, vectors, output, expand, contract, interpret)[0]


def _feed_forward(mixed, x, vectors, output, expand, contract, interpret):
    operands = (vectors, output, expand, contract)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    (out,) = _call(_feed_kernel, x.shape[0], (mixed, x), operands, [like], interpret)
    return out, (mixed, x, *operands)


def _feed_kernel(mixed: Ref, x: Ref, vectors: Ref, output: Ref, expand: Ref, contract: Ref, out: Ref) -> None:
    total = _float(x) + _dot(mixed[...], output[...]) + vectors[2, :][None]
    rows = _lower(_affine(_standard(total)[0], vectors, 0))
    total += vectors[3, :][None]
    for index, part in enumerate(_parts(expand)):
        hidden = jnp.maximum(_dot(rows, expand[:, part]) + vectors[4 + index, :][None], 0.0)
        total += _dot(_lower(hidden), contract[part, :])
    out[...] = _lower(total)


def _feed_backward(interpret, kept, grad):
    mixed, x, vectors, output, expand, contract = kept
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    wide = jax.ShapeDtypeStruct((x.shape[0], expand.shape[1]), x.dtype)
    d_mixed, step, normal, hidden, d_hidden, sums = _call(
        _feed_back_kernel,
        x.shape[0],
        (mixed, x, grad),
        (vectors, output, expand, contract),
        [like, like, like, wide, wide],
        interpret,
        sums=True,
    )
    d_output = _weight_gradient(mixed, step, x.dtype)
    d_expand = _weight_gradient(normal, d_hidden, x.dtype)
    return d_mixed, step, sums, d_output, d_expand, _weight_gradient(hidden, grad, x.dtype)


def _feed_back_kernel(
    mixed, x, grad, vectors, output, expand, contract, d_mixed, step, normal, hidden, d_hidden, sums
) -> None:
    total = _float(x) + _dot(mixed[...], output[...]) + vectors[2, :][None]
    standard, inverse = _standard(total)
    rows = _lower(_affine(standard, vectors, 0))
    normal[...] = rows
    above = grad[...]
    sums[3, :] = _float(grad).sum(axis=0)
    back = jnp.zeros_like(total)
    for index, part in enumerate(_parts(expand)):
        active = jnp.maximum(_dot(rows, expand[:, part]) + vectors[4 + index, :][None], 0.0)
        hidden[:, part] = _lower(active)
        slope = jnp.where(active > 0, _dot_transposed(above, contract[part, :]), 0.0)
        sums[4 + index, :] = slope.sum(axis=0)
        d_hidden[:, part] = _lower(slope)
        back += _dot_transposed(_lower(slope), expand[:, part])
    sums[0, :] = (back * standard).sum(axis=0)
    sums[1, :] = back.sum(axis=0)
    back = _float(grad) + _standard_backward(back * vectors[0, :][None], standard, inverse)
    sums[2, :] = back.sum(axis=0)
    step[...] = _lower(back)
    d_mixed[...] = _lower(_dot_transposed(_lower(back), output[...]))


feed.defvjp(_feed_forward, _feed_backward)


def _weight_gradient(rows: Array, grads: Array, dtype) -> Array:
    return jnp.einsum("ri,ro->io", rows, grads, preferred_element_type=jnp.float32).astype(dtype)


def _parts(expand: Ref) -> list[slice]:
    """The hidden layer in four parts of the block's width."""
    width = expand.shape[0]
    return [slice(start, start + width) for start in range(0, expand.shape[1], width)]


def _float(ref: Ref) -> Array:
    return ref[...].astype(jnp.float32)


def _lower(rows: Array) -> Array:
    return rows.astype(jnp.bfloat16)


def _dot(rows: Array, weight: Array) -> Array:
    return jnp.dot(rows, weight, preferred_element_type=jnp.float32)


def _dot_transposed(rows: Array, weight: Array) -> Array:
    return lax.dot_general(rows, weight, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def _standard(rows: Array) -> tuple[Array, Array]:
    """Rows with mean 0 and variance 1, and what they were multiplied with."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    inverse = lax.rsqrt((centred * centred).mean(axis=1, keepdims=True) + EPSILON)
    return centred * inverse, inverse


def _standard_backward(grad: Array, standard: Array, inverse: Array) -> Array:
    along = (grad * standard).mean(axis=1, keepdims=True)
    return inverse * (grad - grad.mean(axis=1, keepdims=True) - standard * along)


def _affine(standard: Array, vectors: Ref, at: int) -> Array:
    return standard * vectors[at, :][None] + vectors[at + 1, :][None]


def _call(kernel: Callable, rows: int, tiled, whole, out_shapes, interpret: bool, sums: bool = False) -> list[Array]:
    """Runs a kernel tile by tile; `sums` asks for eight sums over rows as one more output."""
    tile = min(TILE, rows)
    of_rows = lambda width: pl.BlockSpec((tile, width), lambda k: (k, 0))
    out_specs, extra = [of_rows(out.shape[1]) for out in out_shapes], []
    if sums:
        width = whole[0].shape[1]
        extra = [jax.ShapeDtypeStruct((rows // tile, 8, width), jnp.float32)]
        out_specs = [*out_specs, pl.BlockSpec((None, 8, width), lambda k: (k, 0, 0))]
    outs = pl.pallas_call(
        kernel,
        grid=(rows // tile,),
        in_specs=[
            *(of_rows(array.shape[1]) for array in tiled),
            *(pl.BlockSpec(array.shape, lambda k: (0, 0)) for array in whole),
        ],
        out_specs=out_specs,
        out_shape=[*out_shapes, *extra],
        compiler_params=None if interpret else triton.CompilerParams(num_warps=WARPS, num_stages=1),
        interpret=interpret,
    )(*tiled, *whole)
    return [*outs[:-1], outs[-1].sum(axis=0)] if sums else outs
