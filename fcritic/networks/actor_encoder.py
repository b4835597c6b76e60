"""E_act: from a policy to its code. The only file that looks inside a policy.

The policy is evaluated on trainable probe states zeta_1, ..., zeta_P. The activations of its chosen layers
form a table (probes, neurons); either its columns or its rows become the tokens of a transformer (`Block`).
`ProbedBehaviour` reads the actions alone, through one hidden layer.
"""

from collections.abc import Sequence
import dataclasses
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fcritic.errors import UsageError, require_at_least
from fcritic.networks.initial import fresh_norm, normal
from fcritic.networks.mlp import MLP, Linear
from fcritic.networks.policies import Policy, behaviour
from fcritic.networks.precision import lower
from fcritic.randomness import apart

EncoderKind = Literal["transformer", "behaviour"]
TokenKind = Literal["neurons", "probes"]
ProbeStates = Literal["drawn", "replay"]


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The sizes of the actor encoder, and its readings of the paper."""

    kind: EncoderKind = "transformer"
    """What the code of a policy is computed from: its neurons at the probes, by a `transformer` (paper), or its
    `behaviour`, its actions there, by one hidden layer of `width` neurons."""
    probes: int = 512
    """Trainable evaluation states zeta (Table 1)."""
    depth: int = 4
    """Transformer layers (Table 1)."""
    heads: int = 1
    """Attention heads (Table 1)."""
    code: int = 128
    """Actor encoding dimension (Table 1)."""
    width: int = 128
    """Width of the transformer (open in the paper; equal to the code by default)."""
    layers: tuple[int, ...] = (-2, -1)
    """Policy layers whose activations are read; -1 is the action (Table 1: "last two")."""
    tokens: TokenKind = "neurons"
    """One token per neuron (its activations on all probes), or one per probe (the activations of all neurons); the
    paper's text mentions both."""
    shared: bool = False
    """One encoder for all critics (paper: one each)."""
    probe_scale: float = 2.0
    """Standard deviation of the initial probes, in normalised observations (open in the paper)."""
    train_probes: bool = True
    """Train the probes with the critics (paper: yes, as part of Xi)."""
    probe_states: ProbeStates = "drawn"
    """Initial probes: `drawn` at random, or states of the `replay`, taken at the first critic update."""

    def __post_init__(self) -> None:
        if min(self.probes, self.depth, self.heads, self.code, self.width, len(self.layers)) < 1:
            raise UsageError("--encoder.probes, depth, heads, code, width and layers must be at least 1")
        require_at_least(0, **{"encoder.probe_scale": self.probe_scale})
        if self.width % self.heads:
            raise UsageError(f"--encoder.width {self.width} must be a multiple of --encoder.heads {self.heads}")
        if self.probe_states == "replay" and self.kind != "behaviour":
            raise UsageError("--encoder.probe-states replay needs --encoder.kind behaviour")

    def build(
        self, obs_dim: int, layer_widths: Sequence[int], key: PRNGKeyArray
    ) -> "ActorEncoder | ProbedBehaviour":
        """Returns a fresh encoder for policies with these layer widths, the action last."""
        kind = ProbedBehaviour if self.kind == "behaviour" else ActorEncoder
        return kind(self, obs_dim, layer_widths, key=key)

    def token_count(self, layer_widths: Sequence[int]) -> int:
        """Returns the length of the sequence, without the summary token; behaviour is read without one."""
        if self.kind == "behaviour":
            return 0
        return self.probes if self.tokens == "probes" else sum(layer_widths[layer] for layer in self.layers)


class Block(eqx.Module):
    """Attention, then a feed-forward layer of four times the width; each has a norm and is added to its input."""

    attention_norm: eqx.nn.LayerNorm
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    feed_norm: eqx.nn.LayerNorm
    expand: Linear
    contract: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, width: int, heads: int, *, key: PRNGKeyArray):
        if width % heads:
            raise ValueError(f"a width of {width} cannot be split over {heads} heads")
        keys = apart(key, 6)
        self.attention_norm = fresh_norm(width)
        self.query, self.key, self.value, self.output = (Linear(width, width, key=k) for k in keys[:4])
        self.feed_norm = fresh_norm(width)
        self.expand = Linear(width, 4 * width, key=keys[4])
        self.contract = Linear(4 * width, width, key=keys[5])
        self.heads = heads

    def __call__(self, tokens: Float[Array, "tokens width"], keep: int | None = None) -> Float[Array, "kept width"]:
        """Returns the new tokens, or the first `keep` of them: the others then serve as keys and values only."""
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
        return self.contract(jax.nn.relu(self.expand(token)))


def attend(
    query: Float[Array, "kept heads depth"],
    key: Float[Array, "tokens heads depth"],
    value: Float[Array, "tokens heads depth"],
) -> Float[Array, "kept heads depth"]:
    """Returns softmax(Q K' / sqrt(d)) V, head by head; the softmax is in float32 or finer."""
    at_least_float32 = jnp.promote_types(query.dtype, jnp.float32)
    scores = jnp.einsum("qhd,khd->hqk", query, key, preferred_element_type=at_least_float32)
    weights = jax.nn.softmax(scores / query.shape[-1] ** 0.5, axis=-1)
    return jnp.einsum("hqk,khd->qhd", weights.astype(value.dtype), value)


