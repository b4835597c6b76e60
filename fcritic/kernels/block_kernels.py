"""What lies between the attentions of a stack of transformer blocks: one kernel forward and one backward.

A block of the actor encoder is small: layer by layer it is dozens of kernels that last 2 microseconds each and wait
for one another. Between two attentions everything is done row by row, so a program takes a tile of rows through the
rest of a block and the projections of the next one. Weights are loaded ahead, part by part. Gradients of weights
are products of what the kernels leave behind (`weight_kernels`); nothing waits for them.
`fcritic.networks.transformer.Block` is the plain reference.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.kernels.norm_kernels import standardise, standardise_backward
from fcritic.kernels.row_tiles import Ref, Refs, Sums, call, dot, dot_transposed, place
from fcritic.kernels.weight_kernels import weight_gradient

FORWARD = {16: (4, 2, 128), 32: (4, 3, 128), 128: (8, 2, 128)}
"""Rows of a tile -> warps of a program, how many loads it has under way, and columns of a part of a weight."""
BACKWARD = {16: (16, 4, 2, 128, False), 32: (32, 4, 3, 128, False), 128: (64, 4, 2, 64, True)}
"""Rows of a tile forward -> rows of one backward, warps, loads, columns, and whether registers are so short that
gradients are read again rather than kept."""

Rows = Float[Array, "rows width"]


class Feed(NamedTuple):
    """What follows attention. Vectors: scale, offset, biases of `output`, `contract` and (four parts) `expand`."""

    feed_vectors: Float[Array, "8 width"]
    output: Float[Array, "width width"]
    expand: Float[Array, "width hidden"]
    contract: Float[Array, "hidden width"]


class Project(NamedTuple):
    """A norm and what is projected from it: query, key and value of a block, or a code.

    Vectors: scale, offset, a bias for each; the rest is not used."""

    project_vectors: Float[Array, "8 width"]
    project: Float[Array, "projections width width"]


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def between(
    mixed: Rows | None, x: Rows, feed: Feed | None, project: Project | None, interpret: bool, tile: int
) -> tuple[Rows, list[Rows]]:
    """Rows after the block whose attention gave `mixed`, and what the next block, or a reader, projects from them.

    Either may be missing: there is nothing before the first block, and need not be after the last.
    """
    return _forward(mixed, x, feed, project, interpret, tile)[0]


def _forward(mixed, x, feed, project, interpret, tile):
    width, outs, tiled = x.shape[1], {}, {"x": x}
    if feed is not None:
        tiled["mixed"] = mixed
        outs |= {"out": width, "total": width, "normal": width, "hidden": feed.expand.shape[1]}
    names = _projections(project)
    if names:
        outs |= {"seen": width} | dict.fromkeys(names, width)
    found = call(_between_kernel, tiled, _named(feed, project), outs, interpret, (tile, *FORWARD[tile]))
    out = found.get("out", x)
    return (out, [found.pop(name) for name in names]), (mixed, out, found, feed, project)


def _between_kernel(refs: Refs, columns: int) -> None:
    rows = _float(refs["x"])
    columns = min(columns, rows.shape[1])
    if "mixed" in refs:
        rows = _feed_rows(refs, rows, columns)
        refs["out"][...] = _lower(rows)
    if "project" in refs:
        vectors, weight = refs["project_vectors"], refs["project"]
        seen = _lower(_affine(standardise(rows)[0], vectors))
        refs["seen"][...] = seen

        def project(number, _) -> int:
            index, part = place(number, columns, rows.shape[1])
            bias = vectors[2 + index, part][None]  # loaded first: nothing waits for it before the product is there
            found = _lower(dot(seen, weight[index, :, part]) + bias)
            for own in range(weight.shape[0]):
                mask = jnp.broadcast_to(index == own, found.shape)
                triton.store(refs[f"projection{own}"].at[:, part], found, mask=mask)
            return 0

        lax.fori_loop(0, weight.shape[0] * (rows.shape[1] // columns), project, 0)


def _feed_rows(refs: Refs, x: Array, columns: int) -> Array:
    """Keeps the sum with `x`, its norm and the hidden layer for the way back."""
    vectors, expand, contract, hidden = (refs[name] for name in ("feed_vectors", "expand", "contract", "hidden"))
    total = x + dot(refs["mixed"][...], refs["output"][...]) + vectors[2, :][None]
    refs["total"][...] = _lower(total)
    normal = _lower(_affine(standardise(total)[0], vectors))
    refs["normal"][...] = normal

    def add(number, total):
        (index, of_bias), part = place(number, columns, x.shape[1]), pl.ds(number * columns, columns)
        bias = vectors[4 + index, of_bias][None]
        active = _lower(jnp.maximum(dot(normal, expand[:, part]) + bias, 0.0))
        hidden[:, part] = active
        return total + dot(active, contract[part, :])

    return lax.fori_loop(0, hidden.shape[1] // columns, add, total + vectors[3, :][None])


def _backward(interpret, tile, kept, grads):
    mixed, out, found, feed, project = kept
    past, projected = grads
    names = _projections(project)
    width, outs, tiled = out.shape[1], {}, {"past": past}
    if names:
        outs, tiled = {"grad": width}, tiled | {"out": out} | dict(zip(names, projected, strict=True))
    if feed is not None:
        outs |= {"d_hidden": feed.expand.shape[1], "step": width, "d_mixed": width}
        tiled |= {"total": found["total"], "hidden": found["hidden"]}
    back = call(_between_back_kernel, tiled, _named(feed, project), outs, interpret, BACKWARD[tile], sums=True)
    sums, above, d_feed, d_project = back["sums"].sum(axis=0), back.get("grad", past), None, None
    if feed is not None:
        pairs = ((mixed, back["step"]), (found["normal"], back["d_hidden"]), (found["hidden"], above))
        d_feed = Feed(sums[:8], *(weight_gradient(*pair, interpret) for pair in pairs))
    if names:
        d_project = Project(sums[8:], jnp.stack([weight_gradient(found["seen"], p, interpret) for p in projected]))
    return back.get("d_mixed"), back.get("step", above), d_feed, d_project


def _between_back_kernel(refs: Refs, columns: int, again: bool) -> None:
    width, found = refs["past"].shape[1], Sums(refs)
    columns = min(columns, width)
    grad = None if again and "project" in refs else _float(refs["past"])
    if "project" in refs:
        added = _back_through_project(refs, found, width, columns)
        grad = added + (_float(refs["past"]) if again else grad)
        refs["grad"][...] = _lower(grad)
    if "hidden" in refs:
        _back_through_feed(refs, found, grad, columns, again)
    found.write()


def _back_through_project(refs: Refs, found: Sums, width: int, columns: int) -> Array:
    vectors, weight = refs["project_vectors"], refs["project"]
    count = weight.shape[0]

    def add(number, grad):
        index, part = place(number, columns, width)
        back = refs["projection0"][:, part] if count == 1 else 0
        for own in range(count if count > 1 else 0):  # only one of them is read from memory
            mask = jnp.full((grad.shape[0], columns), index == own)
            load = triton.load(refs[f"projection{own}"].at[:, part], mask=mask, other=0.0)
            back = load if own == 0 else jnp.where(index == own, load, back)
        found.store(10 + index, part, back)
        return grad + dot_transposed(back, weight[index, :, part])

    grad = lax.fori_loop(0, count * (width // columns), add, jnp.zeros(refs["out"].shape))
    found.done |= {*range(10, 10 + count)}
    return _back_through_norm(refs, "out", vectors, found, 8, grad)


def _back_through_norm(refs: Refs, name: str, vectors: Ref, found: Sums, first: int, grad: Array) -> Array:
    # Nothing is added: so rows are laid out over threads as `grad` is, not as they are loaded.
    standard, inverse = standardise(_float(refs[name]) + 0.0 * grad)
    found.add(first, grad * standard)
    found.add(first + 1, grad)
    return standardise_backward(grad * vectors[0, :][None], standard, inverse)


def _back_through_feed(refs: Refs, found: Sums, grad: Array, columns: int, again: bool) -> None:
    vectors, expand, contract = (refs[name] for name in ("feed_vectors", "expand", "contract"))
    above, hidden, d_hidden = _lower(grad), refs["hidden"], refs["d_hidden"]
    found.add(3, grad)

    def add(number, back):
        (index, of_bias), part = place(number, columns, above.shape[1]), pl.ds(number * columns, columns)
        grads = jnp.where(_float(hidden, part) > 0, dot_transposed(above, contract[part, :]), 0.0)
        found.store(4 + index, of_bias, grads)
        d_hidden[:, part] = _lower(grads)
        return back + dot_transposed(_lower(grads), expand[:, part])

    back = lax.fori_loop(0, hidden.shape[1] // columns, add, jnp.zeros(above.shape))
    found.done |= {*range(4, 8)}
    step = _back_through_norm(refs, "total", vectors, found, 0, back)
    # What was written above is there: threads have waited for one another in the products since.
    step += _float(refs["grad" if "grad" in refs else "past"]) if again else grad
    found.add(2, step)
    refs["step"][...] = _lower(step)
    refs["d_mixed"][...] = _lower(dot_transposed(_lower(step), refs["output"][...]))


between.defvjp(_forward, _backward)


def _projections(project: Project | None) -> list[str]:
    return [] if project is None else [f"projection{index}" for index in range(project.project.shape[0])]


def _float(ref: Ref, part: Any = slice(None)) -> Array:
    return ref[:, part].astype(jnp.float32)


def _lower(rows: Array) -> Array:
    return rows.astype(jnp.bfloat16)


def _affine(standard: Array, vectors: Ref) -> Array:
    return standard * vectors[0, :][None] + vectors[1, :][None]


def _named(*parts: Feed | Project | None) -> dict[str, Array]:
    return {name: array for part in parts if part is not None for name, array in part._asdict().items()}
