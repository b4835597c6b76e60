"""Attention of many short sequences: one kernel forward, one backward.

A program takes a tile of queries of one head through all keys of their sequence. Backward there are two kinds of
programs, which need not wait for each other: one for the gradients of a tile of queries, one for those of a tile of
keys and values. Both compute the weights of the softmax again. No sum depends on which program is first, so bits
repeat. `fcritic.networks.transformer.attend` is the plain reference.
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

TILE, CHUNK, WARPS, STAGES = 32, 32, 4, 2
"""Rows of a tile, rows that they meet at a time, warps of a program, and how many loads it has under way."""
BACK_TILE, BACK_CHUNK, BACK_WARPS, BACK_STAGES = 32, 32, 4, 2
"""The same backward; sequences must be whole tiles."""

Ref = Any


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4, 5))
def attend(
    joined: Float[Array, "rows joined"], heads: int, padded: int, tokens: int, keep: int, interpret: bool
) -> Float[Array, "kept width"]:
    """softmax(Q K' / sqrt(d)) V of the first `keep` rows of every sequence.

    `joined` has query, key and value side by side, sequences of `padded` rows below each other; only the first
    `tokens` of them are seen.
    """
    return _forward(joined, heads, padded, tokens, keep, interpret)[0]


def _forward(joined, heads, padded, tokens, keep, interpret):
    actors, width = joined.shape[0] // padded, joined.shape[1] // 3
    tile, depth = min(TILE, keep), width // heads
    mixed, largest = pl.pallas_call(
        partial(_forward_kernel, tokens=tokens),
        grid=(actors, heads, keep // tile),
        in_specs=[pl.BlockSpec((padded, 3 * width), lambda a, h, t: (a, 0))],
        out_specs=[
            pl.BlockSpec((tile, depth), lambda a, h, t: (a * (keep // tile) + t, h)),
            pl.BlockSpec((None, None, tile), lambda a, h, t: (a, h, t)),
        ],
        out_shape=[
            jax.ShapeDtypeStruct((actors * keep, width), joined.dtype),
            jax.ShapeDtypeStruct((actors, heads, keep), jnp.float32),
        ],
        compiler_params=None if interpret else triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        interpret=interpret,
    )(joined)
    return mixed, (joined, mixed, largest)


def _forward_kernel(joined: Ref, mixed: Ref, largest: Ref, *, tokens: int) -> None:
    """Weights are relative to the highest score so far. Keeps the logarithm of their sum for the way back."""
    (tile, depth), width = mixed.shape, joined.shape[1] // 3
    head, start = pl.program_id(1) * depth, pl.program_id(2) * tile
    query = joined[pl.ds(start, tile), pl.ds(head, depth)]

    def add(seen, size, sums):
        highest, total, weighed = sums
        key, value = (joined[pl.ds(seen, size), pl.ds(part * width + head, depth)] for part in (1, 2))
        scores = jnp.where(_seen(seen, size, tokens)[None], _dot_transposed(query, key) * depth**-0.5, -jnp.inf)
        higher = jnp.maximum(highest, scores.max(axis=1))
        weights, shrink = jnp.exp(scores - higher[:, None]), jnp.exp(highest - higher)
        weighed = weighed * shrink[:, None] + _dot(weights.astype(value.dtype), value)
        return higher, total * shrink + weights.sum(axis=1), weighed

    # No score is as low as the first one: a chunk that is all padding then counts for nothing.
    first = (jnp.full(tile, -1e30), jnp.zeros(tile), jnp.zeros((tile, depth)))
    highest, total, weighed = _over(joined.shape[0], CHUNK, add, first)
    mixed[...] = (weighed / total[:, None]).astype(mixed.dtype)
    largest[...] = highest + jnp.log(total)


def _backward(heads, padded, tokens, keep, interpret, kept, grad):
    joined, mixed, largest = kept
    actors, width = joined.shape[0] // padded, joined.shape[1] // 3
    tile = min(BACK_TILE, keep)
    of_actor = pl.BlockSpec((keep, width), lambda a, h, t, r: (a, 0))
    step = pl.pallas_call(
        partial(_backward_kernel, tokens=tokens, depth=width // heads),
        grid=(actors, heads, padded // tile, 2),
        in_specs=[
            pl.BlockSpec((padded, 3 * width), lambda a, h, t, r: (a, 0)),
            of_actor,
            pl.BlockSpec((None, None, keep), lambda a, h, t, r: (a, h, 0)),
            of_actor,
        ],
        out_specs=pl.BlockSpec((tile, 3 * width), lambda a, h, t, r: (a * (padded // tile) + t, 0)),
        out_shape=jax.ShapeDtypeStruct(joined.shape, joined.dtype),
        compiler_params=None if interpret else triton.CompilerParams(num_warps=BACK_WARPS, num_stages=BACK_STAGES),
        interpret=interpret,
    )(joined, mixed, largest, grad)
    return (step,)


attend.defvjp(_forward, _backward)


def _backward_kernel(
    joined: Ref, mixed: Ref, largest: Ref, grad: Ref, step: Ref, *, tokens: int, depth: int
) -> None:
    """One half of the programs writes the gradients of queries, the other those of keys and values."""
    head, start, role = pl.program_id(1) * depth, pl.program_id(2) * step.shape[0], pl.program_id(3)
    given = (joined, mixed, largest, grad, step, head, start, tokens, depth)
    pl.when((role == 0) & (start < grad.shape[0]))(lambda: _back_to_queries(*given))

    @pl.when((role == 0) & (start >= grad.shape[0]))
    def _() -> None:
        step[:, pl.ds(head, depth)] = jnp.zeros((step.shape[0], depth), step.dtype)

    pl.when(role == 1)(lambda: _back_to_keys(*given))


def _back_to_queries(joined, mixed, largest, grad, step, head, start, tokens, depth) -> None:
    tile, width, scale = step.shape[0], joined.shape[1] // 3, depth**-0.5
    rows, columns = pl.ds(start, tile), pl.ds(head, depth)
    query, above, norm = joined[rows, columns], grad[rows, columns], largest[rows]
    along = _along(mixed[rows, columns], above)

    def add(seen, size, total):
        key, value = (joined[pl.ds(seen, size), pl.ds(part * width + head, depth)] for part in (1, 2))
        weights = jnp.exp(_dot_transposed(query, key) * scale - norm[:, None])
        weights = jnp.where(_seen(seen, size, tokens)[None], weights, 0.0)
        slopes = weights * (_dot_transposed(above, value) - along[:, None])
        return total + _dot(slopes.astype(key.dtype), key)

    total = _over(joined.shape[0], BACK_CHUNK, add, jnp.zeros((tile, depth)))
    step[:, columns] = (total * scale).astype(step.dtype)


def _back_to_keys(joined, mixed, largest, grad, step, head, start, tokens, depth) -> None:
    """The same weights, transposed."""
    tile, width, scale = step.shape[0], joined.shape[1] // 3, depth**-0.5
    columns = pl.ds(head, depth)
    of_keys, of_values = (pl.ds(part * width + head, depth) for part in (1, 2))
    key, value = joined[pl.ds(start, tile), of_keys], joined[pl.ds(start, tile), of_values]
    seen = _seen(start, tile, tokens)[:, None]

    def add(first, size, totals):
        rows = pl.ds(first, size)
        query, above, norm = joined[rows, columns], grad[rows, columns], largest[rows]
        along = _along(mixed[rows, columns], above)
        weights = jnp.exp(_dot_transposed(key, query) * scale - norm[None])
        weights = jnp.where(seen, weights, 0.0)
        slopes = weights * (_dot_transposed(value, above) - along[None])
        of_key, of_value = totals
        of_value += _dot(weights.astype(above.dtype), above)
        return of_key + _dot(slopes.astype(query.dtype), query), of_value

    zeros = jnp.zeros((tile, depth))
    of_key, of_value = _over(grad.shape[0], BACK_CHUNK, add, (zeros, zeros))
    step[:, of_keys] = (of_key * scale).astype(step.dtype)
    step[:, of_values] = of_value.astype(step.dtype)


def _over(count: int, chunk: int, add: Callable, total: Any) -> Any:
    """Adds up chunks of so many rows: whole ones in a loop, then smaller ones, each a power of two."""
    whole = count // chunk
    if whole:
        total = lax.fori_loop(0, whole, lambda number, so_far: add(number * chunk, chunk, so_far), total)
    start = whole * chunk
    while start < count:
        size = 1 << ((count - start).bit_length() - 1)
        total = add(start, size, total)
        start += size
    return total


def _seen(start: int | Array, size: int, tokens: int) -> Array:
    return start + jnp.arange(size) < tokens


def _along(mixed: Array, above: Array) -> Array:
    """What the gradients of a row's weights have in common."""
    return (mixed.astype(jnp.float32) * above.astype(jnp.float32)).sum(axis=1)


def _dot(rows: Array, weight: Array) -> Array:
    return jnp.dot(rows, weight, preferred_element_type=jnp.float32)


def _dot_transposed(rows: Array, others: Array) -> Array:
    return lax.dot_general(rows, others, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
