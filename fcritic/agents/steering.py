"""Algorithm 3 with networks: who acts next, when actors and critics rest, how far actors step."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from fcritic import ensembles
from fcritic.agents.actor_trust import coverages, drifts, expected
from fcritic.agents.base import Learner, net
from fcritic.errors import UsageError, require_at_least
from fcritic.kernels.packing import pack_like
from fcritic.networks.critics import FunctionalCritic
from fcritic.networks.policies import Policy
from fcritic.types import Metrics, Transition


@dataclasses.dataclass(frozen=True)
class Trust:
    """What is known of the agents' trust in their critics, and what follows from it."""

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
    every: int = 200
    """Iterations between two measurements for the four options before."""

    def __post_init__(self) -> None:
        require_at_least(1, **{f"trust.{name}": getattr(self, name) for name in ("rows", "states", "every")})
        for name in ("rest_above", "refresh_above", "region"):
            bound = getattr(self, name)
            if bound is not None and not 0 < bound < math.inf:
                raise UsageError(f"--trust.{name.replace('_', '-')} must be above 0, not {bound:g}")

    @property
    def steers(self) -> bool:
        """Whether what agents do depends on the metrics."""
        bounds = (self.rest_above, self.refresh_above, self.region)
        return self.behaviour or any(each is not None for each in bounds)

    def begin(self, actors: Any) -> "Steering | None":
        """Returns full steps, critics that learn and the first actor, if what agents do depends on the metrics."""
        if not self.steers:
            return None
        count = ensembles.size(actors)
        numbers = (np.ones(count, np.float32), np.True_, np.int32(0), np.int32(0), np.zeros(count, np.int32))
        return Steering(actors, *map(jax.device_put, numbers))

    def steer(
        self,
        before: "Steering",
        policies: Policy,
        critics: FunctionalCritic,
        logged: Transition,
        recent: Float[Array, "rows obs"],
        collectors: int,
    ) -> "Steering":
        """Returns what actors and critics may do from now on; the first `collectors` of the actors may act.

        Without critics that rest an actor's reference is itself at the last measurement, otherwise when its critic
        learned last, which it stays until critics learn again.
        """
        steps, learn, lead = jnp.ones_like(before.steps), jnp.bool_(True), before.lead
        reference = pack_like(before.reference, policies)
        if self.rest_above is not None:
            covered = coverages(policies, critics, logged, recent)["trust"]
            steps = jnp.where(covered > self.rest_above, 0.0, steps)
        if self.region is not None or self.refresh_above is not None:
            growth = drifts(policies, critics, recent, self.states, net(before.reference))["growth"]
            if self.region is not None:
                steps = jnp.minimum(steps, self.region / growth)
            if self.refresh_above is not None:
                learn = (growth > self.refresh_above).any() | (steps == 0).any() | (before.critic_updates == 0)
                kept = ~(before.critics_learn | learn)
                choose = lambda old, new: jnp.where(kept, old, new)
                reference = jax.tree.map(choose, before.reference, reference)
        if self.behaviour:
            wished = expected(policies, critics, logged, recent, collectors).mean(axis=0)
            lead = wished.argmin().astype(jnp.int32)
        return dataclasses.replace(before, reference=reference, steps=steps, critics_learn=learn, lead=lead)


class Steering(eqx.Module):
    """What the metrics allow actors and critics, and how often they have learned."""

    reference: Any
    """The actors at the last measurement, or when critics that rest learned last."""
    steps: Float[Array, " actors"]
    """The share of a step that each may take."""
    critics_learn: Bool[Array, ""]
    """Whether critics may learn."""
    lead: Int[Array, ""]
    """The actor that plays the next episodes, where that depends on the metrics."""
    critic_updates: Int[Array, ""]
    """Updates of the critics, without those in which they rested."""
    actor_updates: Int[Array, " actors"]
    """Updates of each actor, without those in which it rested."""

    def of_critics(self, before: Any, after: Any) -> tuple[Any, "Steering"]:
        """Returns what an update has made of the critics, or what they were where they rest; and the new count."""
        allowed = jax.tree.map(lambda old, new: jnp.where(self.critics_learn, new, old), before, after)
        return allowed, dataclasses.replace(self, critic_updates=self.critic_updates + self.critics_learn)

    def of_actors(self, before: Learner, after: Learner) -> tuple[Learner, "Steering"]:
        """Returns actors that have taken the share of their steps that they may, and the new count."""
        taken = self.actor_updates + (self.steps > 0)
        return self.shortened(before, after), dataclasses.replace(self, actor_updates=taken)

    def shortened(self, before: Learner, after: Learner) -> Learner:
        """Returns what has taken that share of its step; its optimiser has seen the whole gradient."""
        share = lambda old, new: old + self.steps.reshape(-1, *[1] * (old.ndim - 1)) * (new - old)
        moved = jax.tree.map(share, before.net, after.net)
        return Learner(pack_like(after.params, moved), after.opt_state)

    def told(self) -> Metrics:
        """Returns what is logged: the shares of steps, updates so far, and critic updates for each of an actor."""
        taken = self.actor_updates.mean()
        ratio = self.critic_updates / jnp.maximum(taken, 1.0)
        updates = {"critic_updates": self.critic_updates, "actor_updates": taken, "critic_ratio": ratio}
        return {"step_by_actor": self.steps, "lead": self.lead} | updates
