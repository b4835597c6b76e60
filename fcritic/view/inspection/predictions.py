"""What the critics of an agent say: values of policies, codes of actors, and what moves them."""

from typing import Any

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from fcritic import ensembles
from fcritic.agents.losses import encode_all
from fcritic.api import valuation
from fcritic.api.load import TrainedAgent
from fcritic.api.valuation import Sight
from fcritic.networks.critics import FunctionalCritic

CHUNK = 8
"""Policies that are valued in one piece: the paper's encoders need 10 MB for each."""


def values(
    agent: TrainedAgent, policies: Any, obs: Float[np.ndarray, "states obs"]
) -> Float[np.ndarray, "critics policies"]:
    """The mean over states of Q_i(pi, s, pi(s)), for a stack of policies."""
    count, parts = ensembles.size(policies), []
    for start in range(0, count, CHUNK):
        index = np.minimum(np.arange(start, start + CHUNK), count - 1)
        parts.append(np.asarray(_values(agent.critics, _sight(agent), ensembles.member(policies, index), obs)))
    return np.concatenate(parts, axis=1)[:, :count]


@eqx.filter_jit
def _values(
    critics: FunctionalCritic, sight: Sight, policies: Any, obs: Float[Array, "states obs"]
) -> Float[Array, "critics policies"]:
    one = lambda policy: valuation.values(critics, sight, policy, obs).mean(axis=1)
    return vmap(one, out_axes=1)(policies)


def codes(agent: TrainedAgent, policies: Any, normalizer: Any) -> Float[np.ndarray, "critics actors code"]:
    """The code of every actor by every critic's encoder, of actors that see through this normaliser."""
    own = Sight(agent.critic_normalizer, normalizer) if agent.config.normalize else Sight(None)
    return np.asarray(_codes(agent.critics, own, policies))


@eqx.filter_jit
def _codes(critics: FunctionalCritic, sight: Sight, policies: Any) -> Float[Array, "critics actors code"]:
    return encode_all(critics, vmap(sight.view)(policies))


def sensitivity(
    agent: TrainedAgent, policies: Any, obs: Float[np.ndarray, "states obs"]
) -> Float[np.ndarray, "critics probes"]:
    """How much values move with each probe state: the length of the gradient in it of the mean over states of
    Q_i(pi, s, pi(s)), averaged over the actors."""
    return np.asarray(_sensitivity(agent.critics, _sight(agent), policies, obs))


@eqx.filter_jit
def _sensitivity(
    critics: FunctionalCritic, sight: Sight, policies: Any, obs: Float[Array, "states obs"]
) -> Float[Array, "critics probes"]:
    shared = critics.encoder.config.shared
    count = ensembles.size(critics.head)

    def value(probes: Float[Array, "probes obs"], encoder: Any, head: Any, policy: Any) -> Float[Array, ""]:
        encoder = eqx.tree_at(lambda each: each.probes, encoder, probes)
        critic, seen = FunctionalCritic(encoder, head), sight(obs)
        code = critic.encode(sight.view(policy))
        return vmap(lambda o: critic.value(code, o, sight.view(policy)(o)))(seen).mean()

    def of_critic(index: Array) -> Float[Array, " probes"]:
        head = ensembles.member(critics.head, index)
        encoder = critics.encoder if shared else ensembles.member(critics.encoder, index)
        slope = lambda policy: jax.grad(value)(encoder.probes, encoder, head, policy)
        return jnp.linalg.norm(jax.lax.map(slope, policies), axis=-1).mean(axis=0)

    return jax.lax.map(of_critic, jnp.arange(count))


def probes(agent: TrainedAgent) -> Float[np.ndarray, "critics probes obs"]:
    """The probe states of every critic, in the units of the task."""
    found = agent.critics.encoder.probes
    count = ensembles.size(agent.critics.head)
    stacked = jnp.broadcast_to(found, (count, *found.shape[-2:]))
    return np.asarray(agent.critic_normalizer.undo(stacked) if agent.config.normalize else stacked)


def _sight(agent: TrainedAgent) -> Sight:
    return Sight(agent.critic_normalizer if agent.config.normalize else None)
