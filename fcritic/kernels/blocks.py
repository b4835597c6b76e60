"""The actor encoder's transformer on many policies at once: which blocks fit, and all between two attentions.

A block of the actor encoder is small: layer by layer it is dozens of kernels that last 2 microseconds each and wait
for one another. Between two attentions everything is done row by row, so a program takes a tile of rows through the
rest of a block and the projections of the next one: one kernel forward and one backward. Weights are loaded ahead,
part by part. Gradients of weights are products of arrays that the kernels leave behind (`weights`); nothing waits
for them. `fcritic.networks.actor_encoder.Block` is the plain reference.
"""

from functools import partial
import itertools
import os
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax import lax, vmap
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.kernels import policies as policy_kernels
from fcritic.kernels.heads import standardise, standardise_backward
from fcritic.kernels.pallas import Ref, Refs, Sums, call_on_rows, dot, dot_transposed, few_seeds, place
from fcritic.kernels.weights import weight_gradient
from fcritic.networks.actor_encoder import ActorEncoder, Block, attend, looked_from
from fcritic.networks.mlp import Linear
from fcritic.networks.policies import Policy
from fcritic.networks.precision import lower, on_gpu

FORWARD = {16: (4, 2, 128), 32: (4, 3, 128), 128: (8, 2, 128)}
"""Rows of a tile -> warps of a program, how many loads it has under way, and columns of a part of a weight."""
BACKWARD = {16: (16, 4, 2, 128, False), 32: (32, 4, 3, 128, False), 128: (64, 4, 2, 64, True)}
"""Rows of a tile forward -> rows of one backward, warps, loads, columns, and whether registers are so short that
gradients are read again rather than kept."""

FIRST, FIRST_TILE = 32, 16
"""Rows of a sequence that its last block computes where one is read, and of a tile of them: few are short work."""

MULTIPLE = 16
"""Sequences are filled up to a multiple of so many rows."""


Rows = Float[Array, "rows width"]


class Feed(NamedTuple):
    """The layers after attention. Vectors: scale, offset, biases of `output`, `contract` and (in four) `expand`."""

    feed_vectors: Float[Array, "8 width"]
    output: Float[Array, "width width"]
    expand: Float[Array, "width hidden"]
    contract: Float[Array, "hidden width"]


class Project(NamedTuple):
    """A norm and its projections: query, key and value of a block, or a code.

    Vectors: scale, offset, a bias for each; the rest is not used."""

    project_vectors: Float[Array, "8 width"]
    project: Float[Array, "projections width width"]


