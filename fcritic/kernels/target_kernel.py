"""Target values on the product of policies and states, in two kernels that keep the hidden layers on the chip.

Written layer by layer, each hidden layer of (actors x batch) rows goes to memory and back several times, and this
traffic, not arithmetic, is what the heads of a functional critic cost on a GPU. Here one program takes a tile of
states through all layers, for one policy and one critic; `vmap` adds critics and seeds as axes of the grid.
E_sa is a kernel of its own: it needs no code, so that it can run beside the actor encoder, which leaves room.
Where seeds are few, few of its programs take one actor after the other: time there is, and the encoder, for which
everything else waits, would stand behind many.

Rows are held as blocks of columns, because a product of whole rows would not fit. Vectors of a layer come stacked:
bias, scale and offset of its norm. `fcritic.kernels.product` says which heads fit.
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

from fcritic.kernels.row_tiles import few_seeds

EPSILON = 1e-5
"""That of `equinox.nn.LayerNorm`."""
COLUMNS = 128
"""Width of a block."""
TILE, WARPS = 128, 8
"""Rows of a tile and warps of a program, the fastest of those tried on an H200 (benchmarks/HISTORY.md)."""

Blocks = list[Array]
Ref = Any


def target_values(
    inputs: Float[Array, "actors batch inputs"],
    code: Float[Array, "actors width"],
    encoder: tuple[Array, ...],
    joint: tuple[Array, ...],
    interpret: bool = False,
) -> Float[Array, "actors batch"]:
    """E_joint(code, E_sa(inputs)) of one critic, without the last bias; it cannot be differentiated.

    `code` is what the code contributes to the first joint layer. `encoder` holds weight and vectors
    of every layer of E_sa; `joint` the part of the first weight that E_sa meets, then what
    `error_kernels.squared_error` takes.
    """
    some = len(code) // 2 if few_seeds() and len(code) % 2 == 0 else 1
    features = _call(_encoder_kernel, [inputs], encoder, (jnp.bfloat16, encoder[-1].shape[1:]), some, interpret)
    return _call(_value_kernel, [features, code[:, None]], joint, (jnp.float32, ()), None, interpret)


def _call(
    kernel: Callable,
    of_actors: list[Array],
    whole: tuple[Array, ...],
    out: tuple,
    some: int | None,
    interpret: bool,
) -> Array:
    """Runs a kernel for every actor, or every group of `some`, and tile of rows.

    The first of `of_actors` has rows; `out` are type and width of what comes out.
    """
    actors, batch, _ = of_actors[0].shape
    tile, (dtype, rest) = min(TILE, batch), out
    of_tile = lambda *shape: pl.BlockSpec((some, tile, *shape), lambda j, k: (j, k, *[0] * len(shape)))
    return pl.pallas_call(
        kernel,
        grid=(actors // (some or 1), batch // tile),
        in_specs=[
            of_tile(of_actors[0].shape[2]),
            *(pl.BlockSpec((None, *array.shape[1:]), lambda j, k: (j, 0, 0)) for array in of_actors[1:]),
            *(pl.BlockSpec(array.shape, lambda j, k: (0, 0)) for array in whole),
        ],
        out_specs=of_tile(*rest),
        out_shape=jax.ShapeDtypeStruct((actors, batch, *rest), dtype),
        compiler_params=None if interpret else triton.CompilerParams(num_warps=WARPS, num_stages=1),
        interpret=interpret,
    )(*of_actors, *whole)


def _encoder_kernel(inputs: Ref, *refs: Ref) -> None:
    """E_sa, for one actor after the other."""
    *layers, out = refs
    count = len(layers) // 2

    def encode(actor: Array, _) -> int:
        blocks = [inputs[actor]]
        for index in range(count):
            blocks = _layer(blocks, layers[2 * index], layers[2 * index + 1], relu=index < count - 1)
        for block, part in zip(blocks, _columns(out.shape[2]), strict=True):
            out[actor, :, part] = block
        return 0

    lax.fori_loop(0, inputs.shape[0], encode, 0)


def _value_kernel(
    features: Ref, code: Ref, weight_sa: Ref, first: Ref, weight: Ref, second: Ref, last: Ref, out: Ref
) -> None:
    """E_joint."""
    blocks = [features[:, part] for part in _columns(features.shape[1])]
    blocks = _each(jnp.add, _product(blocks, weight_sa), _each(jnp.add, _vector(code, 0), _vector(first, 2)))
    blocks = _lower(_relu(_affine(_standard(blocks)[0], first, 0, 1)))
    out[...] = _value(_layer(blocks, weight, second), last)


def _columns(width: int) -> list[slice]:
    size = min(COLUMNS, width)
    return [slice(start, start + size) for start in range(0, width, size)]


def _each(function: Callable, *lists: list) -> Blocks:
    return [function(*items) for items in zip(*lists, strict=True)]


def _vector(vectors: Ref, index: int) -> Blocks:
    return [vectors[index, part][None, :] for part in _columns(vectors.shape[1])]


def _product(blocks: Blocks, weight: Ref) -> Blocks:
    """Rows times a weight, summed in float32."""
    rows = _columns(weight.shape[0]) if len(blocks) > 1 else [slice(0, weight.shape[0])]
    dot = partial(jnp.dot, preferred_element_type=jnp.float32)
    return [
        sum(_each(lambda b, r, part=part: dot(b, weight[r, part]), blocks, rows))
        for part in _columns(weight.shape[1])
    ]


def _standard(blocks: Blocks) -> tuple[Blocks, Array]:
    """Rows with mean 0 and variance 1, and what they were multiplied with."""
    width = sum(block.shape[1] for block in blocks)
    mean = sum(block.sum(axis=1, keepdims=True) for block in blocks) / width
    centred = [block - mean for block in blocks]
    inverse = lax.rsqrt(sum((block * block).sum(axis=1, keepdims=True) for block in centred) / width + EPSILON)
    return [block * inverse for block in centred], inverse


def _affine(blocks: Blocks, vectors: Ref, scale: int, offset: int) -> Blocks:
    return _each(lambda b, s, o: b * s + o, blocks, _vector(vectors, scale), _vector(vectors, offset))


def _relu(blocks: Blocks) -> Blocks:
    return [jnp.maximum(block, 0.0) for block in blocks]


def _lower(blocks: Blocks) -> Blocks:
    return [block.astype(jnp.bfloat16) for block in blocks]


def _layer(blocks: Blocks, weight: Ref, vectors: Ref, relu: bool = True) -> Blocks:
    standard, _ = _standard(_each(jnp.add, _product(blocks, weight), _vector(vectors, 0)))
    blocks = _affine(standard, vectors, 1, 2)
    return _lower(_relu(blocks) if relu else blocks)


def _value(blocks: Blocks, last: Ref) -> Float[Array, " tile"]:
    return sum(_each(lambda b, w: (b.astype(jnp.float32) * w).sum(axis=1), blocks, _vector(last, 0)))
