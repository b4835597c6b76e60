"""The one wrapper of `pallas_call`, and one on it for kernels that go through many rows tile by tile."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic import kernels

Ref = Any
Refs = dict[str, Ref]
EPSILON = 1e-5
"""That of `equinox.nn.LayerNorm`."""
SUMS = 16
"""Rows that each tile has for sums over its own."""


def few_seeds() -> bool:
    """Returns whether the program that is traced trains so few seeds that large tiles leave most of a GPU idle."""
    try:
        return jax.lax.axis_size(kernels.SEEDS) < 4
    except NameError:  # it has no such axis
        return True


def call(kernel: Callable[..., None], *, warps: int, stages: int = 1, **how: Any) -> Callable[..., Any]:
    """Returns `pl.pallas_call` of a kernel for Triton, or interpreted where `fcritic.kernels.INTERPRET` says so."""
    params = None if kernels.INTERPRET else triton.CompilerParams(num_warps=warps, num_stages=stages)
    return pl.pallas_call(kernel, compiler_params=params, interpret=kernels.INTERPRET, **how)


def whole(array: Array) -> pl.BlockSpec:
    """Returns the block of a program that sees all of an array."""
    return pl.BlockSpec(array.shape, lambda *_: (0,) * array.ndim)


def call_on_rows(
    kernel: Callable[..., None],
    tiled: dict[str, Array],
    whole: dict[str, Array],
    widths: dict[str, int],
    how: tuple[Any, ...],
    sums: bool = False,
    across: tuple[str, ...] = (),
) -> dict[str, Array]:
    """Returns outputs of these widths, and sums of each tile where they are asked for.

    Arrays go by their names; those that are `across` are transposed. `how`: rows of a tile, warps of a program, how
    many loads it has under way, and further arguments of the kernel.
    """
    names, arrays = (tuple(tiled), tuple(whole)), (tuple(tiled.values()), tuple(whole.values()))
    return _call_on_rows(kernel, names, tuple(widths.items()), kernels.INTERPRET, how, sums, across, arrays)


@partial(jax.jit, static_argnums=range(7), inline=True)
def _call_on_rows(kernel, names, widths, interpret, how, sums, across, arrays) -> dict[str, Array]:
    """Traced once for all blocks that are alike, hence `interpret` among the arguments."""
    del interpret
    tiled, whole = (dict(zip(*pair, strict=True)) for pair in zip(names, arrays, strict=True))
    tile, warps, stages, *known = how
    count, width = next(iter(tiled.values())).shape
    tiles, start = pl.cdiv(count, tile), partial(_start, tile, count)
    swap = lambda name, pair: pair[::-1] if name in across else pair
    element = lambda name, size: swap(name, (pl.Element(tile), pl.Element(size)))
    spec = lambda name, size: pl.BlockSpec(element(name, size), lambda k: swap(name, (start(k), 0)))
    out = {name: jax.ShapeDtypeStruct(swap(name, (count, size)), jnp.bfloat16) for name, size in widths}
    out_specs = [spec(name, size) for name, size in widths]
    if sums:
        out["sums"] = jax.ShapeDtypeStruct((tiles, SUMS, width), jnp.float32)
        out_specs.append(pl.BlockSpec((None, SUMS, width), lambda k: (k, 0, 0)))

    def body(*refs: Ref) -> None:
        fresh = {"fresh": _fresh(tile, count)} if sums and count % tile else {}
        kernel(dict(zip((*tiled, *whole, *out), refs, strict=True)) | fresh, *known)

    of_tiled = [spec(name, swap(name, array.shape)[1]) for name, array in tiled.items()]
    of_whole = [pl.BlockSpec(array.shape, lambda k, n=array.ndim: (0,) * n) for array in whole.values()]
    found = call(
        body,
        grid=(tiles,),
        in_specs=of_tiled + of_whole,
        out_specs=out_specs,
        out_shape=list(out.values()),
        warps=warps,
        stages=stages,
        name=kernel.__name__.strip("_"),
    )(*tiled.values(), *whole.values())
    return dict(zip(out, found, strict=True))


def _start(tile: int, count: int, k: Array) -> Array:
    """Where rows are not whole tiles, the last goes back over rows of the one before and computes them again."""
    return jnp.minimum(k * tile, count - tile)


def _fresh(tile: int, count: int) -> Array:
    """Which rows of this program's tile are in no tile before it."""
    k = pl.program_id(0)
    return jnp.arange(tile) >= k * tile - _start(tile, count, k)


def dot(rows: Array, weight: Array) -> Array:
    """Rows times a weight, summed up in float32."""
    return jnp.dot(rows, weight, preferred_element_type=jnp.float32)


def dot_transposed(rows: Array, weight: Array) -> Array:
    """Rows times a weight from its other side, as gradients go."""
    return jax.lax.dot_general(rows, weight, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def place(number: Array, columns: int, width: int) -> tuple[Array, Any]:
    """Which of several arrays side by side, each `width` wide, a part lies in, and where there."""
    parts = jnp.int32(width // columns)
    return jax.lax.div(number, parts), pl.ds(jax.lax.rem(number, parts) * columns, columns)


class Sums:
    """Sums over a tile's rows, by products with ones: threads wait for one another less than in adding up."""

    def __init__(self, refs: Refs) -> None:
        """Rows of `sums` that `store` has written are to be named in `done`."""
        self.refs, self.done, self.total = refs, set(), jnp.zeros(refs["sums"].shape)

    def add(self, number: int, rows: Float[Array, "tile width"]) -> None:
        """Into one row, written at the end."""
        self.total += self._product(jnp.arange(SUMS) == number, rows)

    def store(self, number: Array, part: Any, rows: Float[Array, "tile columns"]) -> None:
        """Into some columns of a row, at once; in a loop."""
        found, mask = self._product(jnp.full(SUMS, True), rows), (jnp.arange(SUMS) == number)[:, None]
        triton.store(self.refs["sums"].at[:, part], found, mask=jnp.broadcast_to(mask, found.shape))

    def write(self) -> None:
        """All that are not written yet, zeros where there is nothing."""
        mask = jnp.full(SUMS, True)
        for number in sorted(self.done):
            mask &= jnp.arange(SUMS) != number
        triton.store(self.refs["sums"], self.total, mask=jnp.broadcast_to(mask[:, None], self.total.shape))

    def _product(self, which: Array, rows: Array) -> Array:
        fresh = self.refs.get("fresh", jnp.full(rows.shape[0], True))
        ones = which[:, None] & fresh[None, :]
        return dot(ones.astype(jnp.bfloat16), rows.astype(jnp.bfloat16))
