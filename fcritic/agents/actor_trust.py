"""How far the data reach the actors that learn: both trust metrics, with the features of their own critics."""

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax import vmap
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from fcritic import ensembles
from fcritic.agents import trust_metrics
from fcritic.agents.base import Learner, net
from fcritic.errors import UsageError, require_at_least
from fcritic.kernels.packing import pack_like
from fcritic.networks.critics import BlindEncoder, FunctionalCritic, ValueHead
from fcritic.networks.policies import GaussianPolicy, Policy
from fcritic.types import Metrics, Transition

RANGE = 1e-4
"""Directions with less than this share of the largest second moment count as outside of the data."""

TINY = 1e-12
"""What keeps the growth of a Delta of zero from being no number."""

ADDED = 0.1
"""The share of the data that is taken to be an actor's when it is asked what its acting would give."""


@dataclasses.dataclass(frozen=True)
class Trust:
    """What is known of the agents' trust in their critics."""

    measure: bool = False
    """Measure coverage C, eq. (5), and Delta, eq. (9), of each actor when agents are evaluated, beside the error of
    its critic over an episode (paper: finite MDPs only)."""
    rows: int = 1024
    """Transitions of the replay, and as many states of its newest twentieth, that C is estimated from."""
    states: int = 16
    """States at which Delta takes slopes in the actor's parameters."""

    behaviour: bool = False
    """The actor whose data would lower the mean C of all actors the most plays the next episodes (paper: Algorithm
    3 takes the reference where C is above its bound; Algorithm 5 draws one)."""
    rest_above: float | None = None
    """Actors rest while their C, over its least, is above this bound: only critics learn (paper: Algorithm 3 renews
    the data there; Algorithm 5 has none)."""
    refresh_above: float | None = None
    """Critics rest until the Delta of an actor has grown by more than this factor since they learned last (paper:
    Algorithm 3 has 2, in the units of Delta; Algorithm 5 has none)."""
    region: float | None = None
    """An actor's step is multiplied by this over the growth of its Delta since the last measurement, or since
    resting critics learned last, where that is below 1 (paper: future work)."""
    every: int = 50
    """Actor updates between two measurements for the four options before."""

    def __post_init__(self) -> None:
        require_at_least(1, **{f"trust.{name}": getattr(self, name) for name in ("rows", "states", "every")})
        for name in ("rest_above", "refresh_above", "region"):
            bound = getattr(self, name)
            if bound is not None and not 0 < bound < math.inf:
                raise UsageError(f"--trust.{name.replace('_', '-')} must be above 0, not {bound:g}")

    @property
    def steers(self) -> bool:
        """Whether what agents do depends on the metrics."""
        return self.behaviour or any(
            each is not None for each in (self.rest_above, self.refresh_above, self.region)
        )

    def begin(self, actors: Any) -> "Steering | None":
        """Returns full steps, critics that learn and the first actor, if what agents do depends on the metrics."""
        if not self.steers:
            return None
        count = ensembles.size(actors)
        numbers = (
            np.ones(count, np.float32),
            np.int32(0),
            np.True_,
            np.int32(0),
            np.int32(0),
            np.zeros(count, np.int32),
        )
        return Steering(actors, *map(jax.device_put, numbers))

    def steer(
        self, steering: "Steering", policies: Policy, critics: FunctionalCritic, batch: Transition, collectors: int
    ) -> "Steering":
        """Returns what actors and critics may do, measured anew where it is time.

        What actors would do at the batch's next states stands for their own measure. The first `collectors` of them
        may collect data.
        """

        def measured() -> Steering:
            states, steps = batch.next_obs, jnp.ones_like(steering.steps)
            learn, lead, before = steering.critics_learn, steering.lead, net(steering.reference)
            if self.rest_above is not None:
                steps = jnp.where(
                    coverages(policies, critics, batch, states)["trust"] > self.rest_above, 0.0, steps
                )
            reference = pack_like(steering.reference, policies)
            if self.region is not None or self.refresh_above is not None:
                growth = drifts(self, policies, critics, states, before)["growth"]
                if self.region is not None:
                    steps = jnp.minimum(steps, self.region / growth)
                if self.refresh_above is not None:
                    learn = self.critics_learn(growth, steps, steering.updates)
                    kept = ~(steering.critics_learn | learn)
                    reference = jax.tree.map(
                        lambda old, new: jnp.where(kept, old, new), steering.reference, reference
                    )
            if self.behaviour:
                lead = (
                    expected(policies, critics, batch, states, collectors).mean(axis=0).argmin().astype(jnp.int32)
                )
            return Steering(
                reference, steps, steering.updates, learn, lead, steering.critic_updates, steering.actor_updates
            )

        steering = jax.lax.cond(steering.updates % self.every == 0, measured, lambda: steering)
        taken = steering.actor_updates + (steering.steps > 0)
        return dataclasses.replace(steering, updates=steering.updates + 1, actor_updates=taken)

    def critics_learn(
        self, growth: Float[Array, " actors"], steps: Float[Array, " actors"], updates: Int[Array, ""]
    ) -> Bool[Array, ""]:
        """Returns whether critics learn until the next measurement.

        They do at the beginning, where an actor has left what they know, and where one waits for them.
        """
        assert self.refresh_above is not None
        return (updates == 0) | (growth > self.refresh_above).any() | (steps == 0).any()


