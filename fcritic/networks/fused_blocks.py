"""A stack of transformer blocks on many sequences at once, by the kernels of `block_kernels`, where they fit."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.networks import block_kernels as kernels
from fcritic.networks.precision import on_gpu
from fcritic.networks.transformer import Block, attend_all

SEEDS = "seeds"
"""Name of the axis of seeds, where one program trains several."""
INTERPRET = False
"""Whether the kernels are interpreted, which works anywhere; for tests."""
FIRST, FIRST_TILE = 32, 16
"""Rows of a sequence that its last block computes where one is read, and of a tile of them: few are short work."""


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


def rows_of_a_tile(shared: bool) -> int:
    """Large tiles load weights less often; small ones are more to share out where one encoder serves few seeds."""
    try:
        seeds = jax.lax.axis_size(SEEDS)
    except NameError:  # the program has no such axis
        seeds = 1
    return 32 if shared and seeds < 4 else 64


def first_tokens(
    blocks: tuple[Block, ...], sequences: Float[Array, "actors tokens width"], tile: int
) -> Float[Array, "actors width"]:
    """The first token of every sequence after all blocks."""
    tokens, padded = sequences.shape[1], _padded(sequences, tile)
    for block in blocks[:-1]:
        padded = _block(block, padded, padded.shape[1], tokens, tile)
    return _block(blocks[-1], padded, min(FIRST, padded.shape[1]), tokens, tile)[:, 0]


def all_tokens(
    blocks: tuple[Block, ...], sequences: Float[Array, "actors tokens width"], tile: int
) -> Float[Array, "actors tokens width"]:
    """Every token of every sequence after all blocks."""
    tokens, padded = sequences.shape[1], _padded(sequences, tile)
    for block in blocks:
        padded = _block(block, padded, padded.shape[1], tokens, tile)
    return padded[:, :tokens]


def _padded(sequences: Float[Array, "actors tokens width"], tile: int) -> Float[Array, "actors padded width"]:
    """Followed by zeros. All of them together, not each of them, must be whole tiles."""
    actors, tokens, _ = sequences.shape
    multiple = max(16, tile // math.gcd(actors, tile))
    return jnp.pad(sequences, ((0, 0), (0, -tokens % multiple), (0, 0)))


def _block(
    block: Block, x: Float[Array, "actors padded width"], keep: int, tokens: int, tile: int
) -> Float[Array, "actors kept width"]:
    """The first `keep` rows of each sequence after a block; rows from `tokens` on are padding that no row sees."""
    actors, padded, width = x.shape
    rows = x.reshape(-1, width)
    norm, zeros = block.attention_norm, jnp.zeros(width)
    vectors = (norm.weight, norm.bias, block.query.bias, block.key.bias, block.value.bias, zeros, zeros, zeros)
    *parts, rows = kernels.project(
        rows, _stack(vectors), block.query.weight, block.key.weight, block.value.weight, INTERPRET, tile
    )
    query, key, value = (part.reshape(actors, padded, block.heads, -1) for part in parts)
    mixed = attend_all(query[:, :keep], key, value, tokens).reshape(-1, width)
    norm, expand = block.feed_norm, block.expand.bias.reshape(4, width)
    vectors = (norm.weight, norm.bias, block.output.bias, block.contract.bias, *expand)
    kept = rows.reshape(x.shape)[:, :keep].reshape(-1, width)
    weights = (block.output.weight, block.expand.weight, block.contract.weight)
    tile = tile if keep == padded else FIRST_TILE
    return kernels.feed(mixed, kept, _stack(vectors), *weights, INTERPRET, tile).reshape(actors, keep, width)


def _stack(vectors: tuple[Array, ...]) -> Float[Array, "8 width"]:
    return jnp.stack([vector.astype(jnp.float32) for vector in vectors])
