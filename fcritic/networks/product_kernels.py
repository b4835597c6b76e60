"""E_joint on the product of policies and states, in kernels that keep the hidden layers on the chip.

Written layer by layer, each hidden layer of (actors x batch) rows goes to memory and back several times, and this
traffic, not arithmetic, is what the heads of a functional critic cost on a GPU. Here one program takes a tile of
states through all layers, for one policy and one critic; `vmap` adds critics and seeds as axes of the grid.

Rows are held as blocks of columns, because a product of whole rows would not fit. Vectors of a layer come stacked:
bias, scale and offset of its norm. `fcritic.networks.product` says which heads fit and holds the plain reference.
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
COLUMNS = 128
"""Width of a block."""
TARGET_TILE, TARGET_WARPS = 128, 8
ROW_TILE, ROW_WARPS = 16, 4
"""Rows of a tile and warps of a program, the fastest of those tried on an H200 (docs/performance.md)."""

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

    `code` is what the code and the bias contribute to the first joint layer. `encoder` holds weight and vectors
    of every layer of E_sa; `joint` the part of the first weight that E_sa meets, and then what `squared_error` takes.
    """
    tile = min(TARGET_TILE, inputs.shape[1])
    operands = (*encoder, *joint)
    return _call(
        partial(_target_kernel, encoder_layers=len(encoder) // 2),
        (inputs.shape[0], inputs.shape[1] // tile),
        [_of_both(tile, inputs.shape[2]), _of_actor(code.shape[1]), *(_whole(array) for array in operands)],
        _of_both(tile),
        jax.ShapeDtypeStruct(inputs.shape[:2], jnp.float32),
        warps=TARGET_WARPS,
        interpret=interpret,
    )(inputs, code[:, None], *operands)


@partial(jax.custom_vjp, nondiff_argnums=(7,))
def squared_error(
    code: Float[Array, "actors width"],
    state_action: Float[Array, "batch width"],
    first: Float[Array, "2 width"],
    weight: Float[Array, "width width"],
    second: Float[Array, "3 width"],
    last: Float[Array, "1 width"],
    goal: Float[Array, "actors batch"],
    interpret: bool = False,
) -> tuple[Float[Array, ""], Float[Array, "actors batch"]]:
    """The mean of (value - goal)^2 of one critic, and the values (which pass no gradient).

    `code` and `state_action` are what the two inputs of E_joint contribute to its first layer, `first` scale and
    offset of that layer's norm, `weight` and `second` the second layer, `last` the weights of the value.
    """
    return _squared_error_forward(code, state_action, first, weight, second, last, goal, interpret)[0]


def _squared_error_forward(code, state_action, first, weight, second, last, goal, interpret):
    """The gradient is computed along with the error, since its direction is known; `backward` only scales it."""
    (actors, width), batch, dtype = code.shape, state_action.shape[0], state_action.dtype
    tile = min(ROW_TILE, batch)
    tiles = batch // tile
    call = partial(_call, warps=ROW_WARPS, interpret=interpret)
    rows, of_rows = jax.ShapeDtypeStruct((actors, batch, width), dtype), _of_both(tile, width)
    hidden = call(
        _first_kernel, (actors, tiles), [_of_actor(width), _of_rows(tile, width), _whole(first)], of_rows, rows
    )(code[:, None], state_action, first)
    before = jnp.einsum("abi,io->abo", hidden, weight)
    value, back, sums = call(
        partial(_error_kernel, count=actors * batch),
        (actors, tiles),
        [of_rows, _of_both(tile), _whole(second), _whole(last)],
        [_of_both(tile), of_rows, pl.BlockSpec((None, None, 4, width), lambda j, k: (j, k, 0, 0))],
        [jax.ShapeDtypeStruct(goal.shape, jnp.float32), rows, _floats(actors, tiles, 4, width)],
    )(before, goal, second, last)
    step, of_codes, of_first = call(
        partial(_step_kernel, actors=actors),
        (tiles,),
        [
            pl.BlockSpec((actors, tile, width), lambda k: (0, k, 0)),
            pl.BlockSpec(code.shape, lambda k: (0, 0)),
            pl.BlockSpec((tile, width), lambda k: (k, 0)),
            pl.BlockSpec(first.shape, lambda k: (0, 0)),
        ],
        [
            pl.BlockSpec((tile, width), lambda k: (k, 0)),
            pl.BlockSpec((None, actors, width), lambda k: (k, 0, 0)),
            pl.BlockSpec((None, 2, width), lambda k: (k, 0, 0)),
        ],
        [jax.ShapeDtypeStruct((batch, width), dtype), _floats(tiles, actors, width), _floats(tiles, 2, width)],
    )(jnp.einsum("abo,io->abi", back, weight), code, state_action, first)
    total, error = sums.sum(axis=(0, 1)), value - goal
    d_weight = jnp.einsum("abi,abo->io", hidden, back, preferred_element_type=jnp.float32)
    gradients = (
        of_codes.sum(axis=0),
        step,
        of_first.sum(axis=0),
        d_weight.astype(weight.dtype),
        jnp.stack([total[3], total[1], total[2]]),
        total[:1],
        -2 * error / error.size,
    )
    return (jnp.mean(error**2), value), gradients


def _squared_error_backward(interpret, gradients, cotangents):
    return tuple((cotangents[0] * gradient).astype(gradient.dtype) for gradient in gradients)


squared_error.defvjp(_squared_error_forward, _squared_error_backward)


def _target_kernel(inputs: Ref, code: Ref, *refs: Ref, encoder_layers: int) -> None:
    *layers, out = refs
    encoder, (weight_sa, first, weight, second, last) = layers[: 2 * encoder_layers], layers[2 * encoder_layers :]
    blocks = [inputs[...]]
    for index in range(encoder_layers):
        blocks = _layer(blocks, encoder[2 * index], encoder[2 * index + 1], relu=index < encoder_layers - 1)
    blocks = _each(jnp.add, _product(blocks, weight_sa), _vector(code, 0))
    blocks = _lower(_relu(_affine(_standard(blocks)[0], first, 0, 1)))
    out[...] = _value(_layer(blocks, weight, second), last)


def _first_kernel(code: Ref, state_action: Ref, first: Ref, hidden: Ref) -> None:
    standard, _ = _standard_rows(state_action[...].astype(jnp.float32) + code[0, :][None])
    hidden[...] = jnp.maximum(standard * first[0, :][None] + first[1, :][None], 0.0).astype(hidden.dtype)


def _error_kernel(before: Ref, goal: Ref, second: Ref, last: Ref, value: Ref, back: Ref, sums: Ref, count: int) -> None:
    """The second layer, the value and their gradient; sums over the tile: last, scale, offset, bias."""
    standard, inverse = _standard_rows(before[...].astype(jnp.float32) + second[0, :][None])
    active = jnp.maximum(standard * second[1, :][None] + second[2, :][None], 0.0)
    found = (active * last[0, :][None]).sum(axis=1)
    value[...] = found
    slope = ((found - goal[...]) * (2.0 / count))[:, None]
    sums[0, :] = (slope * active).sum(axis=0)
    grads = jnp.where(active > 0, slope * last[0, :][None], 0.0)
    sums[1, :] = (grads * standard).sum(axis=0)
    sums[2, :] = grads.sum(axis=0)
    grads = _standard_rows_backward(grads * second[1, :][None], standard, inverse)
    sums[3, :] = grads.sum(axis=0)
    back[...] = grads.astype(back.dtype)


def _step_kernel(
    above: Ref, code: Ref, state_action: Ref, first: Ref, step: Ref, of_codes: Ref, of_first: Ref, actors: int
) -> None:
    """Backward through the first layer, summed over actors for E_sa and over the tile for codes and norms."""
    shared = state_action[...].astype(jnp.float32)

    def add(actor, sums):
        total, scale, offset = sums
        standard, inverse = _standard_rows(shared + code[actor, :][None])
        active = standard * first[0, :][None] + first[1, :][None] > 0
        grads = jnp.where(active, above[actor, :, :].astype(jnp.float32), 0.0)
        scale, offset = scale + (grads * standard).sum(axis=0), offset + grads.sum(axis=0)
        grads = _standard_rows_backward(grads * first[0, :][None], standard, inverse)
        of_codes[actor, :] = grads.sum(axis=0)
        return total + grads, scale, offset

    zeros = jnp.zeros_like(first[0, :])
    total, scale, offset = lax.fori_loop(0, actors, add, (jnp.zeros_like(shared), zeros, zeros))
    step[...] = total.astype(step.dtype)
    of_first[0, :] = scale
    of_first[1, :] = offset


def _standard_rows(rows: Array) -> tuple[Array, Array]:
    (standard,), inverse = _standard([rows])
    return standard, inverse


def _standard_rows_backward(grads: Array, standard: Array, inverse: Array) -> Array:
    along = (grads * standard).mean(axis=1, keepdims=True)
    return inverse * (grads - grads.mean(axis=1, keepdims=True) - standard * along)


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
    return [sum(_each(lambda b, r, part=part: dot(b, weight[r, part]), blocks, rows)) for part in _columns(weight.shape[1])]


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


def _call(kernel, grid, in_specs, out_specs, out_shape, *, warps: int, interpret: bool) -> Callable:
    params = triton.CompilerParams(num_warps=warps, num_stages=1)
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=in_specs,
        out_specs=out_specs,
        out_shape=out_shape,
        compiler_params=None if interpret else params,
        interpret=interpret,
    )


def _floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _whole(array: Array) -> pl.BlockSpec:
    return pl.BlockSpec(array.shape, lambda *_: (0,) * array.ndim)


def _of_actor(width: int) -> pl.BlockSpec:
    return pl.BlockSpec((None, 1, width), lambda j, k: (j, 0, 0))


def _of_rows(tile: int, width: int) -> pl.BlockSpec:
    return pl.BlockSpec((tile, width), lambda j, k: (k, 0))


def _of_both(tile: int, *rest: int) -> pl.BlockSpec:
    return pl.BlockSpec((None, tile, *rest), lambda j, k: (j, k, *[0] * len(rest)))
