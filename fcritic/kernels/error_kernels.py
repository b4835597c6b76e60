"""The squared error of a critic on the product of policies and states, and its gradient.

The products are the compiler's; what lies between them, norms, sums over rows and the error itself, is one kernel
each (`error_bodies`). Left to the compiler, these were most of the time: it writes float32 in between and sums rows
one by one.
"""

from collections.abc import Callable
from functools import partial

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.kernels import error_bodies
from fcritic.kernels.row_tiles import few_seeds
from fcritic.kernels.weight_kernels import weight_gradient

Shape = tuple[int, int, int]
FIRST: Shape = (32, 2, 1)
"""Rows of a program, rows that it takes at once, and its warps: with one, sums over rows stay in its registers."""
ERROR: dict[bool, Shape] = {True: (16, 1, 1), False: (64, 2, 1)}
"""The same for the second kernel, where seeds are few and where they are many."""
STEP: Shape = (4, 2, 1)
"""The same for the last kernel, whose programs go through all actors."""


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
    hidden, moments = _first(code, state_action, first, interpret)
    before = jnp.einsum("abi,io->abo", hidden, weight)
    value, back, sums = _error(before, goal, second, last, interpret)
    above = jnp.einsum("abo,io->abi", back, weight)
    of_codes, step, of_first = _first_backward(above, moments, code, state_action, first, interpret)
    total, error = sums.sum(axis=(0, 1)), value - goal
    d_second = _eight(jnp.stack([total[2], total[0] * last[0], total[1] * last[0]]))
    d_last = (total[0] * second[1] + total[1] * second[2])[None]
    # Apart: otherwise the optimiser's kernel makes them from the parameters that it changes, hence from a copy.
    d_second, d_last = jax.lax.optimization_barrier((d_second, d_last))
    d_weight = weight_gradient(_rows(hidden), _rows(back), interpret, above)
    gradients = (of_codes, step, of_first, d_weight, d_second, d_last, -2 * error / error.size)
    return (jnp.mean(error**2), value), gradients


def _rows(array: Float[Array, "actors batch width"]) -> Float[Array, "rows width"]:
    return array.reshape(-1, array.shape[-1])


def _first(code, state_action, first, interpret) -> tuple[Array, Array]:
    """The first layer, and what its rows are multiplied with and then shifted by to be normal."""
    (actors, width), batch, (rows, some, warps) = code.shape, state_action.shape[0], FIRST
    rows = min(rows, batch)
    return _call(
        partial(error_bodies.first_kernel, some=some),
        (actors, batch // rows),
        [_of_actor(width), _of_rows(rows, width), _whole(first)],
        [_of_both(rows, width), pl.BlockSpec((None, 2, rows), lambda j, k: (j, 0, k))],
        [jax.ShapeDtypeStruct((actors, batch, width), state_action.dtype), _floats(actors, 2, batch)],
        interpret=interpret,
        warps=warps,
    )(code[:, None], state_action, first)


def _error(before, goal, second, last, interpret) -> tuple[Array, Array, Array]:
    """Values, the gradient of the second product, and sums over the rows of each program."""
    (actors, batch, width), (rows, some, warps) = before.shape, ERROR[few_seeds()]
    rows = min(rows, batch)
    of_rows = _of_both(rows, width)
    return _call(
        partial(error_bodies.error_kernel, some=some, merge=warps == 1, count=actors * batch),
        (actors, batch // rows),
        [of_rows, _of_both(rows), _whole(second), _whole(last)],
        [_of_both(rows), of_rows, pl.BlockSpec((None, None, 3, width), lambda j, k: (j, k, 0, 0))],
        [
            jax.ShapeDtypeStruct(goal.shape, jnp.float32),
            jax.ShapeDtypeStruct(before.shape, before.dtype),
            _floats(actors, batch // rows, 3, width),
        ],
        interpret=interpret,
        warps=warps,
    )(before, goal, second, last)


def _first_backward(above, moments, code, state_action, first, interpret) -> tuple[Array, Array, Array]:
    """Gradients of the code's part, of E_sa's part and of the norm of the first layer."""
    (actors, batch, width), (tile, some, warps) = above.shape, STEP
    tile = min(tile, batch)
    tiles = batch // tile
    of_rows = pl.BlockSpec((tile, width), lambda k: (k, 0))
    step, of_codes, of_first = _call(
        partial(error_bodies.step_kernel, some=some, merge=warps == 1),
        (tiles,),
        [
            pl.BlockSpec((actors, tile, width), lambda k: (0, k, 0)),
            pl.BlockSpec((actors, 2, tile), lambda k: (0, 0, k)),
            _whole(code),
            of_rows,
            _whole(first),
        ],
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
        warps=warps,
    )(above, moments, code, state_action, first)
    return of_codes.sum(axis=0), step, _eight(of_first.sum(axis=0))


def _squared_error_backward(interpret, gradients, cotangents):
    return tuple((cotangents[0] * gradient).astype(gradient.dtype) for gradient in gradients)


squared_error.defvjp(_squared_error_forward, _squared_error_backward)


def _call(kernel, grid, in_specs, out_specs, out_shape, *, interpret: bool, warps: int) -> Callable:
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
