"""A transformer block on one (tokens, width) array."""

from typing import Literal

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fcritic.networks.initial import fresh_norm
from fcritic.networks.mlp import Linear
from fcritic.networks.precision import bits_must_repeat, on_gpu
from fcritic.randomness import apart

Activation = Literal["relu", "gelu"]


class Block(eqx.Module):
    """Attention, then a feed-forward layer of four times the width; each added to its input.

    Layer norm comes before each of the two parts, or after each sum where `norm_first` is False.
    """

    attention_norm: eqx.nn.LayerNorm
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    feed_norm: eqx.nn.LayerNorm
    expand: Linear
    contract: Linear
    heads: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    norm_first: bool = eqx.field(static=True)

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        key: PRNGKeyArray,
        activation: Activation = "relu",
        norm_first: bool = True,
    ):
        if width % heads:
            raise ValueError(f"a width of {width} cannot be split over {heads} heads")
        keys = apart(key, 6)
        self.attention_norm = fresh_norm(width)
        self.query, self.key, self.value, self.output = (Linear(width, width, key=k) for k in keys[:4])
        self.feed_norm = fresh_norm(width)
        self.expand = Linear(width, 4 * width, key=keys[4])
        self.contract = Linear(4 * width, width, key=keys[5])
        self.heads, self.activation, self.norm_first = heads, activation, norm_first

    def __call__(self, tokens: Float[Array, "tokens width"], keep: int | None = None) -> Float[Array, "kept width"]:
        """The new tokens, or only the first `keep` of them: the others then serve as keys and values."""
        if not self.norm_first:
            kept = vmap(self.attention_norm)(tokens[:keep] + self._attend(tokens[:keep], tokens))
            return vmap(self.feed_norm)(kept + vmap(self._feed)(kept))
        seen = vmap(self.attention_norm)(tokens)
        kept = tokens[:keep] + self._attend(seen[:keep], seen)
        return kept + vmap(self._feed)(vmap(self.feed_norm)(kept))

    def _attend(
        self, asking: Float[Array, "kept width"], seen: Float[Array, "tokens width"]
    ) -> Float[Array, "kept width"]:
        split = lambda layer, x: vmap(layer)(x).reshape(x.shape[0], self.heads, -1)
        query, key, value = split(self.query, asking), split(self.key, seen), split(self.value, seen)
        return vmap(self.output)(attend(query, key, value).reshape(asking.shape))

    def _feed(self, token: Float[Array, " width"]) -> Float[Array, " width"]:
        activate = {"relu": jax.nn.relu, "gelu": jax.nn.gelu}[self.activation]
        return self.contract(activate(self.expand(token)))


def attend(
    query: Float[Array, "kept heads depth"],
    key: Float[Array, "tokens heads depth"],
    value: Float[Array, "tokens heads depth"],
) -> Float[Array, "kept heads depth"]:
    """softmax(Q K' / sqrt(d)) V, head by head; the softmax is in float32 or finer."""
    at_least_float32 = jnp.promote_types(query.dtype, jnp.float32)
    scores = jnp.einsum("qhd,khd->hqk", query, key, preferred_element_type=at_least_float32)
    weights = jax.nn.softmax(scores / query.shape[-1] ** 0.5, axis=-1)
    return jnp.einsum("hqk,khd->qhd", weights.astype(value.dtype), value)


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
