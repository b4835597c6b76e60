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

from fcritic.networks.norm_kernels import standardise, standardise_backward

WARPS = 4
"""Warps of a program."""
PARTS = 5
"""Parts of a sum over many rows that is the gradient of a weight."""

Ref = Any
Rows = Float[Array, "rows width"]


@partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def project(
    x: Rows,
    vectors: Float[Array, "8 width"],
    query: Float[Array, "width width"],
    key: Float[Array, "width width"],
    value: Float[Array, "width width"],
    interpret: bool,
    tile: int,
) -> tuple[Rows, Rows, Rows, Rows]:
    """Query, key and value of normalised rows, and the rows, so that gradients that pass them by are added here.

    Vectors: scale, offset, three biases; the rest is not used.
    """
    return _project_forward(x, vectors, query, key, value, interpret, tile)[0]


def _project_forward(x, vectors, query, key, value, interpret, tile):
    weights = (query, key, value)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    out = _call(_project_kernel, x.shape[0], (x,), (vectors, *weights), [like] * 3, interpret, tile)
    return (*out, x), (x, vectors, *weights)


def _project_kernel(x: Ref, vectors: Ref, query: Ref, key: Ref, value: Ref, *outs: Ref) -> None:
    rows = _lower(_affine(standardise(_float(x))[0], vectors, 0))
    for index, (weight, out) in enumerate(zip((query, key, value), outs, strict=True)):
        out[...] = _lower(_dot(rows, weight[...]) + vectors[2 + index, :][None])


def _project_backward(interpret, tile, kept, grads):
    x, vectors, *weights = kept
    like, wide = (jax.ShapeDtypeStruct((x.shape[0], width), x.dtype) for width in (x.shape[1], 3 * x.shape[1]))
    outs, operands = [like, like, wide], (vectors, *weights)
    step, normal, joined, sums = _call(
        _project_back_kernel, x.shape[0], (x, *grads), operands, outs, interpret, tile, sums=True
    )
    return (step, sums, *jnp.split(_weight_gradient(normal, joined), 3, axis=1))


def _project_back_kernel(
    x, d_query, d_key, d_value, past, vectors, query, key, value, step, normal, joined, sums
) -> None:
    """Leaves its three gradients side by side too, for one product."""
    standard, inverse = standardise(_float(x))
    normal[...] = _lower(_affine(standard, vectors, 0))
    grad = jnp.zeros_like(standard)
    parts = zip(_parts(joined, x.shape[1]), (query, key, value), (d_query, d_key, d_value), strict=True)
    for index, (part, weight, back) in enumerate(parts):
        joined[:, part] = back[...]
        grad += _dot_transposed(back[...], weight[...])
        sums[2 + index, :] = _float(back).sum(axis=0)
    sums[0, :] = (grad * standard).sum(axis=0)
    sums[1, :] = grad.sum(axis=0)
    for unused in (5, 6, 7):
        sums[unused, :] = jnp.zeros_like(vectors[0, :])
    step[...] = _lower(_float(past) + standardise_backward(grad * vectors[0, :][None], standard, inverse))


project.defvjp(_project_forward, _project_backward)


@partial(jax.custom_vjp, nondiff_argnums=(6, 7))
def feed(
    mixed: Rows,
    x: Rows,
    vectors: Float[Array, "8 width"],
    output: Float[Array, "width width"],
    expand: Float[Array, "width hidden"],
    contract: Float[Array, "hidden width"],
    interpret: bool,
    tile: int,
) -> Rows:
    """What attention mixed, projected and added to `x`; then the feed-forward layer, added to the sum.

    Vectors: scale, offset, biases of `output`, of `contract` and, in four parts, of `expand`.
    """
    return _feed_forward(mixed, x, vectors, output, expand, contract, interpret, tile)[0]


def _feed_forward(mixed, x, vectors, output, expand, contract, interpret, tile):
    rows, wide = (jax.ShapeDtypeStruct((x.shape[0], width), x.dtype) for width in expand.shape)
    operands = (vectors, output, expand, contract)
    out, *kept = _call(_feed_kernel, x.shape[0], (mixed, x), operands, [rows, rows, rows, wide], interpret, tile)
    return out, (mixed, *kept, *operands)


def _feed_kernel(mixed, x, vectors, output, expand, contract, out, total, normal, hidden) -> None:
    """Keeps the sum with `x`, its norm and the hidden layer for the way back."""
    sum_ = _float(x) + _dot(mixed[...], output[...]) + vectors[2, :][None]
    total[...] = _lower(sum_)
    rows = _lower(_affine(standardise(sum_)[0], vectors, 0))
    normal[...] = rows
    sum_ += vectors[3, :][None]
    for index, part in enumerate(_parts(expand, x.shape[1])):
        active = _lower(jnp.maximum(_dot(rows, expand[:, part]) + vectors[4 + index, :][None], 0.0))
        hidden[:, part] = active
        sum_ += _dot(active, contract[part, :])
    out[...] = _lower(sum_)