class ActorEncoder(eqx.Module):
    """The actor encoder E_act(pi; xi_act) of equation (11).

    A learned summary token is put first; its output, projected, is the code. Tokens of hidden neurons share one
    embedding per layer, so that the code does not depend on the order of the hidden neurons; each action has an
    embedding of its own, since the order of actions matters.
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
        probe_key, project_key, place_key, summary_key, block_key, read_key = apart(key, 6)
        self.config = config
        self.probes = normal(probe_key, (config.probes, obs_dim), config.probe_scale)
        read_widths = [layer_widths[layer] for layer in config.layers]
        # A probe token also sees the probe itself: activations alone do not say at which state they were read.
        token_width = config.probes if config.tokens == "neurons" else sum(read_widths) + obs_dim
        self.project = Linear(token_width, config.width, key=project_key)
        self.places = _init_places(config, layer_widths, place_key)
        self.summary = normal(summary_key, (config.width,), 0.1)
        self.blocks = tuple(Block(config.width, config.heads, key=k) for k in apart(block_key, config.depth))
        self.norm = fresh_norm(config.width)
        self.read = Linear(config.width, config.code, key=read_key)

    def __call__(self, policy: Policy) -> Float[Array, " code"]:
        """Returns the code of one policy."""
        tokens = jnp.concatenate([self.summary[None], self.sequence(policy)])
        for block in self.blocks[:-1]:
            tokens = block(tokens)
        # Only the first token is read, so the last block need not compute the others.
        return self.read(self.norm(self.blocks[-1](tokens, keep=1)[0]))

    def sequence(self, policy: Policy) -> Float[Array, "tokens width"]:
        """Returns the tokens of a policy, without the summary."""
        probes = looked_from(self)
        return jnp.concatenate(self.tokens(vmap(lower(policy, probes.dtype).activations)(probes)))

    def tokens(self, activations: tuple[Float[Array, "probes _"] | None, ...]) -> list[Float[Array, "_ width"]]:
        """Returns the tokens of each layer that is read, from a policy's layers at the probe states.

        Layers that are not read may be None.
        """
        count, layers = len(activations), self.config.layers
        if not all(-count <= layer < count for layer in layers):
            raise UsageError(
                f"the encoder reads layers {layers} of a policy that has {count}; see --encoder.layers"
            )
        read: list[Any] = [activations[layer] for layer in layers]
        if self.config.tokens == "probes":
            return [vmap(self.project)(*read, looked_from(self))]
        projected = [vmap(self.project)(values.T) for values in read]
        placed = zip(projected, self.places, strict=True)
        return [values + jnp.broadcast_to(place, values.shape) for values, place in placed]


class BehaviourEncoder(eqx.Module):
    """E_act(pi): from a policy's actions at P probe states to its code, with layer norm after both layers.

    A stochastic policy is described by the mean and the deviation of its actions; a deterministic one has deviation
    zero.
    """

    network: MLP

    def __init__(self, probes: int, act_dim: int, hidden: Sequence[int], code: int, *, key: PRNGKeyArray):
        self.network = MLP(
            2 * probes * act_dim, hidden, code, key=key, layer_norm=True, norm_output=True, last_scale=None
        )

    def __call__(
        self, behaviour: Float[Array, "*policies probes act_and_deviation"]
    ) -> Float[Array, "*policies code"]:
        """Returns the codes of policies from their actions and deviations at the probes."""
        return self.network(behaviour.reshape(*behaviour.shape[:-2], -1))


class ProbedBehaviour(eqx.Module):
    """E_act(pi) from what a policy does at the probe states, whatever it is made of: any function has a code."""

    probes: Float[Array, "probes obs"]
    reader: BehaviourEncoder
    config: EncoderConfig = eqx.field(static=True)

    def __init__(self, config: EncoderConfig, obs_dim: int, layer_widths: Sequence[int], *, key: PRNGKeyArray):
        probe_key, reader_key = apart(key)
        self.config = config
        self.probes = normal(probe_key, (config.probes, obs_dim), config.probe_scale)
        sizes = (config.probes, layer_widths[-1], (config.width,), config.code)
        self.reader = BehaviourEncoder(*sizes, key=reader_key)

    def __call__(self, policy: Policy) -> Float[Array, " code"]:
        """Returns the code of one policy."""
        probes = looked_from(self)
        return self.reader(vmap(partial(behaviour, lower(policy, probes.dtype)))(probes))


def looked_from(encoder: ActorEncoder | ProbedBehaviour) -> Float[Array, "probes obs"]:
    """Returns the probe states; without gradient where they do not learn."""
    return encoder.probes if encoder.config.train_probes else jax.lax.stop_gradient(encoder.probes)


def _init_places(
    config: EncoderConfig, layer_widths: Sequence[int], key: PRNGKeyArray
) -> tuple[Float[Array, "_ width"], ...]:
    """One row per action and one for all neurons of a hidden layer; none where tokens are probes."""
    if config.tokens == "probes":
        return ()
    action = len(layer_widths) - 1
    rows = [layer_widths[i] if i % len(layer_widths) == action else 1 for i in config.layers]
    keys = apart(key, len(rows))
    return tuple(normal(k, (n, config.width), 0.1) for n, k in zip(rows, keys, strict=True))
