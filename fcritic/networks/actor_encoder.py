"""E_act: from a policy to its code. The only file that looks inside a policy.

The policy is evaluated on trainable probe states zeta_1, ..., zeta_P. The activations of its chosen layers
form a table (probes, neurons); either its columns or its rows become the tokens of a transformer.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fcritic.errors import UsageError, require_at_least
from fcritic.kernels import fused_blocks, policy_kernels
from fcritic.networks.initial import fresh_norm, normal, uniform
from fcritic.networks.mlp import Linear
from fcritic.networks.policies import Policy
from fcritic.networks.precision import lower
from fcritic.networks.transformer import Activation, Block
from fcritic.randomness import apart

TokenKind = Literal["neurons", "probes"]
ProbeInit = Literal["normal", "uniform"]
PlaceKind = Literal["learned", "sinusoidal"]
Pooling = Literal["summary", "mean", "first"]


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The actor encoder's sizes, and one option for each point that the paper leaves open."""

    probes: int = 512
    """Trainable evaluation states zeta (Table `tab:hyperparams`)."""
    depth: int = 4
    """Transformer layers (Table `tab:hyperparams`); 0 needs `pooling` by the mean."""
    heads: int = 1
    """Attention heads (Table `tab:hyperparams`)."""
    code: int = 128
    """Actor encoding dimension (Table `tab:hyperparams`)."""
    width: int = 128
    """Width of the transformer (open; the table fixes only the code, so both are equal)."""
    layers: tuple[int, ...] = (-2, -1)
    """Policy layers whose neurons are read: "last two" (Table), counted with the action as the last."""
    tokens: TokenKind = "neurons"
    """`neurons`: a token is one neuron seen through all probes; `probes`: one probe seen through all neurons
    (open: the text speaks of both)."""
    places: PlaceKind = "learned"
    """How a neuron's token tells where the neuron is (open): `learned`, one embedding per hidden layer and one per
    action, or `sinusoidal` over the index of the neuron (public fork), which makes the order of neurons matter."""
    pooling: Pooling = "summary"
    """What becomes the code (open): a learned `summary` token, the `mean` of all tokens, or the `first` neuron's
    token (public fork)."""
    activation: Activation = "relu"
    """Activation inside the transformer (Table: ReLU; public fork: GELU)."""
    norm_first: bool = True
    """Layer norm before each part of a block, or after it (open; public fork: after)."""
    shared: bool = False
    """One encoder for all critics instead of one each (paper: one each)."""
    probe_init: ProbeInit = "normal"
    """Distribution of the probes at the start, in the space of normalised observations (open)."""
    probe_scale: float = 2.0
    """Deviation (`normal`) or half range (`uniform`) of the probes at the start (open; public fork: 2)."""
    train_probes: bool = True
    """Whether the probes learn (text: end to end, as part of Xi)."""

    def __post_init__(self) -> None:
        if min(self.probes, self.heads, self.code, self.width, len(self.layers)) < 1 or self.depth < 0:
            raise UsageError("--encoder.probes, heads, code, width and layers must be at least 1, depth 0")
        require_at_least(0, **{"encoder.probe_scale": self.probe_scale})
        if self.depth == 0 and self.pooling != "mean":
            raise UsageError(
                "without layers no token sees another; add --encoder.pooling mean to --encoder.depth 0"
            )
        if self.width % self.heads:
            raise UsageError(f"--encoder.width {self.width} must be a multiple of --encoder.heads {self.heads}")

    def build(self, obs_dim: int, layer_widths: Sequence[int], key: PRNGKeyArray) -> "ActorEncoder":
        """A fresh encoder for policies with these layer widths, the action last."""
        return ActorEncoder(self, obs_dim, layer_widths, key=key)

    def describe(self, layer_widths: Sequence[int]) -> dict[str, Any]:
        """The encoder's rows of Table `tab:hyperparams`, and what was added to it."""
        return {
            "actor_code": self.code,
            "encoder_layers": self.depth,
            "encoder_heads": self.heads,
            "encoder_width": self.width,
            "encoder_shared": self.shared,
            "probes": self.probes,
            "tokens": self.token_count(layer_widths),
            "token_kind": self.tokens,
            "extracted_layers": self.layers,
            "pooling": self.pooling,
        }

    def token_count(self, layer_widths: Sequence[int]) -> int:
        """Length of the sequence, without the summary token."""
        return self.probes if self.tokens == "probes" else sum(layer_widths[layer] for layer in self.layers)


