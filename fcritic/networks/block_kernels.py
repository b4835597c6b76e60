"""What lies between the attentions of a stack of transformer blocks: one kernel forward and one backward.

A block of the actor encoder is small: layer by layer it is dozens of kernels that last 2 microseconds each and wait
for one another. Between two attentions everything is done row by row, so a program takes a tile of rows through the
rest of a block and the projections of the next one. Weights are loaded ahead, part by part. Gradients of weights
are ordinary matrix products of what the kernels leave behind; nothing waits for them.
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

from fcritic.networks.norm_kernels import standardise, standardise_backward
from fcritic.networks.row_tiles import SUMS, Ref, Refs, call, dot, dot_transposed, over_rows

FORWARD = {16: (4, 2, 128), 32: (4, 3, 128), 128: (8, 2, 128)}
"""Rows of a tile -> warps of a program, how many loads it has under way, and columns of a part of a weight."""
BACKWARD = {16: (16, 4, 2, 128), 32: (32, 4, 3, 128), 128: (32, 2, 2, 64)}
"""Rows of a tile forward -> rows of one backward, warps, loads and columns."""
PARTS = 5
"""Parts of a sum over many rows that is the gradient of a weight."""

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
            index, part = _place(number, columns, rows.shape[1])
            found = _lower(dot(seen, weight[index, :, part]) + vectors[2 + index, part][None])
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
        (index, of_bias), part = _place(number, columns, x.shape[1]), pl.ds(number * columns, columns)
        active = _lower(jnp.maximum(dot(normal, expand[:, part]) + vectors[4 + index, of_bias][None], 0.0))
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
    if len(names) > 1:
        outs["joined"] = len(names) * width
    if feed is not None:
        outs |= {"d_hidden": feed.expand.shape[1], "step": width, "d_mixed": width}
        tiled |= {"total": found["total"], "hidden": found["hidden"]}
    back = call(_between_back_kernel, tiled, _named(feed, project), outs, interpret, BACKWARD[tile], sums=True)
    sums, above, d_feed, d_project = back["sums"].sum(axis=0), back.get("grad", past), None, None
    if feed is not None:
        pairs = ((mixed, back["step"]), (found["normal"], back["d_hidden"]), (found["hidden"], above))
        d_feed = Feed(sums[:8], *(_weight_gradient(*pair) for pair in pairs))
    if names:
        joined = _weight_gradient(found["seen"], back.get("joined", projected[0]))
        d_project = Project(sums[8:], jnp.stack(jnp.split(joined, len(names), axis=1)))
    return back.get("d_mixed"), back.get("step", above), d_feed, d_project


def _between_back_kernel(refs: Refs, columns: int) -> None:
    sums, grad = refs["sums"], _float(refs["past"])
    columns = min(columns, grad.shape[1])
    if "project" in refs:
        grad += _back_through_project(refs, grad.shape[1], columns)
        refs["grad"][...] = _lower(grad)
    if "hidden" in refs:
        _back_through_feed(refs, grad, columns)
    used = 10 + refs["project"].shape[0] if "project" in refs else 8
    for unused in (*([] if "hidden" in refs else range(8)), *range(used, SUMS)):
        sums[unused, :] = jnp.zeros(grad.shape[1])


def _back_through_project(refs: Refs, width: int, columns: int) -> Array:
    """Leaves its gradients side by side too, for one product."""
    vectors, weight, sums = (refs[name] for name in ("project_vectors", "project", "sums"))
    standard, inverse = standardise(_float(refs["out"]))

    def add(number, grad):
        index, part = _place(number, columns, width)
        back = refs["projection0"][:, part]
        for own in range(1, weight.shape[0]):
            back = jnp.where(index == own, refs[f"projection{own}"][:, part], back)
        sums[10 + index, part] = over_rows(refs, back.astype(jnp.float32))
        if "joined" in refs:
            refs["joined"][:, pl.ds(number * columns, columns)] = back
        return grad + dot_transposed(back, weight[index, :, part])

    grad = lax.fori_loop(0, weight.shape[0] * (width // columns), add, jnp.zeros_like(standard))
    sums[8, :] = over_rows(refs, grad * standard)
    sums[9, :] = over_rows(refs, grad)
    return standardise_backward(grad * vectors[0, :][None], standard, inverse)


def _back_through_feed(refs: Refs, grad: Array, columns: int) -> None:
    vectors, sums, expand, contract = (refs[name] for name in ("feed_vectors", "sums", "expand", "contract"))
    above, hidden, d_hidden = _lower(grad), refs["hidden"], refs["d_hidden"]
    sums[3, :] = over_rows(refs, grad)

    def add(number, back):
        (index, of_bias), part = _place(number, columns, grad.shape[1]), pl.ds(number * columns, columns)
        grads = jnp.where(_float(hidden, part) > 0, dot_transposed(above, contract[part, :]), 0.0)
        sums[4 + index, of_bias] = over_rows(refs, grads)
        d_hidden[:, part] = _lower(grads)
        return back + dot_transposed(_lower(grads), expand[:, part])

    back = lax.fori_loop(0, hidden.shape[1] // columns, add, jnp.zeros_like(grad))
    standard, inverse = standardise(_float(refs["total"]))
    sums[0, :] = over_rows(refs, back * standard)
    sums[1, :] = over_rows(refs, back)
    step = grad + standardise_backward(back * vectors[0, :][None], standard, inverse)
    sums[2, :] = over_rows(refs, step)
    refs["step"][...] = _lower(step)
    refs["d_mixed"][...] = _lower(dot_transposed(_lower(step), refs["output"][...]))


between.defvjp(_forward, _backward)


def _weight_gradient(rows: Array, grads: Array) -> Array:
    """A sum over rows. Where it cannot be cut into a power of two of parts, the compiler would fill it up with
    copies of all its rows; it is cut here."""
    count = rows.shape[0]
    parts = PARTS if count > 1024 and count % 128 and count % (16 * PARTS) == 0 else 1
    rows, grads = (array.reshape(parts, count // parts, -1) for array in (rows, grads))
    sums = jnp.einsum("pri,pro->pio", rows, grads, preferred_element_type=jnp.float32)
    return sums.sum(axis=0).astype(rows.dtype)


def _place(number: Array, columns: int, width: int) -> tuple[Array, Any]:
    """Which of several arrays side by side, each as wide as the block, a part lies in, and where there."""
    parts = jnp.int32(width // columns)
    return lax.div(number, parts), pl.ds(lax.rem(number, parts) * columns, columns)


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