class Steering(eqx.Module):
    """What the metrics allow actors and critics, and how often they have learned."""

    reference: Any
    """The actors at the last measurement, or when critics that rest learned last."""
    steps: Float[Array, " actors"]
    """The share of a step that each may take."""
    updates: Int[Array, ""]
    """Updates of the actors so far, with those in which they rested."""
    critics_learn: Bool[Array, ""]
    """Whether critics may learn."""
    lead: Int[Array, ""]
    """The actor that plays the next episodes, where that depends on the metrics."""
    critic_updates: Int[Array, ""]
    """Updates of the critics, without those in which they rested."""
    actor_updates: Int[Array, " actors"]
    """Updates of each actor, without those in which it rested."""

    def critics_after(self, before: Any, after: Any) -> Any:
        """Returns what an update has made of the critics, or what they were, where they rest."""
        return jax.tree.map(lambda old, new: jnp.where(self.critics_learn, new, old), before, after)

    def counted(self) -> "Steering":
        """Returns the same after an update of the critics."""
        return dataclasses.replace(self, critic_updates=self.critic_updates + self.critics_learn)

    def told(self) -> Metrics:
        """Returns what is logged: the shares of steps, updates so far, and critic updates for each of an actor."""
        taken = self.actor_updates.mean()
        return {
            "step_by_actor": self.steps,
            "critic_updates": self.critic_updates,
            "actor_updates": taken,
            "critic_ratio": self.critic_updates / jnp.maximum(taken, 1.0),
            "lead": self.lead,
        }


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
    like these; `outside` is the share of the actor's features that no data cover, which Definition 1 calls
    infinite. The reference of Delta is the actor itself.
    """
    found = coverages(policies, critics, logged, recent) | drifts(trust, policies, critics, recent)
    each = {f"{name}_by_actor": values for name, values in found.items()}
    return {name: values.mean() for name, values in found.items()} | each


def coverages(
    policies: Policy, critics: FunctionalCritic, logged: Transition, states: Float[Array, "states obs"]
) -> dict[str, Float[Array, " actors"]]:
    """Returns C of every actor over the number of directions, and the share of its features outside of the data.

    The inverse of a moment of n rows is too large by n / (n - directions) in the mean, as that of a Wishart matrix
    is, when other rows are measured with it; C is that much smaller.
    """

    def one(actor: tuple[Any, Array]) -> dict[str, Float[Array, ""]]:
        policy, seen = actor[0], _Seen.by(critics, actor[1])
        norm = _norm(seen(policy, logged.obs, logged.act))
        own, rows = seen(policy, states, acts(policy, states)), len(logged.obs)
        fair = jnp.maximum(rows - norm.rank, 1.0) / rows
        return {
            "trust": fair * trust_metrics.coverage(norm, own) / norm.rank,
            "outside": norm.share_outside(own),
        }

    return jax.lax.map(one, (policies, _critic_of_each(policies, critics)))


def expected(
    policies: Policy,
    critics: FunctionalCritic,
    logged: Transition,
    states: Float[Array, "states obs"],
    candidates: int,
) -> Float[Array, "actors candidates"]:
    """Returns C of every actor, if each of the first actors had acted for a share of the data, `ADDED`, at states.

    What no data cover counts as covered by a share of `RANGE`: there a candidate gives the most.
    """

    def one(actor: tuple[Any, Array]) -> Float[Array, " candidates"]:
        policy, seen = actor[0], _Seen.by(critics, actor[1])
        moment = lambda act: trust_metrics.second_moment(seen(policy, states, act))
        before = trust_metrics.second_moment(seen(policy, logged.obs, logged.act))
        added = vmap(lambda other: moment(acts(other, states)))(ensembles.member(policies, jnp.arange(candidates)))
        own = moment(acts(policy, states))
        ridge = RANGE * jnp.trace(before)
        return vmap(lambda each: trust_metrics.coverage_with(before, each, own, ADDED, ridge))(added)

    return jax.lax.map(one, (policies, _critic_of_each(policies, critics)))


def drifts(
    trust: Trust,
    policies: Policy,
    critics: FunctionalCritic,
    states: Float[Array, "states obs"],
    references: Policy | None = None,
) -> dict[str, Float[Array, " actors"]]:
    """Returns Delta of every actor, and with references `growth`, that of Delta since then."""
    few = states[: trust.states]

    def one(actor: tuple[Any, Any, Array]) -> dict[str, Float[Array, ""]]:
        policy, before, seen = *actor[:2], _Seen.by(critics, actor[2])
        reference = _norm(seen(before, states, acts(before, states)))

        def delta(policy: Any) -> trust_metrics.SampledDrift:
            theta, network = ravel_pytree(policy)
            act, code = (lambda at: acts(network(at), few)), (lambda at: seen.encoder(network(at)))
            by_code = lambda obs, code, act: features(seen.head, code, obs, act)
            return trust_metrics.drift_of_actions(act, code, by_code, few, theta, reference)

        drift = delta(policy)
        found = {"drift": drift.delta, "drift_printed": drift.delta_printed}
        if references is None:
            return found
        return found | {"growth": (drift.delta + TINY) / (delta(before).delta + TINY)}

    others = policies if references is None else references
    return jax.lax.map(one, (policies, others, _critic_of_each(policies, critics)))


class _Seen(NamedTuple):
    """One critic, which sees pairs of any policy as features."""

    encoder: Any
    head: ValueHead

    @staticmethod
    def by(critics: FunctionalCritic, index: Int[Array, ""]) -> "_Seen":
        """Returns the critic with this index."""
        head, encoder = ensembles.member(critics.head, index), critics.encoder
        if not isinstance(encoder, BlindEncoder) and not critics.shared:
            encoder = ensembles.member(encoder, index)
        return _Seen(encoder, head)

    def __call__(
        self, policy: Any, obs: Float[Array, "rows obs"], act: Float[Array, "rows act"]
    ) -> Float[Array, "rows d"]:
        """Returns phi^pi of each row."""
        code = self.encoder(policy)
        return vmap(lambda obs, act: features(self.head, code, obs, act))(obs, act)


def _critic_of_each(policies: Policy, critics: FunctionalCritic) -> Int[Array, " actors"]:
    return jnp.arange(ensembles.size(policies)) % ensembles.size(critics.head)


def _norm(rows: Float[Array, "rows d"]) -> trust_metrics.Norm:
    return trust_metrics.rough_norm(rows, RANGE, outside=math.inf)


def acts(policy: Any, obs: Float[Array, "rows obs"]) -> Float[Array, "rows act"]:
    """Returns what a policy does at each state; a soft one draws, always with the same noise."""
    if not isinstance(policy, GaussianPolicy):
        return vmap(policy)(obs)
    noise = jax.random.normal(jax.random.key(0), (len(obs), policy.act_dim))
    return vmap(lambda seen, drawn: policy.sample(seen, drawn)[0])(obs, noise)
