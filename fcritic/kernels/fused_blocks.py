"""A stack of transformer blocks on many sequences at once, by the kernels of `block_kernels`, where they fit."""

import itertools

import equinox as eqx
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.kernels import block_kernels as kernels
from fcritic.kernels import order
from fcritic.kernels.row_tiles import few_seeds
from fcritic.networks.mlp import Linear
from fcritic.networks.precision import on_gpu
from fcritic.networks.transformer import Block, attend_all

INTERPRET = False
"""Whether the kernels are interpreted, which works anywhere; for tests."""
FIRST, FIRST_TILE = 32, 16
"""Rows of a sequence that its last block computes where one is read, and of a tile of them: few are short work."""

MULTIPLE = 16
"""Sequences are filled up to a multiple of so many rows."""


def fit(blocks: tuple[Block, ...]) -> bool:
    """Whether the kernels can compute these blocks: on a GPU in bfloat16, as by default, a power of two wide."""
    if not blocks or not (INTERPRET or on_gpu()):
        return False
    block = blocks[0]
    width = block.query.weight.shape[-1]
    return (
        block.query.weight.dtype == jnp.bfloat16
        and block.activation == "relu"
        and block.norm_first
        and 32 <= width <= 256
        and width & (width - 1) == 0
        and (width // block.heads) % 8 == 0
    )


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
    """The first token of every sequence after all blocks, normalised and read."""
    width, code = read.weight.shape
    if code != width:
        rows, _ = _last_rows(blocks, sequences, FIRST, tile, read.bias)
        return vmap(lambda token: read(norm(token)))(rows[:, 0])
    reader = kernels.Project(_stack(norm.weight, norm.bias, read.bias), read.weight[None])
    return _last_rows(blocks, sequences, FIRST, tile, read.bias, reader)[1][0][:, 0]


def all_tokens(
    blocks: tuple[Block, ...], sequences: Float[Array, "actors tokens width"], tile: int
) -> Float[Array, "actors tokens width"]:
    """Every token of every sequence after all blocks."""
    return _last_rows(blocks, sequences, sequences.shape[1], tile)[0][:, : sequences.shape[1]]


def _last_rows(
    blocks: tuple[Block, ...],
    sequences: Float[Array, "actors tokens width"],
    keep: int,
    tile: int,
    tells: Float[Array, " code"] | None = None,
    reader: kernels.Project | None = None,
) -> tuple[Float[Array, "actors kept width"], list[Float[Array, "actors kept width"]]]:
    """At least the first `keep` rows of each sequence after all blocks, and what is read from them.

    The gradient of `tells` is there only after that of the last attention (see `order.told`).
    """
    (actors, tokens, width), padded = sequences.shape, _padded(sequences, tile)
    length = padded.shape[1]
    keep, last_tile = (FIRST, FIRST_TILE) if keep <= FIRST <= length else (length, tile)
    split = lambda rows: rows.reshape(actors, length, -1)
    attend = lambda block, parts, count: _attend(block, [split(part) for part in parts], count, tokens)
    rows, parts = kernels.between(None, padded.reshape(-1, width), None, _project(blocks[0]), INTERPRET, tile)
    for block, following in itertools.pairwise(blocks):
        mixed = attend(block, parts, length)
        rows, parts = kernels.between(mixed, rows, _feed(block), _project(following), INTERPRET, tile)
    if tells is not None:
        parts = [order.told(parts[0], tells, INTERPRET), *parts[1:]]
    mixed, kept = attend(blocks[-1], parts, keep), split(rows)[:, :keep].reshape(-1, width)
    rows, read = kernels.between(mixed, kept, _feed(blocks[-1]), reader, INTERPRET, last_tile)
    return rows.reshape(actors, keep, width), [part.reshape(actors, keep, -1) for part in read]


def _attend(
    block: Block, parts: list[Float[Array, "actors padded width"]], keep: int, tokens: int
) -> Float[Array, "rows width"]:
    """What the first `keep` rows of each sequence see; rows from `tokens` on are padding that no row sees."""
    query, key, value = (part.reshape(*part.shape[:2], block.heads, -1) for part in parts)
    return attend_all(query[:, :keep], key, value, tokens).reshape(-1, parts[0].shape[-1])


def _padded(sequences: Float[Array, "actors tokens width"], tile: int) -> Float[Array, "actors padded width"]:
    """Followed by zeros: all of them together must be a tile at least."""
    actors, tokens, _ = sequences.shape
    length = max(tokens, -(-tile // actors))
    return jnp.pad(sequences, ((0, 0), (0, length - tokens + -length % MULTIPLE), (0, 0)))


def _project(block: Block) -> kernels.Project:
    norm, parts = block.attention_norm, (block.query, block.key, block.value)
    vectors = _stack(norm.weight, norm.bias, *(part.bias for part in parts))
    return kernels.Project(vectors, jnp.stack([part.weight for part in parts]))


def _feed(block: Block) -> kernels.Feed:
    norm, expand = block.feed_norm, block.expand.bias.reshape(4, -1)
    vectors = _stack(norm.weight, norm.bias, block.output.bias, block.contract.bias, *expand)
    return kernels.Feed(vectors, block.output.weight, block.expand.weight, block.contract.weight)


def _stack(*vectors: Array) -> Float[Array, "8 width"]:
    """Filled up with zeros: all stacks are then alike, and made together."""
    zeros = [jnp.zeros(vectors[0].shape)] * (8 - len(vectors))
    return jnp.stack([vector.astype(jnp.float32) for vector in (*vectors, *zeros)])
