"""The actors and critics of a functional actor-critic before any training (lines 1 and 2 of `alg-nn`)."""

from typing import TYPE_CHECKING

from jaxtyping import PRNGKeyArray

from fcritic import ensembles
from fcritic.networks.actor_encoder import ActorEncoder
from fcritic.networks.critics import BlindEncoder, FunctionalCritic, ValueHead
from fcritic.networks.policies import DeterministicPolicy
from fcritic.networks.priors import Prior
from fcritic.types import EnvSpec

if TYPE_CHECKING:
    from fcritic.agents.fac import FAC


def begin_actors(agent: "FAC", spec: EnvSpec, key: PRNGKeyArray) -> DeterministicPolicy:
    """All n of them."""
    make = lambda k: DeterministicPolicy(
        spec.obs_dim,
        agent.actor_hidden,
        spec.act_dim,
        key=k,
        last_scale=agent.actor_last_scale,
        reach=agent.actor_reach,
    )
    return ensembles.stack(make, agent.members, key)


def begin_critics(
    agent: "FAC", spec: EnvSpec, encoder_key: PRNGKeyArray, head_key: PRNGKeyArray
) -> FunctionalCritic:
    """A head for each critic, and one encoder for each or one for all."""
    heads = ensembles.stack(lambda key: _head(agent, spec, key), agent.critic_count, head_key)
    return FunctionalCritic(_encoder(agent, spec, encoder_key), heads)


def begin_priors(agent: "FAC", spec: EnvSpec, key: PRNGKeyArray) -> Prior:
    """A prior for each critic, of the size of its head."""
    make = lambda k: Prior(
        spec.obs_dim,
        spec.act_dim,
        agent.state_action_code,
        state_action_hidden=agent.state_action_hidden,
        joint_hidden=agent.joint_hidden,
        layer_norm=agent.layer_norm,
        scale=agent.prior_scale,
        key=k,
    )
    return ensembles.stack(make, agent.critic_count, key)


def _encoder(agent: "FAC", spec: EnvSpec, key: PRNGKeyArray) -> ActorEncoder | BlindEncoder:
    if not agent.functional:
        return BlindEncoder()
    make = lambda k: agent.encoder.build(spec.obs_dim, (*agent.actor_hidden, spec.act_dim), k)
    return make(key) if agent.encoder.shared else ensembles.stack(make, agent.critic_count, key)


def _head(agent: "FAC", spec: EnvSpec, key: PRNGKeyArray) -> ValueHead:
    return ValueHead(
        spec.obs_dim,
        spec.act_dim,
        agent.encoder.code if agent.functional else 0,
        agent.state_action_code,
        state_action_hidden=agent.state_action_hidden,
        joint_hidden=agent.joint_hidden,
        layer_norm=agent.layer_norm,
        key=key,
    )
