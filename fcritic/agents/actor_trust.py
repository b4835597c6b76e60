"""How far the data reach the actors that learn: both trust metrics, with the features of their own critics."""

import dataclasses
from typing import Any

import jax
from jax import vmap
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic import ensembles
from fcritic.agents import trust_metrics
from fcritic.errors import require_at_least
from fcritic.networks.critics import BlindEncoder, FunctionalCritic, ValueHead
from fcritic.networks.policies import Policy
from fcritic.types import Metrics, Transition

RANGE = 1e-4
"""Directions with less than this share of the largest second moment count as outside of the data."""


@dataclasses.dataclass(frozen=True)
class Trust:
    """What is known of the agents' trust in their critics."""

    measure: bool = False
    """Measure coverage C, eq. (5), and Delta, eq. (9), of each actor when agents are evaluated (paper: finite MDPs
    only)."""
    rows: int = 1024
    """Transitions of the replay, and as many states of its newest twentieth, that C is estimated from."""
    states: int = 16
    """States at which Delta takes slopes in the actor's parameters."""

    def __post_init__(self) -> None:
        require_at_least(1, **{f"trust.{name}": getattr(self, name) for name in ("rows", "states")})


def features(
    head: ValueHead, code: Float[Array, " code"], obs: Float[Array, " obs"], act: Float[Array, " act"]
) -> Float[Array, " d"]:
    """Returns phi^pi(s, a): the last hidden layer, in which the value is linear, and the constant 1."""
    seen = head.state_action(obs, act)
    hidden = head.joint.activations(code, seen)[:-1]
    return jnp.concatenate([hidden[-1] if hidden else jnp.concatenate([code, seen]), jnp.ones(1)])


def trust_of_actors(
    trust: Trust, policies: Policy, critics: FunctionalCritic, logged: Transition, recent: Float[Array, "rows obs"]
) -> Metrics:
    """Returns C and Delta of every actor, by the critic with its index, and their means.

    A replay does not say whose its states are: the actor's own measure are the newest states, which it has met or
    might have, with the actions that it takes there. C is over the number of directions, 1 where the data are
    these; `outside` is the share of the actor's features that no data cover, which Definition 1 calls infinite. The
    reference of Delta is the actor itself.
    """
    count = ensembles.size(critics.head)

    def one(actor: tuple[Any, Array]) -> Metrics:
        policy, index = actor
        head, encoder = ensembles.member(critics.head, index), critics.encoder
        if not isinstance(encoder, BlindEncoder) and not critics.shared:
            encoder = ensembles.member(encoder, index)
        code = encoder(policy)
        seen = vmap(lambda obs, act: features(head, code, obs, act))
        here, own = seen(logged.obs, logged.act), seen(recent, vmap(policy)(recent))
        norm, reference = (trust_metrics.norm(trust_metrics.root(each), RANGE, outside=1.0) for each in (here, own))
        theta, network = ravel_pytree(policy)
        drift = trust_metrics.drift_of_actions(
            lambda at: vmap(network(at))(recent[: trust.states]),
            lambda at: encoder(network(at)),
            lambda obs, code, act: features(head, code, obs, act),
            recent[: trust.states],
            theta,
            reference,
        )
        return {
            "trust": trust_metrics.coverage(norm, own) / norm.rank,
            "outside": norm.share_outside(own),
            "drift": drift.delta,
            "drift_printed": drift.delta_printed,
        }

    actors = ensembles.size(policies)
    found = jax.lax.map(one, (policies, jnp.arange(actors) % count))
    return {name: each.mean() for name, each in found.items()} | {
        f"{name}_by_actor": each for name, each in found.items()
    }
