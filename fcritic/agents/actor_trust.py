"""How far the data reach the actors that learn: both trust metrics, with the features of their own critics."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
from jax import vmap
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from fcritic import ensembles
from fcritic.agents import trust_metrics
from fcritic.agents.base import Learner, net
from fcritic.errors import UsageError, require_at_least
from fcritic.kernels.packing import pack_like
from fcritic.networks.critics import BlindEncoder, FunctionalCritic, ValueHead
from fcritic.networks.policies import Policy
from fcritic.types import Metrics, Transition

RANGE = 1e-4
"""Directions with less than this share of the largest second moment count as outside of the data."""

TINY = 1e-12
"""What keeps the growth of a Delta of zero from being no number."""


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

    rest_above: float | None = None
    """Actors rest while their C, over its least, is above this bound: only critics learn (paper: Algorithm 3 renews
    the data there; Algorithm 5 has none)."""
    region: float | None = None
    """An actor's step is multiplied by this over the growth of its Delta since the last measurement, where that is
    below 1 (paper: future work)."""
    every: int = 50
    """Actor updates between two measurements for `rest_above` and `region`."""

    def __post_init__(self) -> None:
        require_at_least(1, **{f"trust.{name}": getattr(self, name) for name in ("rows", "states", "every")})
        for name in ("rest_above", "region"):
            bound = getattr(self, name)
            if bound is not None and not 0 < bound < math.inf:
                raise UsageError(f"--trust.{name.replace('_', '-')} must be above 0, not {bound:g}")

    def begin(self, actors: Any) -> "Steering | None":
        """Returns full steps, if the actors' steps depend on the metrics."""
        if self.rest_above is None and self.region is None:
            return None
        steps = np.ones(ensembles.size(actors), np.float32)
        return Steering(actors, jax.device_put(steps), jax.device_put(np.int32(0)))

    def steer(
        self, steering: "Steering", policies: Policy, critics: FunctionalCritic, batch: Transition
    ) -> "Steering":
        """Returns the shares of their steps that actors may take, measured anew where it is time.

        What they would do at the batch's next states stands for their own measure.
        """

        def measured() -> Steering:
            found = measure(self, policies, critics, batch, batch.next_obs, net(steering.reference))
            steps = jnp.ones_like(steering.steps)
            if self.region is not None:
                steps = jnp.minimum(steps, self.region / found["growth"])
            if self.rest_above is not None:
                steps = jnp.where(found["trust"] > self.rest_above, 0.0, steps)
            return Steering(pack_like(steering.reference, policies), steps, steering.updates + 1)

        waiting = lambda: Steering(steering.reference, steering.steps, steering.updates + 1)
        return jax.lax.cond(steering.updates % self.every == 0, measured, waiting)


class Steering(eqx.Module):
    """What the metrics allow the actors."""

    reference: Any
    """The actors at the last measurement."""
    steps: Float[Array, " actors"]
    """The share of a step that each may take."""
    updates: Int[Array, ""]
    """Updates of the actors so far."""


def shortened(before: Learner, after: Learner, steps: Float[Array, " actors"]) -> Learner:
    """Returns actors that have taken a share of their steps; their optimiser has seen the whole gradient."""
    share = lambda old, new: old + steps.reshape(-1, *[1] * (old.ndim - 1)) * (new - old)
    moved = jax.tree.map(share, before.net, after.net)
    return Learner(pack_like(after.params, moved), after.opt_state)


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
    found = measure(trust, policies, critics, logged, recent)
    each = {f"{name}_by_actor": values for name, values in found.items()}
    return {name: values.mean() for name, values in found.items()} | each


def measure(
    trust: Trust,
    policies: Policy,
    critics: FunctionalCritic,
    logged: Transition,
    states: Float[Array, "states obs"],
    references: Policy | None = None,
) -> dict[str, Float[Array, " actors"]]:
    """Returns both metrics of every actor, and with references `growth`, that of Delta since then."""
    count = ensembles.size(critics.head)

    def one(actor: tuple[Any, Any, Array]) -> dict[str, Float[Array, ""]]:
        policy, before, index = actor
        head, encoder = ensembles.member(critics.head, index), critics.encoder
        if not isinstance(encoder, BlindEncoder) and not critics.shared:
            encoder = ensembles.member(encoder, index)

        def seen(policy: Any, obs: Array, act: Array) -> Array:
            code = encoder(policy)
            return vmap(lambda obs, act: features(head, code, obs, act))(obs, act)

        def delta(policy: Any) -> trust_metrics.SampledDrift:
            theta, network = ravel_pytree(policy)
            return trust_metrics.drift_of_actions(
                lambda at: vmap(network(at))(states[: trust.states]),
                lambda at: encoder(network(at)),
                lambda obs, code, act: features(head, code, obs, act),
                states[: trust.states],
                theta,
                reference,
            )

        norm_of = lambda rows: trust_metrics.rough_norm(rows, RANGE, outside=math.inf)
        norm, own = norm_of(seen(policy, logged.obs, logged.act)), seen(policy, states, vmap(policy)(states))
        reference = norm_of(seen(before, states, vmap(before)(states)))
        drift = delta(policy)
        found = {
            "trust": trust_metrics.coverage(norm, own) / norm.rank,
            "outside": norm.share_outside(own),
            "drift": drift.delta,
            "drift_printed": drift.delta_printed,
        }
        return (
            found if references is None else found | {"growth": (drift.delta + TINY) / (delta(before).delta + TINY)}
        )

    numbers = jnp.arange(ensembles.size(policies)) % count
    return jax.lax.map(one, (policies, policies if references is None else references, numbers))
