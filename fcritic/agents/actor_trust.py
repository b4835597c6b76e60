"""How far the data reach the actors that learn: both trust metrics, with the features of their own critics."""

from functools import partial
from typing import Any, NamedTuple

import jax
from jax import vmap
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fcritic import ensembles
from fcritic.agents import trust_metrics
from fcritic.networks.critics import BlindEncoder, FunctionalCritic, ValueHead
from fcritic.networks.policies import GaussianPolicy, Policy
from fcritic.types import Metrics, Transition

TINY = 1e-12
"""What keeps the growth of a Delta of zero from being no number."""

ADDED = 0.1
"""The share of the data that is taken to be an actor's when it is asked what its acting would give."""


def trust_of_actors(
    policies: Policy, critics: FunctionalCritic, logged: Transition, recent: Float[Array, "rows obs"], states: int
) -> Metrics:
    """Returns C and Delta of every actor, by the critic with its index, and their means.

    A replay does not say whose its states are: the actor's own measure are the newest states, which it has met or
    might have, with the actions that it takes there. C is over the number of directions, 1 where the data are
    like these; `outside` is the share of the actor's features that no data cover, which Definition 1 calls
    infinite. The reference of Delta is the actor itself; slopes are taken at the first of the states.
    """
    found = coverages(policies, critics, logged, recent) | drifts(policies, critics, recent, states)
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
        norm = trust_metrics.norm(seen(policy, logged.obs, logged.act))
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

    What no data cover counts as covered by a share of `trust_metrics.RANGE`: there a candidate gives the most.
    """

    def one(actor: tuple[Any, Array]) -> Float[Array, " candidates"]:
        policy, seen = actor[0], _Seen.by(critics, actor[1])
        moment = lambda act: trust_metrics.second_moment(seen(policy, states, act))
        before = trust_metrics.second_moment(seen(policy, logged.obs, logged.act))
        added = vmap(lambda other: moment(acts(other, states)))(ensembles.member(policies, jnp.arange(candidates)))
        own = moment(acts(policy, states))
        ridge = trust_metrics.RANGE * jnp.trace(before)
        return vmap(lambda each: trust_metrics.coverage_with(before, each, own, ADDED, ridge))(added)

    return jax.lax.map(one, (policies, _critic_of_each(policies, critics)))


def drifts(
    policies: Policy,
    critics: FunctionalCritic,
    states: Float[Array, "states obs"],
    steep: int,
    references: Policy | None = None,
) -> dict[str, Float[Array, " actors"]]:
    """Returns Delta of every actor, from slopes at the first `steep` states.

    With references also `growth`: Delta over what it was when the actor was its reference.
    """
    few = states[:steep]

    def one(actor: tuple[Any, Any, Array]) -> dict[str, Float[Array, ""]]:
        policy, before, seen = *actor[:2], _Seen.by(critics, actor[2])
        reference = trust_metrics.norm(seen(before, states, acts(before, states)))

        def delta(policy: Any) -> trust_metrics.SampledDrift:
            theta, network = ravel_pytree(policy)
            act, code = (lambda at: acts(network(at), few)), (lambda at: seen.encoder(network(at)))
            by_code = lambda obs, code, act: seen.head.features(code, obs, act)
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
        return vmap(partial(self.head.features, code))(obs, act)


def _critic_of_each(policies: Policy, critics: FunctionalCritic) -> Int[Array, " actors"]:
    return jnp.arange(ensembles.size(policies)) % ensembles.size(critics.head)


def acts(policy: Any, obs: Float[Array, "rows obs"]) -> Float[Array, "rows act"]:
    """Returns what a policy does at each state; a soft one draws, always with the same noise."""
    if not isinstance(policy, GaussianPolicy):
        return vmap(policy)(obs)
    noise = jax.random.normal(jax.random.key(0), (len(obs), policy.act_dim))
    return vmap(lambda seen, drawn: policy.sample(seen, drawn)[0])(obs, noise)