def _feed_backward(interpret, tile, kept, grad):
    """Two kernels and matrix products: in one alone, too little of the chip would work at a time."""
    mixed, total, normal, hidden, vectors, output, expand, contract = kept
    d_hidden, d_bias = _hidden_backward(grad, hidden, contract, interpret, tile)
    back = d_hidden @ expand.T
    like = jax.ShapeDtypeStruct(total.shape, total.dtype)
    tiled = (total, back, grad)
    step, sums = _call(_feed_back_kernel, total.shape[0], tiled, (vectors,), [like], interpret, 16, sums=True)
    d_vectors = jnp.concatenate([sums[:4], d_bias])
    weights = ((mixed, step), (normal, d_hidden), (hidden, grad))
    return step @ output.T, step, d_vectors, *(_weight_gradient(*pair) for pair in weights)


def _hidden_backward(grad, hidden, contract, interpret, tile) -> tuple[Array, Array]:
    """Gradients of the hidden layer and, in parts, of its bias; a program takes a tile of rows of one part."""
    width, tiles, parts = grad.shape[1], grad.shape[0] // tile, hidden.shape[1] // grad.shape[1]
    of_rows = pl.BlockSpec((tile, width), lambda k, part: (k, 0))
    of_part = pl.BlockSpec((tile, width), lambda k, part: (k, part))
    d_hidden, sums = pl.pallas_call(
        _hidden_back_kernel,
        grid=(tiles, parts),
        in_specs=[of_rows, of_part, pl.BlockSpec((width, width), lambda k, part: (part, 0))],
        out_specs=[of_part, pl.BlockSpec((None, 1, width), lambda k, part: (k, part, 0))],
        out_shape=[
            jax.ShapeDtypeStruct(hidden.shape, hidden.dtype),
            jax.ShapeDtypeStruct((tiles, parts, width), jnp.float32),
        ],
        compiler_params=_params(interpret),
        interpret=interpret,
    )(grad, hidden, contract)
    return d_hidden, sums.sum(axis=0)


def _hidden_back_kernel(grad, hidden, contract, d_hidden, sums) -> None:
    grads = jnp.where(_float(hidden) > 0, _dot_transposed(grad[...], contract[...]), 0.0)
    d_hidden[...] = _lower(grads)
    sums[0, :] = grads.sum(axis=0)


def _feed_back_kernel(total, back, grad, vectors, step, sums) -> None:
    standard, inverse = standardise(_float(total))
    above, grads = _float(grad), _float(back)
    sums[0, :] = (grads * standard).sum(axis=0)
    sums[1, :] = grads.sum(axis=0)
    grads = above + standardise_backward(grads * vectors[0, :][None], standard, inverse)
    sums[2, :] = grads.sum(axis=0)
    sums[3, :] = above.sum(axis=0)
    for unused in (4, 5, 6, 7):
        sums[unused, :] = jnp.zeros_like(vectors[0, :])
    step[...] = _lower(grads)


feed.defvjp(_feed_forward, _feed_backward)


def _weight_gradient(rows: Array, grads: Array) -> Array:
    """A sum over rows. Where it cannot be cut into a power of two of parts, the compiler would fill it up with
    copies of all its rows; it is cut here."""
    count = rows.shape[0]
    parts = PARTS if count > 1024 and count % 128 and count % (16 * PARTS) == 0 else 1
    rows, grads = (array.reshape(parts, count // parts, -1) for array in (rows, grads))
    sums = jnp.einsum("pri,pro->pio", rows, grads, preferred_element_type=jnp.float32)
    return sums.sum(axis=0).astype(rows.dtype)


def _parts(wide: Ref, width: int) -> list[slice]:
    """The columns of something wide in parts of the block's width."""
    return [slice(start, start + width) for start in range(0, wide.shape[1], width)]


def _float(ref: Ref) -> Array:
    return ref[...].astype(jnp.float32)


def _lower(rows: Array) -> Array:
    return rows.astype(jnp.bfloat16)


def _dot(rows: Array, weight: Array) -> Array:
    return jnp.dot(rows, weight, preferred_element_type=jnp.float32)


def _dot_transposed(rows: Array, weight: Array) -> Array:
    return lax.dot_general(rows, weight, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def _affine(standard: Array, vectors: Ref, at: int) -> Array:
    return standard * vectors[at, :][None] + vectors[at + 1, :][None]


def _call(
    kernel: Callable, rows: int, tiled, whole, out_shapes, interpret: bool, tile: int, sums: bool = False
) -> list[Array]:
    """Runs a kernel tile by tile; `sums` asks for eight sums over rows as one more output."""
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
        compiler_params=_params(interpret),
        interpret=interpret,
    )(*tiled, *whole)
    return [*outs[:-1], outs[-1].sum(axis=0)] if sums else list(outs)


def _params(interpret: bool) -> triton.CompilerParams | None:
    return None if interpret else triton.CompilerParams(num_warps=WARPS, num_stages=1)
