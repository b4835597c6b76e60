"""The squared error of a critic on the product of policies and states, and its gradient.

The products are the compiler's; what lies between them, norms, sums over rows and the error itself, is one kernel
each. Left to the compiler, these were most of the time: it writes float32 in between and sums rows one by one.
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

TILE, WARPS = 16, 4
"""Rows of a tile and warps of a program."""
STEP_TILE, STEP_WARPS = 8, 2
"""The same for the last kernel, whose programs go through all actors."""

Ref = Any


@partial(jax.custom_vjp, nondiff_argnums=(7,))
def squared_error(
    code: Float[Array, "actors width"],
    state_action: Float[Array, "batch width"],
    first: Float[Array, "8 width"],
    weight: Float[Array, "width width"],
    second: Float[Array, "8 width"],
    last: Float[Array, "1 width"],
    goal: Float[Array, "actors batch"],
    interpret: bool = False,
) -> tuple[Float[Array, ""], Float[Array, "actors batch"]]:
    """The mean of (value - goal)^2 of one critic, and the values (which pass no gradient).

    `code` and `state_action` are what the two inputs of E_joint contribute to its first layer, `first` scale and
    offset of its norm and its bias, `weight` and `second` the second layer, `last` the weights of the value.
    """
    return _squared_error_forward(code, state_action, first, weight, second, last, goal, interpret)[0]


def _squared_error_forward(code, state_action, first, weight, second, last, goal, interpret):
    """The gradient is computed along with the error, since its direction is known; `backward` only scales it."""
    (actors, width), batch, dtype = code.shape, state_action.shape[0], state_action.dtype
    tile = min(TILE, batch)
    tiles = batch // tile
    call = partial(_call, interpret=interpret)
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
    above = jnp.einsum("abo,io->abi", back, weight)
    of_codes, step, of_first = _first_backward(above, code, state_action, first, interpret)
    total, error = sums.sum(axis=(0, 1)), value - goal
    d_weight = jnp.einsum("abi,abo->io", hidden, back, preferred_element_type=jnp.float32)
    gradients = (
        of_codes,
        step,
        of_first,
        d_weight.astype(weight.dtype),
        _eight(jnp.stack([total[3], total[1], total[2]])),
        total[:1],
        -2 * error / error.size,
    )
    return (jnp.mean(error**2), value), gradients


def _first_backward(above, code, state_action, first, interpret) -> tuple[Array, Array, Array]:
    """Gradients of the code's part, of E_sa's part and of the norm of the first layer."""
    (actors, batch, width), tile = above.shape, min(STEP_TILE, state_action.shape[0])
    tiles = batch // tile
    of_rows = pl.BlockSpec((tile, width), lambda k: (k, 0))
    step, of_codes, of_first = _call(
        partial(_step_kernel, actors=actors),
        (tiles,),
        [pl.BlockSpec((actors, tile, width), lambda k: (0, k, 0)), _whole(code), of_rows, _whole(first)],
        [
            of_rows,
            pl.BlockSpec((None, actors, width), lambda k: (k, 0, 0)),
            pl.BlockSpec((None, 3, width), lambda k: (k, 0, 0)),
        ],
        [
            jax.ShapeDtypeStruct((batch, width), state_action.dtype),
            _floats(tiles, actors, width),
            _floats(tiles, 3, width),
        ],
        interpret=interpret,
        warps=STEP_WARPS,
    )(above, code, state_action, first)
    return of_codes.sum(axis=0), step, _eight(of_first.sum(axis=0))


def _squared_error_backward(interpret, gradients, cotangents):
    return tuple((cotangents[0] * gradient).astype(gradient.dtype) for gradient in gradients)


squared_error.defvjp(_squared_error_forward, _squared_error_backward)


def _first_kernel(code: Ref, state_action: Ref, first: Ref, hidden: Ref) -> None:
    standard, _ = standardise(state_action[...].astype(jnp.float32) + code[0, :][None] + first[2, :][None])
    hidden[...] = jnp.maximum(standard * first[0, :][None] + first[1, :][None], 0.0).astype(hidden.dtype)


def _error_kernel(
    before: Ref, goal: Ref, second: Ref, last: Ref, value: Ref, back: Ref, sums: Ref, count: int
) -> None:
    """The second layer, the value and their gradient; sums over the tile: last, scale, offset, bias."""
    standard, inverse = standardise(before[...].astype(jnp.float32) + second[0, :][None])
    active = jnp.maximum(standard * second[1, :][None] + second[2, :][None], 0.0)
    found = (active * last[0, :][None]).sum(axis=1)
    value[...] = found
    slope = ((found - goal[...]) * (2.0 / count))[:, None]
    sums[0, :] = (slope * active).sum(axis=0)
    grads = jnp.where(active > 0, slope * last[0, :][None], 0.0)
    sums[1, :] = (grads * standard).sum(axis=0)
    sums[2, :] = grads.sum(axis=0)
    grads = standardise_backward(grads * second[1, :][None], standard, inverse)
    sums[3, :] = grads.sum(axis=0)
    back[...] = grads.astype(back.dtype)


def _step_kernel(
    above: Ref, code: Ref, state_action: Ref, first: Ref, step: Ref, of_codes: Ref, of_first: Ref, actors: int
) -> None:
    """Backward through the first layer, summed over actors for E_sa and over the tile for codes and norms."""
    shared = state_action[...].astype(jnp.float32) + first[2, :][None]

    def add(actor, sums):
        total, scale, offset = sums
        standard, inverse = standardise(shared + code[actor, :][None])
        active = standard * first[0, :][None] + first[1, :][None] > 0
        grads = jnp.where(active, above[actor, :, :].astype(jnp.float32), 0.0)
        scale, offset = scale + (grads * standard).sum(axis=0), offset + grads.sum(axis=0)
        grads = standardise_backward(grads * first[0, :][None], standard, inverse)
        of_codes[actor, :] = grads.sum(axis=0)
        return total + grads, scale, offset

    zeros = jnp.zeros_like(first[0, :])
    total, scale, offset = lax.fori_loop(0, actors, add, (jnp.zeros_like(shared), zeros, zeros))
    step[...] = total.astype(step.dtype)
    of_first[0, :] = scale
    of_first[1, :] = offset
    of_first[2, :] = total.sum(axis=0)


def _call(kernel, grid, in_specs, out_specs, out_shape, *, interpret: bool, warps: int | None = None) -> Callable:
    params = triton.CompilerParams(num_warps=warps or WARPS, num_stages=1)
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=in_specs,
        out_specs=out_specs,
        out_shape=out_shape,
        compiler_params=None if interpret else params,
        interpret=interpret,
    )


def _eight(rows: Array) -> Array:
    """With zeros for the rows of `first` and `second` that are not used."""
    return jnp.pad(rows, ((0, 8 - rows.shape[0]), (0, 0)))


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
