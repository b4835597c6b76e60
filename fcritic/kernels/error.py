"""The squared error of a critic on the product of policies and states, and its gradient.

The products are the compiler's; one kernel each computes the norms, sums over rows and the error between them. Left
to the compiler, these were most of the time: it writes float32 in between and sums rows one by one.

The number of instructions per element decides, and waiting. So a program is best one warp: a row lies across its
lanes, and sums over rows need neither shared memory nor barriers. A program goes through its rows a few at a time;
sums over a row are taken side by side.
"""

from collections.abc import Callable
from functools import partial

import jax
from jax import lax
from jax.experimental import pallas as pl
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.kernels.pallas import EPSILON, Ref, call, few_seeds, whole
from fcritic.kernels.weights import weight_gradient

Shape = tuple[int, int, int]
FIRST: Shape = (32, 2, 1)
"""Rows of a program, rows that it takes at once, and its warps: with one, sums over rows stay in its registers."""
ERROR: dict[bool, Shape] = {True: (16, 1, 1), False: (64, 2, 1)}
"""The same for the second kernel, where seeds are few and where they are many."""
STEP: Shape = (4, 2, 1)
"""The same for the last kernel, whose programs go through all actors."""


@jax.custom_vjp
def squared_error(
    code: Float[Array, "actors width"],
    state_action: Float[Array, "batch width"],
    first: Float[Array, "8 width"],
    weight: Float[Array, "width width"],
    second: Float[Array, "8 width"],
    last: Float[Array, "1 width"],
    goal: Float[Array, "actors batch"],
) -> tuple[Float[Array, ""], Float[Array, "actors batch"]]:
    """The mean of (value - goal)^2 of one critic, and the values (which pass no gradient).

    `code` and `state_action` are the contributions of E_joint's two inputs to its first layer, `first` scale and
    offset of its norm and its bias, `weight` and `second` the second layer, `last` the weights of the value.
    """
    return _squared_error_forward(code, state_action, first, weight, second, last, goal)[0]


def _squared_error_forward(code, state_action, first, weight, second, last, goal):
    """The gradient is computed along with the error, since its direction is known; `backward` only scales it."""
    hidden, moments = _first(code, state_action, first)
    before = jnp.einsum("abi,io->abo", hidden, weight)
    value, back, sums = _error(before, goal, second, last)
    above = jnp.einsum("abo,io->abi", back, weight)
    of_codes, step, of_first = _first_backward(above, moments, code, state_action, first)
    total, error = sums.sum(axis=(0, 1)), value - goal
    d_second = _eight(jnp.stack([total[2], total[0] * last[0], total[1] * last[0]]))
    d_last = (total[0] * second[1] + total[1] * second[2])[None]
    # Apart: otherwise the optimiser's kernel makes them from the parameters that it changes, hence from a copy.
    d_second, d_last = jax.lax.optimization_barrier((d_second, d_last))
    d_weight = weight_gradient(_rows(hidden), _rows(back), above)
    gradients = (of_codes, step, of_first, d_weight, d_second, d_last, -2 * error / error.size)
    return (jnp.mean(error**2), value), gradients


def _rows(array: Float[Array, "actors batch width"]) -> Float[Array, "rows width"]:
    return array.reshape(-1, array.shape[-1])


