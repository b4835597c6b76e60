"""A stack of transformer blocks on many sequences at once, by kernels of our own, where they fit."""

import itertools
import math

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.networks import block_kernels as kernels
from fcritic.networks.attention_kernels import TILE as ATTENTION_TILE
from fcritic.networks.attention_kernels import attend
from fcritic.networks.mlp import Linear
from fcritic.networks.precision import on_gpu
from fcritic.networks.transformer import Block

SEEDS = "seeds"
"""Name of the axis of seeds, where one program trains several."""
INTERPRET = False
"""Whether the kernels are interpreted, which works anywhere; for tests."""
FIRST = 16
"""Rows of a sequence that its last block computes where one is read: the fewest that a kernel can."""


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
        and width // block.heads >= 16
        and width % block.heads == 0
        and block.heads & (block.heads - 1) == 0
    )


def rows_of_a_tile(shared: bool) -> int:
    """Large tiles load weights less often; small ones are more to share out where one encoder serves few seeds."""
    try:
        seeds = jax.lax.axis_size(SEEDS)
    except NameError:  # the program has no such axis
        seeds = 1
    return 32 if shared and seeds < 4 else 64


def first_codes(
    blocks: tuple[Block, ...],
    norm: eqx.nn.LayerNorm,
    read: Linear,
    sequences: Float[Array, "actors tokens width"],
    tile: int,
) -> Float[Array, "actors code"]:
    """The first token of every sequence after all blocks, normalised and read."""
    width, code = read.weight.shape
    if code % width or code > 4 * width:
        rows, _ = _last_rows(blocks, sequences, FIRST, tile)
        return vmap(lambda token: read(norm(token)))(rows[:, 0])
    vectors = _stack(norm.weight, norm.bias, *read.bias.reshape(-1, width))
    return _last_rows(blocks, sequences, FIRST, tile, kernels.Project(vectors, read.weight))[1][:, 0]


def all_tokens(
    blocks: tuple[Block, ...], sequences: Float[Array, "actors tokens width"], tile: int
) -> Float[Array, "actors tokens width"]:
    """Every token of every sequence after all blocks."""
    return _last_rows(blocks, sequences, None, tile)[0][:, : sequences.shape[1]]


def _last_rows(
    blocks: tuple[Block, ...],
    sequences: Float[Array, "actors tokens width"],
    keep: int | None,
    tile: int,
    reader: kernels.Project | None = None,
) -> tuple[Float[Array, "actors kept width"], Float[Array, "actors kept code"] | None]:
    """The first `keep` rows of each sequence after all blocks, or all with the padding, which no row sees; and what
    is read from them."""
    (actors, tokens, width), padded = sequences.shape, _padded(sequences, tile)
    length = padded.shape[1]
    rows, joined = kernels.between(None, padded.reshape(-1, width), None, _project(blocks[0]), INTERPRET, tile)
    for block, following in itertools.pairwise(blocks):
        mixed = attend(joined, block.heads, length, tokens, length, INTERPRET)
        rows, joined = kernels.between(mixed, rows, _feed(block), _project(following), INTERPRET, tile)
    keep = length if keep is None else keep
    mixed = attend(joined, blocks[-1].heads, length, tokens, keep, INTERPRET)
    kept = rows.reshape(padded.shape)[:, :keep].reshape(-1, width)
    tile = tile if keep == length else FIRST
    rows, read = kernels.between(mixed, kept, _feed(blocks[-1]), reader, INTERPRET, tile)
    return rows.reshape(actors, keep, width), None if read is None else read.reshape(actors, keep, -1)


def _padded(sequences: Float[Array, "actors tokens width"], tile: int) -> Float[Array, "actors padded width"]:
    """Followed by zeros: each is whole tiles of attention, all together are whole tiles of the rest."""
    actors, tokens, _ = sequences.shape
    multiple = math.lcm(ATTENTION_TILE, tile // math.gcd(actors, tile))
    return jnp.pad(sequences, ((0, 0), (0, -tokens % multiple), (0, 0)))


def _project(block: Block) -> kernels.Project:
    norm, parts = block.attention_norm, (block.query, block.key, block.value)
    weight = jnp.concatenate([part.weight for part in parts], axis=1)
    return kernels.Project(_stack(norm.weight, norm.bias, *(part.bias for part in parts)), weight)


def _feed(block: Block) -> kernels.Feed:
    norm, expand = block.feed_norm, block.expand.bias.reshape(4, -1)
    vectors = _stack(norm.weight, norm.bias, block.output.bias, block.contract.bias, *expand)
    return kernels.Feed(vectors, block.output.weight, block.expand.weight, block.contract.weight)


def _stack(*vectors: Array) -> Float[Array, "8 width"]:
    """Filled up with zeros: all stacks are then alike, and made together."""
    zeros = [jnp.zeros(vectors[0].shape)] * (8 - len(vectors))
    return jnp.stack([vector.astype(jnp.float32) for vector in (*vectors, *zeros)])
