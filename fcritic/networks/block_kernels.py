"""What lies between the attentions of a stack of transformer blocks: one kernel forward and one backward.

A block of the actor encoder is small: layer by layer it is dozens of kernels that last 2 microseconds each and wait
for one another. Between two attentions everything is done row by row, so a program takes a tile of rows through the
rest of a block and the projections of the next one. Weights are loaded ahead, part by part. Gradients of weights
are ordinary matrix products of what the kernels leave behind; nothing waits for them.
`fcritic.networks.transformer.Block` is the plain reference.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.networks.norm_kernels import standardise, standardise_backward

FORWARD = {16: (4, 2), 32: (8, 2), 64: (8, 2)}
"""Rows of a tile -> warps of a program, and how many loads it has under way."""
BACKWARD = {16: (16, 4, 2), 32: (32, 4, 2), 64: (64, 8, 2)}
"""Rows of a tile forward -> rows of one backward, warps and loads."""
PARTS = 5
"""Parts of a sum over many rows that is the gradient of a weight."""

Ref = Any
Refs = dict[str, Ref]
Rows = Float[Array, "rows width"]


class Feed(NamedTuple):
    """What follows attention. Vectors: scale, offset, biases of `output`, `contract` and (four parts) `expand`."""

    feed_vectors: Float[Array, "8 width"]
    output: Float[Array, "width width"]
    expand: Float[Array, "width hidden"]
    contract: Float[Array, "hidden width"]


class Project(NamedTuple):
    """A norm and what is projected from it, as queries, keys and values, side by side in parts of a block's width.

    Vectors: scale, offset, biases of the parts; the rest is not used."""

    project_vectors: Float[Array, "8 width"]
    project: Float[Array, "width joined"]


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def between(
    mixed: Rows | None, x: Rows, feed: Feed | None, project: Project | None, interpret: bool, tile: int
) -> tuple[Rows, Float[Array, "rows joined"] | None]:
    """Rows after the block whose attention gave `mixed`, and what the next block, or a reader, projects from them.

    Either may be missing: there is nothing before the first block, and need not be after the last.
    """
    return _forward(mixed, x, feed, project, interpret, tile)[0]


def _forward(mixed, x, feed, project, interpret, tile):
    width, outs, tiled = x.shape[1], {}, {"x": x}
    if feed is not None:
        tiled["mixed"] = mixed
        outs |= {"out": width, "total": width, "normal": width, "hidden": feed.expand.shape[1]}
    if project is not None:
        outs |= {"seen": width, "joined": project.project.shape[1]}
    found = _call(_forward_kernel, tiled, _named(feed, project), outs, interpret, (tile, *FORWARD[tile]))
    out = found.get("out", x)
    return (out, found.get("joined")), (mixed, out, found, feed, project)


def _forward_kernel(refs: Refs) -> None:
    rows = _float(refs["x"])
    if "mixed" in refs:
        rows = _feed_rows(refs, rows)
        refs["out"][...] = _lower(rows)
    if "joined" in refs:
        vectors, weight, joined = refs["project_vectors"], refs["project"], refs["joined"]
        seen = _lower(_affine(standardise(rows)[0], vectors))
        refs["seen"][...] = seen

        def project(number, _) -> int:
            part = _part(number, rows.shape[1])
            joined[:, part] = _lower(_dot(seen, weight[:, part]) + vectors[2 + number, :][None])
            return 0

        lax.fori_loop(0, joined.shape[1] // rows.shape[1], project, 0)


def _feed_rows(refs: Refs, x: Array) -> Array:
    """Keeps the sum with `x`, its norm and the hidden layer for the way back."""
    vectors, expand, contract, hidden = (refs[name] for name in ("feed_vectors", "expand", "contract", "hidden"))
    total = x + _dot(refs["mixed"][...], refs["output"][...]) + vectors[2, :][None]
    refs["total"][...] = _lower(total)
    normal = _lower(_affine(standardise(total)[0], vectors))
    refs["normal"][...] = normal

    def add(number, total):
        part = _part(number, x.shape[1])
        active = _lower(jnp.maximum(_dot(normal, expand[:, part]) + vectors[4 + number, :][None], 0.0))
        hidden[:, part] = active
        return total + _dot(active, contract[part, :])

    return lax.fori_loop(0, 4, add, total + vectors[3, :][None])


def _backward(interpret, tile, kept, grads):
    mixed, out, found, feed, project = kept
    past, d_joined = grads
    width, outs, tiled = out.shape[1], {}, {"past": past}
    if project is not None:
        outs, tiled = {"grad": width}, tiled | {"out": out, "d_joined": d_joined}
    if feed is not None:
        outs |= {"d_hidden": feed.expand.shape[1], "step": width, "d_mixed": width}
        tiled |= {"total": found["total"], "hidden": found["hidden"]}
    back = _call(_backward_kernel, tiled, _named(feed, project), outs, interpret, BACKWARD[tile], sums=True)
    sums, above, d_feed, d_project = back["sums"].sum(axis=0), back.get("grad", past), None, None
    if feed is not None:
        pairs = ((mixed, back["step"]), (found["normal"], back["d_hidden"]), (found["hidden"], above))
        d_feed = Feed(sums[:8], *(_weight_gradient(*pair) for pair in pairs))
    if project is not None:
        d_project = Project(sums[8:], _weight_gradient(found["seen"], d_joined))
    return back.get("d_mixed"), back.get("step", above), d_feed, d_project


def _backward_kernel(refs: Refs) -> None:
    sums, grad = refs["sums"], _float(refs["past"])
    if "d_joined" in refs:
        grad += _back_through_project(refs, grad.shape[1])
        refs["grad"][...] = _lower(grad)
    if "hidden" in refs:
        _back_through_feed(refs, grad)
    used = 10 + refs["d_joined"].shape[1] // grad.shape[1] if "d_joined" in refs else 8
    for unused in (*([] if "hidden" in refs else range(8)), *range(used, 16)):
        sums[unused, :] = jnp.zeros(grad.shape[1])


def _back_through_project(refs: Refs, width: int) -> Array:
    vectors, weight, d_joined, sums = (refs[name] for name in ("project_vectors", "project", "d_joined", "sums"))
    standard, inverse = standardise(_float(refs["out"]))

    def add(number, grad):
        part = _part(number, width)
        back = d_joined[:, part]
        sums[10 + number, :] = back.astype(jnp.float32).sum(axis=0)
        return grad + _dot_transposed(back, weight[:, part])

    grad = lax.fori_loop(0, d_joined.shape[1] // width, add, jnp.zeros_like(standard))
    sums[8, :] = (grad * standard).sum(axis=0)
    sums[9, :] = grad.sum(axis=0)
    return standardise_backward(grad * vectors[0, :][None], standard, inverse)


def _back_through_feed(refs: Refs, grad: Array) -> None:
    vectors, sums, expand, contract = (refs[name] for name in ("feed_vectors", "sums", "expand", "contract"))
    above, hidden, d_hidden = _lower(grad), refs["hidden"], refs["d_hidden"]
    sums[3, :] = grad.sum(axis=0)

    def add(number, back):
        part = _part(number, grad.shape[1])
        grads = jnp.where(_float(hidden, part) > 0, _dot_transposed(above, contract[part, :]), 0.0)
        sums[4 + number, :] = grads.sum(axis=0)
        d_hidden[:, part] = _lower(grads)
        return back + _dot_transposed(_lower(grads), expand[:, part])

    back = lax.fori_loop(0, 4, add, jnp.zeros_like(grad))
    standard, inverse = standardise(_float(refs["total"]))
    sums[0, :] = (back * standard).sum(axis=0)
    sums[1, :] = back.sum(axis=0)
    step = grad + standardise_backward(back * vectors[0, :][None], standard, inverse)
    sums[2, :] = step.sum(axis=0)
    refs["step"][...] = _lower(step)
    refs["d_mixed"][...] = _lower(_dot_transposed(_lower(step), refs["output"][...]))


between.defvjp(_forward, _backward)


def _weight_gradient(rows: Array, grads: Array) -> Array:
    """A sum over rows. Where it cannot be cut into a power of two of parts, the compiler would fill it up with
    copies of all its rows; it is cut here."""
    count = rows.shape[0]
    parts = PARTS if count > 1024 and count % 128 and count % (16 * PARTS) == 0 else 1
    rows, grads = (array.reshape(parts, count // parts, -1) for array in (rows, grads))
    sums = jnp.einsum("pri,pro->pio", rows, grads, preferred_element_type=jnp.float32)
    return sums.sum(axis=0).astype(rows.dtype)


def _part(number: int | Array, width: int) -> Any:
    """One of the parts, as wide as the block, of something wider."""
    return pl.ds(number * width, width)


def _float(ref: Ref, part: Any = slice(None)) -> Array:
    return ref[:, part].astype(jnp.float32)


def _lower(rows: Array) -> Array:
    return rows.astype(jnp.bfloat16)


def _dot(rows: Array, weight: Array) -> Array:
    return jnp.dot(rows, weight, preferred_element_type=jnp.float32)


def _dot_transposed(rows: Array, weight: Array) -> Array:
    return lax.dot_general(rows, weight, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def _affine(standard: Array, vectors: Ref) -> Array:
    return standard * vectors[0, :][None] + vectors[1, :][None]


def _named(*parts: Feed | Project | None) -> dict[str, Array]:
    return {name: array for part in parts if part is not None for name, array in part._asdict().items()}


def _call(
    kernel: Callable, tiled, whole, widths, interpret: bool, how: tuple[int, int, int], sums: bool = False
) -> dict[str, Array]:
    """Runs a kernel tile by tile, with arrays and outputs by their names; `sums` are 16 more rows for each tile."""
    tile, warps, stages = how
    rows, names = tiled["x" if "x" in tiled else "past"].shape[0], [*tiled, *whole, *widths]
    of_rows = lambda width: pl.BlockSpec((tile, width), lambda k: (k, 0))
    out_specs = [of_rows(width) for width in widths.values()]
    out_shape = [jax.ShapeDtypeStruct((rows, width), jnp.bfloat16) for width in widths.values()]
    if sums:
        width, names = next(iter(whole.values())).shape[1], [*names, "sums"]
        out_specs.append(pl.BlockSpec((None, 16, width), lambda k: (k, 0, 0)))
        out_shape.append(jax.ShapeDtypeStruct((rows // tile, 16, width), jnp.float32))
    outs = pl.pallas_call(
        lambda *refs: kernel(dict(zip(names, refs, strict=True))),
        grid=(rows // tile,),
        in_specs=[
            *(of_rows(array.shape[1]) for array in tiled.values()),
            *(pl.BlockSpec(array.shape, lambda k: (0, 0)) for array in whole.values()),
        ],
        out_specs=out_specs,
        out_shape=out_shape,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=warps, num_stages=stages),
        interpret=interpret,
    )(*tiled.values(), *whole.values())
    return dict(zip(names[-len(outs) :], outs, strict=True))
