"""What the kernels of `error_kernels` do. A program goes through its rows a few at a time.

What counts is the number of instructions per element and that nothing waits. So a program is best one warp: a row
lies across its lanes, and sums over rows need neither shared memory nor barriers. Sums over a row are taken side by
side.
"""

from typing import Any

from jax import lax
from jax.experimental import pallas as pl
import jax.numpy as jnp
from jaxtyping import Array

from fcritic.kernels.norm_kernels import EPSILON

Ref = Any


def first_kernel(code: Ref, state_action: Ref, first: Ref, hidden: Ref, moments: Ref, some: int) -> None:
    """The first layer of one actor, and the moments of its rows, which `step_kernel` needs again."""
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


def error_kernel(
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


def step_kernel(
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
    """What makes rows normal: a factor, then a shift. Both sums are of one pass, since rows are of order one."""
    mean, square = _mean(rows), _mean(rows * rows)
    inverse = lax.rsqrt(jnp.maximum(square - mean * mean, 0.0) + EPSILON)
    return inverse, -mean * inverse


def _through_norm(grads: Array, standard: Array, factor: Array) -> Array:
    """The gradient through the norm, times `factor` over what the rows were multiplied with."""
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