def fit(blocks: tuple[Block, ...]) -> bool:
    """Returns whether the kernels can compute these blocks: in bfloat16, a power of two wide."""
    block = blocks[0]
    width = block.query.weight.shape[-1]
    return (
        block.query.weight.dtype == jnp.bfloat16
        and 32 <= width <= 256
        and width & (width - 1) == 0
        and (width // block.heads) % 8 == 0
    )


def codes(encoder: ActorEncoder, policies: Policy) -> Float[Array, "actors code"]:
    """Returns the codes of a stack of policies."""
    sequences = vmap(partial(_sequence, encoder))(policies)
    tile = rows_of_a_tile(encoder.config.shared, sequences.shape[0])
    summary = jnp.broadcast_to(encoder.summary, (sequences.shape[0], 1, encoder.summary.shape[0]))
    sequences = jnp.concatenate([summary, sequences], axis=1)
    return first_codes(encoder.blocks, encoder.norm, encoder.read, sequences, tile)


def _sequence(encoder: ActorEncoder, policy: Policy) -> Float[Array, "tokens width"]:
    """`ActorEncoder.sequence`; kernels of policies leave out the first of three layers, where it is not read."""
    probes = looked_from(encoder)
    policy = lower(policy, probes.dtype)
    if 0 not in {layer % 3 for layer in encoder.config.layers} and policy_kernels.fit(policy, probes):
        activations = (None, *policy_kernels.last_layers(policy, probes))
    else:
        activations = vmap(policy.activations)(probes)
    return jnp.concatenate([_made_once(tokens) for tokens in encoder.tokens(activations)])


@jax.custom_vjp
def _made_once(tokens: Float[Array, "tokens width"]) -> Float[Array, "tokens width"]:
    """Returns the tokens, whose gradient is made before it is used.

    Else the compiler cuts it out of that of the whole sequence in one kernel with a sum over all tokens, and the
    policies' gradient waits for that sum.
    """
    return tokens


_made_once.defvjp(lambda tokens: (tokens, None), lambda _, grads: (jax.lax.optimization_barrier(grads),))


def bits_must_repeat() -> bool:
    """Returns whether XLA was told, as by `--deterministic`, to use operations that repeat their bits only."""
    flags = os.environ.get("XLA_FLAGS", "")
    return any(f"--xla_gpu_{name}=true" in flags for name in ("deterministic_ops", "exclude_nondeterministic_ops"))


def rows_of_a_tile(shared: bool, sequences: int) -> int:
    """Large tiles load weights less often; small ones are more to share out where few seeds have few sequences:
    those of one encoder, or one for each encoder."""
    return 32 if (shared or sequences == 1) and few_seeds() else 128


def first_codes(
    blocks: tuple[Block, ...],
    norm: eqx.nn.LayerNorm,
    read: Linear,
    sequences: Float[Array, "actors tokens width"],
    tile: int,
) -> Float[Array, "actors code"]:
    """Returns the first token of every sequence after all blocks, normalised and read."""
    width, code = read.weight.shape
    if code != width:
        rows, _ = _first_rows(blocks, sequences, tile)
        return vmap(lambda token: read(norm(token)))(rows[:, 0])
    reader = Project(_stack(norm.weight, norm.bias, read.bias), read.weight[None])
    return _first_rows(blocks, sequences, tile, reader)[1][0][:, 0]


def _first_rows(
    blocks: tuple[Block, ...],
    sequences: Float[Array, "actors tokens width"],
    tile: int,
    reader: Project | None = None,
) -> tuple[Float[Array, "actors kept width"], list[Float[Array, "actors kept width"]]]:
    """The first rows of each sequence after all blocks, and the codes read from them."""
    (actors, tokens, width), padded = sequences.shape, _padded(sequences, tile)
    length = padded.shape[1]
    keep, last_tile = (FIRST, FIRST_TILE) if length >= FIRST else (length, tile)
    split = lambda rows: rows.reshape(actors, length, -1)
    attend = lambda block, parts, count: _attend(block, [split(part) for part in parts], count, tokens)
    rows, parts = between(None, padded.reshape(-1, width), None, _project(blocks[0]), tile)
    for block, following in itertools.pairwise(blocks):
        mixed = attend(block, parts, length)
        rows, parts = between(mixed, rows, _feed(block), _project(following), tile)
    mixed, kept = attend(blocks[-1], parts, keep), split(rows)[:, :keep].reshape(-1, width)
    rows, read = between(mixed, kept, _feed(blocks[-1]), reader, last_tile)
    return rows.reshape(actors, keep, width), [part.reshape(actors, keep, -1) for part in read]


def _attend(
    block: Block, parts: list[Float[Array, "actors padded width"]], keep: int, tokens: int
) -> Float[Array, "rows width"]:
    """Attention of the first `keep` rows of each sequence; rows from `tokens` on are padding that no row sees."""
    query, key, value = (part.reshape(*part.shape[:2], block.heads, -1) for part in parts)
    return attend_all(query[:, :keep], key, value, tokens).reshape(-1, parts[0].shape[-1])


def _padded(sequences: Float[Array, "actors tokens width"], tile: int) -> Float[Array, "actors padded width"]:
    """Followed by zeros: all of them together must be a tile at least."""
    actors, tokens, _ = sequences.shape
    length = max(tokens, -(-tile // actors))
    return jnp.pad(sequences, ((0, 0), (0, length - tokens + -length % MULTIPLE), (0, 0)))


def _project(block: Block) -> Project:
    norm, parts = block.attention_norm, (block.query, block.key, block.value)
    vectors = _stack(norm.weight, norm.bias, *(part.bias for part in parts))
    return Project(vectors, jnp.stack([part.weight for part in parts]))


def _feed(block: Block) -> Feed:
    norm, expand = block.feed_norm, block.expand.bias.reshape(4, -1)
    vectors = _stack(norm.weight, norm.bias, block.output.bias, block.contract.bias, *expand)
    return Feed(vectors, block.output.weight, block.expand.weight, block.contract.weight)


def _stack(*vectors: Array) -> Float[Array, "8 width"]:
    """Filled up with zeros: all stacks are then alike, and made together."""
    zeros = [jnp.zeros(vectors[0].shape)] * (8 - len(vectors))
    return jnp.stack([vector.astype(jnp.float32) for vector in (*vectors, *zeros)])


def attend_all(
    query: Float[Array, "sequences kept heads depth"],
    key: Float[Array, "sequences padded heads depth"],
    value: Float[Array, "sequences padded heads depth"],
    tokens: int,
) -> Float[Array, "sequences kept heads depth"]:
    """The same for many sequences of so many tokens, followed by padding; on a GPU by a kernel of cuDNN.

    XLA 0.11 cannot compile that kernel's gradient where bits must repeat (`raw_hash_map::at`).
    """
    if not on_gpu() or bits_must_repeat():
        return jax.vmap(attend)(query, key[:, :tokens], value[:, :tokens])
    lengths = lambda x, length: jnp.full((x.shape[0],), length, jnp.int32)
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        query_seq_lengths=lengths(query, min(tokens, query.shape[1])),
        key_value_seq_lengths=lengths(key, tokens),
        implementation="cudnn",
    )


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def between(
    mixed: Rows | None, x: Rows, feed: Feed | None, project: Project | None, tile: int
) -> tuple[Rows, list[Rows]]:
    """Returns the rows after the block whose attention gave `mixed`, and the projections that follow.

    Either may be missing: there is nothing before the first block, and need not be after the last.
    """
    return _forward(mixed, x, feed, project, tile)[0]


def _forward(mixed, x, feed, project, tile):
    width, outs, tiled = x.shape[1], {}, {"x": x}
    if feed is not None:
        tiled["mixed"] = mixed
        outs |= {"out": width, "total": width, "normal": width, "hidden": feed.expand.shape[1]}
    names = _projections(project)
    if names:
        outs |= {"seen": width} | dict.fromkeys(names, width)
    found = call_on_rows(_between_kernel, tiled, _named(feed, project), outs, (tile, *FORWARD[tile]))
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


def _backward(tile, kept, grads):
    mixed, out, found, feed, project = kept
    past, projected = grads
    names = _projections(project)
    width, outs, tiled = out.shape[1], {}, {"past": past}
    if names:
        outs, tiled = {"grad": width}, tiled | {"out": out} | dict(zip(names, projected, strict=True))
    if feed is not None:
        outs |= {"d_hidden": feed.expand.shape[1], "step": width, "d_mixed": width}
        tiled |= {"total": found["total"], "hidden": found["hidden"]}
    back = call_on_rows(_between_back_kernel, tiled, _named(feed, project), outs, BACKWARD[tile], sums=True)
    sums, above, d_feed, d_project = back["sums"].sum(axis=0), back.get("grad", past), None, None
    if feed is not None:
        pairs = ((mixed, back["step"]), (found["normal"], back["d_hidden"]), (found["hidden"], above))
        d_feed = Feed(sums[:8], *(weight_gradient(*pair) for pair in pairs))
    if names:
        d_project = Project(sums[8:], jnp.stack([weight_gradient(found["seen"], p) for p in projected]))
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
    # The rows written above are there: threads have waited for one another in the products since.
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