def _first(code, state_action, first) -> tuple[Array, Array]:
    """The first layer, and per row 1/sigma and -mu/sigma of its layer norm."""
    (actors, width), batch, (rows, some, warps) = code.shape, state_action.shape[0], FIRST
    rows = min(rows, batch)
    return _call(
        partial(_first_kernel, some=some),
        (actors, batch // rows),
        [_of_actor(width), _of_rows(rows, width), whole(first)],
        [_of_both(rows, width), pl.BlockSpec((None, 2, rows), lambda j, k: (j, 0, k))],
        [jax.ShapeDtypeStruct((actors, batch, width), state_action.dtype), _floats(actors, 2, batch)],
        warps=warps,
    )(code[:, None], state_action, first)


def _error(before, goal, second, last) -> tuple[Array, Array, Array]:
    """Values, the gradient of the second product, and sums over the rows of each program."""
    (actors, batch, width), (rows, some, warps) = before.shape, ERROR[few_seeds()]
    rows = min(rows, batch)
    of_rows = _of_both(rows, width)
    return _call(
        partial(_error_kernel, some=some, merge=warps == 1, count=actors * batch),
        (actors, batch // rows),
        [of_rows, _of_both(rows), whole(second), whole(last)],
        [_of_both(rows), of_rows, pl.BlockSpec((None, None, 3, width), lambda j, k: (j, k, 0, 0))],
        [
            jax.ShapeDtypeStruct(goal.shape, jnp.float32),
            jax.ShapeDtypeStruct(before.shape, before.dtype),
            _floats(actors, batch // rows, 3, width),
        ],
        warps=warps,
    )(before, goal, second, last)


def _first_backward(above, moments, code, state_action, first) -> tuple[Array, Array, Array]:
    """Gradients of the code's part, of E_sa's part and of the norm of the first layer."""
    (actors, batch, width), (tile, some, warps) = above.shape, STEP
    tile = min(tile, batch)
    tiles = batch // tile
    of_rows = pl.BlockSpec((tile, width), lambda k: (k, 0))
    step, of_codes, of_first = _call(
        partial(_step_kernel, some=some, merge=warps == 1),
        (tiles,),
        [
            pl.BlockSpec((actors, tile, width), lambda k: (0, k, 0)),
            pl.BlockSpec((actors, 2, tile), lambda k: (0, 0, k)),
            whole(code),
            of_rows,
            whole(first),
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
        warps=warps,
    )(above, moments, code, state_action, first)
    return of_codes.sum(axis=0), step, _eight(of_first.sum(axis=0))


def _squared_error_backward(gradients, cotangents):
    return tuple((cotangents[0] * gradient).astype(gradient.dtype) for gradient in gradients)


squared_error.defvjp(_squared_error_forward, _squared_error_backward)


def _call(kernel, grid, in_specs, out_specs, out_shape, *, warps: int) -> Callable:
    return call(kernel, grid=grid, in_specs=in_specs, out_specs=out_specs, out_shape=out_shape, warps=warps)


def _eight(rows: Array) -> Array:
    """With zeros for the rows of `first` and `second` that are not used."""
    return jnp.pad(rows, ((0, 8 - rows.shape[0]), (0, 0)))


def _floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _of_actor(width: int) -> pl.BlockSpec:
    return pl.BlockSpec((None, 1, width), lambda j, k: (j, 0, 0))


def _of_rows(tile: int, width: int) -> pl.BlockSpec:
    return pl.BlockSpec((tile, width), lambda j, k: (k, 0))


def _of_both(tile: int, *rest: int) -> pl.BlockSpec:
    return pl.BlockSpec((None, tile, *rest), lambda j, k: (j, k, *[0] * len(rest)))


def _first_kernel(code: Ref, state_action: Ref, first: Ref, hidden: Ref, moments: Ref, some: int) -> None:
    """The first layer of one actor, and the moments of its rows, which `_step_kernel` needs again."""
    scale, offset, fixed = first[0, :][None], first[1, :][None], code[0, :][None] + first[2, :][None]

    def layer(index, _):
        rows = pl.ds(index * some, some)
        inputs = state_action[rows, :].astype(jnp.float32) + fixed
        inverse, shift = _moments(inputs)
        moments[0, rows] = inverse
        moments[1, rows] = shift
        standard = inputs * inverse[:, None] + shift[:, None]
        hidden[rows, :] = jnp.maximum(standard * scale + offset, 0.0).astype(hidden.dtype)

    lax.fori_loop(0, state_action.shape[0] // some, layer, None)


def _error_kernel(
    before: Ref,
    goal: Ref,
    second: Ref,
    last: Ref,
    value: Ref,
    back: Ref,
    sums: Ref,
    some: int,
    merge: bool,
    count: int,
) -> None:
    """The second layer, the value and their gradient.

    With s the normal rows, m the mask of the ReLU and e = 2 (value - goal) / count, the sums over rows are those of
    e m s, of e m, and of `back`. The first two give the gradients of scale, offset and last weights.
    """
    bias, scale, offset = (second[index, :][None] for index in range(3))
    last = last[0, :][None]
    slope = scale * last

    def add(index, totals):
        rows = pl.ds(index * some, some)
        inputs = before[rows, :].astype(jnp.float32) + bias
        inverse, shift = _moments(inputs)
        standard = inputs * inverse[:, None] + shift[:, None]
        active = standard * scale + offset
        found = (jnp.maximum(active, 0.0) * last).sum(axis=1)
        value[rows] = found
        slopes = jnp.where(active > 0, slope, 0.0)
        error = (found - goal[rows]) * (2.0 / count)
        masked = jnp.where(active > 0, error[:, None], 0.0)
        grads = _through_norm(slopes, standard, error * inverse)
        back[rows, :] = grads.astype(back.dtype)
        return _added(totals, (masked * standard, masked, grads), merge)

    zeros = jnp.zeros((1 if merge else some, bias.shape[1]), jnp.float32)
    totals = lax.fori_loop(0, before.shape[0] // some, add, (zeros,) * 3)
    for index, total in enumerate(totals):
        sums[index, :] = total.sum(axis=0)


def _step_kernel(
    above: Ref,
    moments: Ref,
    code: Ref,
    state_action: Ref,
    first: Ref,
    step: Ref,
    of_codes: Ref,
    of_first: Ref,
    some: int,
    merge: bool,
) -> None:
    """Backward through the first layer, summed over actors for E_sa and over the tile for codes and norms."""
    (actors, tile, width), scale, offset = above.shape, first[0, :][None], first[1, :][None]
    parts = [slice(start, start + some) for start in range(0, tile, some)]

    def add(actor, sums):
        totals, of_norm = sums
        # The bias is read again each time: held, it took the registers of a third of the warps.
        fixed, of_code, added = code[actor, :][None] + first[2, :][None], None, []
        for part, total in zip(parts, totals, strict=True):
            inverse, shift = moments[actor, 0, part], moments[actor, 1, part]
            inputs = state_action[part, :].astype(jnp.float32) + fixed
            standard = inputs * inverse[:, None] + shift[:, None]
            grads = jnp.where(standard * scale + offset > 0, above[actor, part, :].astype(jnp.float32), 0.0)
            of_norm = _added(of_norm, (grads * standard, grads), merge)
            grads = _through_norm(grads * scale, standard, inverse)
            of_code = grads if of_code is None else of_code + grads
            added.append(total + grads)
        of_codes[actor, :] = of_code.sum(axis=0)
        return added, of_norm

    zeros = jnp.zeros((some, width), jnp.float32)
    of_norm = (jnp.zeros((1 if merge else some, width), jnp.float32),) * 2
    totals, of_norm = lax.fori_loop(0, actors, add, ([zeros] * len(parts), of_norm))
    for part, total in zip(parts, totals, strict=True):
        step[part, :] = total.astype(step.dtype)
    for index, sums in enumerate((*of_norm, sum(totals))):
        of_first[index, :] = sums.sum(axis=0)


def _moments(rows: Array) -> tuple[Array, Array]:
    """Per row, 1/sigma and -mu/sigma of the layer norm. Both sums are of one pass, since rows are of order one."""
    mean, square = _mean(rows), _mean(rows * rows)
    inverse = lax.rsqrt(jnp.maximum(square - mean * mean, 0.0) + EPSILON)
    return inverse, -mean * inverse


def _through_norm(grads: Array, standard: Array, factor: Array) -> Array:
    """The gradient through the norm, times `factor` * sigma."""
    mean, along = _mean(grads), _mean(grads * standard)
    return (grads - standard * along[:, None]) * factor[:, None] - (mean * factor)[:, None]


def _mean(rows: Array) -> Array:
    """`rows.mean(axis=1)` would divide, which is many instructions."""
    return rows.sum(axis=1) * (1.0 / rows.shape[1])


def _added(totals: tuple[Array, ...], rows: tuple[Array, ...], merge: bool) -> tuple[Array, ...]:
    """Rows on top of the totals of earlier ones; across warps they are merged only at the end."""
    return tuple(
        total + (array.sum(axis=0, keepdims=True) if merge else array)
        for total, array in zip(totals, rows, strict=True)
    )
