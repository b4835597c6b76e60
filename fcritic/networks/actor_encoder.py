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

from fcritic.errors import UsageError
from fcritic.networks.initial import normal, uniform
from fcritic.networks.mlp import Linear
from fcritic.networks.policies import Policy
from fcritic.networks.transformer import Block

TokenKind = Literal["neurons", "probes"]
ProbeInit = Literal["normal", "uniform"]


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The actor encoder's sizes, and one option for each point that the paper leaves open."""

    probes: int = 512
    """Trainable evaluation states zeta (Table `tab:hyperparams`)."""
    depth: int = 4
    """Transformer layers (Table `tab:hyperparams`); with 0 the tokens and the summary are averaged."""
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
    summary: Float[Array, " width"]
    blocks: tuple[Block, ...]
    norm: eqx.nn.LayerNorm
    read: Linear
    config: EncoderConfig = eqx.field(static=True)

    def __init__(self, config: EncoderConfig, obs_dim: int, layer_widths: Sequence[int], *, key: PRNGKeyArray):
        probe_key, project_key, place_key, summary_key, block_key, read_key = jax.random.split(key, 6)
        self.config = config
        draw = normal if config.probe_init == "normal" else uniform
        self.probes = draw(probe_key, (config.probes, obs_dim), config.probe_scale)
        read_widths = [layer_widths[layer] for layer in config.layers]
        # A probe token also sees the probe itself, otherwise it could not tell at which state it looks.
        token_width = config.probes if config.tokens == "neurons" else sum(read_widths) + obs_dim
        self.project = Linear(token_width, config.width, key=project_key)
        self.places = ()
        if config.tokens == "neurons":
            is_action = [layer % len(layer_widths) == len(layer_widths) - 1 for layer in config.layers]
            rows = [width if action else 1 for width, action in zip(read_widths, is_action, strict=True)]
            keys = jax.random.split(place_key, len(rows))
            self.places = tuple(normal(k, (n, config.width), 0.1) for n, k in zip(rows, keys, strict=True))
        self.summary = normal(summary_key, (config.width,), 0.1)
        block_keys = jax.random.split(block_key, config.depth)
        self.blocks = tuple(Block(config.width, config.heads, key=k) for k in block_keys)
        self.norm = eqx.nn.LayerNorm(config.width)
        self.read = Linear(config.width, config.code, key=read_key)

    def __call__(self, policy: Policy) -> Float[Array, " code"]:
        """The code of one policy."""
        sequence = jnp.concatenate([self.summary[None], self.sequence(policy)])
        for block in self.blocks[:-1]:
            sequence = block(sequence)
        if self.blocks:  # only the summary is read, so the last block need not compute the rest
            sequence = self.blocks[-1](sequence, keep=1)
        else:
            sequence = sequence.mean(axis=0, keepdims=True)
        return self.read(self.norm(sequence[0]))

    def sequence(self, policy: Policy) -> Float[Array, "tokens width"]:
        """The tokens of a policy, without the summary."""
        probes = self.probes if self.config.train_probes else jax.lax.stop_gradient(self.probes)
        activations = vmap(policy.activations)(probes)
        read = [activations[layer] for layer in self.config.layers]
        if self.config.tokens == "probes":
            return vmap(self.project)(*read, probes)
        return jnp.concatenate(
            [vmap(self.project)(values.T) + place for values, place in zip(read, self.places, strict=True)]
        )
