"""Kernels that go through many rows tile by tile, with arrays by their names."""

from collections.abc import Callable
from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp
from jaxtyping import Array, Float

Ref = Any
Refs = dict[str, Ref]
SUMS = 16
"""Rows that each tile has for sums over its own."""
SEEDS = "seeds"
"""Name of the axis of seeds, where one program trains several."""


def few_seeds() -> bool:
    """Whether the program trains fewer than four seeds, so that kernels must be cut small to fill the chip."""
    try:
        return jax.lax.axis_size(SEEDS) < 4
    except NameError:  # the program has no such axis
        return True


def call(
    kernel: Callable[[Refs, int], None],
    tiled: dict[str, Array],
    whole: dict[str, Array],
    widths: dict[str, int],
    interpret: bool,
    how: tuple[int, int, int, int],
    sums: bool = False,
    across: tuple[str, ...] = (),
) -> dict[str, Array]:
    """Outputs of these widths, and sums of each tile where they are asked for. What is `across` is transposed.

    `how`: rows of a tile, warps of a program, how many loads it has under way, columns of a part of a weight.
    """
    tile, warps, stages, columns = how
    count, width = next(iter(tiled.values())).shape
    # The last tile goes back over rows of the one before, where they are not whole tiles, and computes them again.
    start = lambda k: jnp.minimum(k * tile, count - tile)
    swap = lambda name, pair: pair[::-1] if name in across else pair
    spec = lambda name, width: pl.BlockSpec(
        swap(name, (pl.Element(tile), pl.Element(width))), lambda k: swap(name, (start(k), 0))
    )
    out_specs = [spec(name, width) for name, width in widths.items()]
    out_shape = [jax.ShapeDtypeStruct(swap(name, (count, width)), jnp.bfloat16) for name, width in widths.items()]
    names, tiles = [*tiled, *whole, *widths], pl.cdiv(count, tile)
    if sums:
        names.append("sums")
        out_specs.append(pl.BlockSpec((None, SUMS, width), lambda k: (k, 0, 0)))
        out_shape.append(jax.ShapeDtypeStruct((tiles, SUMS, width), jnp.float32))

    def body(*refs: Ref) -> None:
        named, k = dict(zip(names, refs, strict=True)), pl.program_id(0)
        if sums and count % tile:
            named["fresh"] = jnp.arange(tile) >= k * tile - start(k)
        kernel(named, columns)

    outs = pl.pallas_call(
        body,
        grid=(tiles,),
        in_specs=[
            *(spec(name, swap(name, array.shape)[1]) for name, array in tiled.items()),
            *(pl.BlockSpec(array.shape, lambda k, n=array.ndim: (0,) * n) for array in whole.values()),
        ],
        out_specs=out_specs,
        out_shape=out_shape,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=warps, num_stages=stages),
        interpret=interpret,
        name=kernel.__name__.strip("_"),
    )(*tiled.values(), *whole.values())
    return dict(zip(names[-len(outs) :], outs, strict=True))


def over_rows(refs: Refs, rows: Float[Array, "tile width"]) -> Float[Array, " width"]:
    """The sum of a tile's rows, without those that the tile before has summed already."""
    return (jnp.where(refs["fresh"][:, None], rows, 0.0) if "fresh" in refs else rows).sum(axis=0)