class ActorEncoder(eqx.Module):
    """The actor encoder E_act(pi; xi_act) of eq. `eq:func_q_nn`.

    A learned summary token is put first; what the transformer makes of it, projected, is the code. Tokens of
    hidden neurons share one embedding per layer, so that the code does not depend on the order of the hidden
    neurons; each action has an embedding of its own, since the order of actions matters.
    """

    probes: Float[Array, "probes obs"]
    project: Linear
    places: tuple[Float[Array, "_ width"], ...]
    summary: Float[Array, " width"] | None
    blocks: tuple[Block, ...]
    norm: eqx.nn.LayerNorm
    read: Linear
    config: EncoderConfig = eqx.field(static=True)

    def __init__(self, config: EncoderConfig, obs_dim: int, layer_widths: Sequence[int], *, key: PRNGKeyArray):
        probe_key, project_key, place_key, summary_key, block_key, read_key = apart(key, 6)
        self.config = config
        draw = normal if config.probe_init == "normal" else uniform
        self.probes = draw(probe_key, (config.probes, obs_dim), config.probe_scale)
        read_widths = [layer_widths[layer] for layer in config.layers]
        # A probe token also sees the probe itself, otherwise it could not tell at which state it looks.
        token_width = config.probes if config.tokens == "neurons" else sum(read_widths) + obs_dim
        self.project = Linear(token_width, config.width, key=project_key)
        self.places = self._init_places(layer_widths, place_key)
        self.summary = normal(summary_key, (config.width,), 0.1) if config.pooling == "summary" else None
        block_keys = apart(block_key, config.depth)
        style = {"activation": config.activation, "norm_first": config.norm_first}
        self.blocks = tuple(Block(config.width, config.heads, key=k, **style) for k in block_keys)
        self.norm = fresh_norm(config.width)
        self.read = Linear(config.width, config.code, key=read_key)

    def _init_places(self, layer_widths: Sequence[int], key: PRNGKeyArray) -> tuple[Float[Array, "_ width"], ...]:
        """One row per action and one for all neurons of a hidden layer; none where places are not learned."""
        config = self.config
        if config.tokens == "probes" or config.places == "sinusoidal":
            return ()
        action = len(layer_widths) - 1
        rows = [layer_widths[i] if i % len(layer_widths) == action else 1 for i in config.layers]
        keys = apart(key, len(rows))
        return tuple(normal(k, (n, config.width), 0.1) for n, k in zip(rows, keys, strict=True))

    def __call__(self, policy: Policy) -> Float[Array, " code"]:
        """The code of one policy."""
        sequence, pooling = self.sequence(policy), self.config.pooling
        if pooling == "summary":
            sequence = jnp.concatenate([self.summary[None], sequence])
        for block in self.blocks[:-1]:
            sequence = block(sequence)
        if self.blocks:  # where one token is read, the last block need not compute the others
            sequence = self.blocks[-1](sequence, keep=None if pooling == "mean" else 1)
        return self.read(self.norm(sequence.mean(axis=0)))

    def codes(self, policies: Policy) -> Float[Array, "actors code"]:
        """The codes of a stack of policies: `__call__` for each, in kernels for all of them where they fit."""
        if not fused_blocks.fit(self.blocks):
            return vmap(self)(policies)
        sequences, pooling = vmap(self.sequence)(policies), self.config.pooling
        tile = fused_blocks.rows_of_a_tile(self.config.shared, sequences.shape[0])
        if pooling == "mean":
            pooled = fused_blocks.all_tokens(self.blocks, sequences, tile).mean(axis=1)
            return vmap(lambda token: self.read(self.norm(token)))(pooled)
        if pooling == "summary":
            summary = jnp.broadcast_to(self.summary, (sequences.shape[0], 1, self.summary.shape[0]))
            sequences = jnp.concatenate([summary, sequences], axis=1)
        return fused_blocks.first_codes(self.blocks, self.norm, self.read, sequences, tile)

    def sequence(self, policy: Policy) -> Float[Array, "tokens width"]:
        """The tokens of a policy, without the summary."""
        probes = self.probes if self.config.train_probes else jax.lax.stop_gradient(self.probes)
        activations = self._activations(lower(policy, probes.dtype), probes)
        count, layers = len(activations), self.config.layers
        if not all(-count <= layer < count for layer in layers):
            raise UsageError(
                f"the encoder reads layers {layers} of a policy that has {count}; see --encoder.layers"
            )
        read = [activations[layer] for layer in layers]
        if self.config.tokens == "probes":
            return vmap(self.project)(*read, probes)
        projected = [vmap(self.project)(values.T) for values in read]
        if self.config.places == "sinusoidal":
            tokens = jnp.concatenate(projected)
            return tokens + sinusoids(*tokens.shape)
        placed = zip(projected, self.places, strict=True)
        parts = [values + jnp.broadcast_to(place, values.shape) for values, place in placed]
        return jnp.concatenate([_made_once(part) for part in parts] if fused_blocks.fit(self.blocks) else parts)

    def _activations(
        self, policy: Policy, probes: Float[Array, "probes obs"]
    ) -> tuple[Float[Array, "probes _"] | None, ...]:
        """The layers of a policy at all probes, by kernels where they fit; these leave out the first of three."""
        unread = 0 not in {layer % 3 for layer in self.config.layers}
        if unread and fused_blocks.fit(self.blocks) and policy_kernels.fit(policy, probes):
            return (None, *policy_kernels.last_layers(policy, probes, fused_blocks.INTERPRET))
        return vmap(policy.activations)(probes)


@jax.custom_vjp
def _made_once(tokens: Float[Array, "tokens width"]) -> Float[Array, "tokens width"]:
    """The same, whose gradient is made before it is used: else the compiler cuts it out of that of the whole
    sequence in one kernel with a sum over all tokens, and the policies' gradient waits for that sum."""
    return tokens


_made_once.defvjp(lambda tokens: (tokens, None), lambda _, grads: (jax.lax.optimization_barrier(grads),))


def sinusoids(count: int, width: int) -> Float[Array, "count width"]:
    """sin and cos of the position at geometrically spaced rates, in alternating columns."""
    rates = 10_000.0 ** (-2 * (jnp.arange(width) // 2) / width)
    angles = jnp.arange(count)[:, None] * rates[None]
    return jnp.where(jnp.arange(width)[None] % 2 == 0, jnp.sin(angles), jnp.cos(angles))
