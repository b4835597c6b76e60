"""A cloud of policies around the actors, from which critics learn what policies are worth.

Critics that learn on n actors know n points. A TD target needs no rollout of its policy, so any policy may join:
past actors from a bank, and mixtures of two in the space of functions. Each takes few transitions of the batch;
many then cost as much as one or two actors on all of them.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray
import numpy as np

from fcritic import ensembles
from fcritic.agents.base import Learner, net
from fcritic.agents.losses import own_values
from fcritic.errors import UsageError, require_at_least
from fcritic.kernels.packing import pack_like
from fcritic.networks.critics import FunctionalCritic
from fcritic.networks.policies import Mixture
from fcritic.types import Transition


@dataclasses.dataclass(frozen=True)
class Cloud:
    """Further policies that the critics learn from."""

    policies: int = 0
    """Policies in each critic update, C, drawn from actors and bank (paper: none)."""
    rows: int = 16
    """Transitions of the batch for each of these policies, R."""
    mixed: float = 1.0
    """Share of these policies that are mixtures, with actions (1 - w) a + w b of two policies, w uniform in [0, 1];
    needs `--encoder.kind behaviour`, as a mixture has no neurons."""
    weight: float = 1.0
    """Weight of the loss on these policies relative to that on the actors."""
    bank: int = 0
    """Past actors kept in the agent's state, for critics to learn from and to be tested on; 0: none."""
    every: int = 50
    """Actor updates between additions to the bank: one actor at a time, in turn, replaces the oldest."""

    replace_every: int = 0
    """Actor updates between two replacements: the actor that critics value least, at states of the batch, becomes
    the past actor of the bank that they value most, where that is more. Nothing is run for it; mixtures are not
    networks and take no part (paper: none). 0: never."""

    def __post_init__(self) -> None:
        amounts = ("policies", "bank", "weight", "replace_every")
        require_at_least(0, **{f"cloud.{name}": getattr(self, name) for name in amounts})
        require_at_least(1, **{f"cloud.{name}": getattr(self, name) for name in ("rows", "every")})
        if not 0 <= self.mixed <= 1:
            raise UsageError(f"--cloud.mixed must be in [0, 1], not {self.mixed:g}")

    def begin(self, actors: Any) -> "Bank | None":
        """Returns a bank without past actors, if one is kept: its places hold the first actors."""
        if not self.bank:
            return None
        places = np.arange(self.bank) % ensembles.size(actors)
        counted = jax.device_put(np.int32(0)) if self.replace_every else None
        return Bank(ensembles.member(actors, places), jax.device_put(np.int32(0)), counted)

    def keep(self, bank: "Bank | None", actors: Any) -> "Bank | None":
        """Returns the bank after one more update of the actors, the next of which enters it where it is time."""
        if bank is None:
            return None
        updates, held = bank.updates + 1, net(bank.stored)
        number = updates // self.every - 1
        slot, turn, due = number % self.bank, number % ensembles.size(actors), updates % self.every == 0
        put = lambda past, now: past.at[slot].set(jnp.where(due, now[turn], past[slot]))
        return Bank(pack_like(bank.stored, jax.tree.map(put, held, actors)), updates, bank.replaced)

    def replace(
        self, actors: Learner, bank: "Bank", critics: FunctionalCritic, obs: Float[Array, "batch obs"]
    ) -> tuple[Learner, "Bank"]:
        """Returns actors of which the worst has become the best past one, where it is time and that one is better.

        Its optimiser goes on with the moments that it has: they tell how large gradients are.
        """
        now, past = actors.net, net(bank.stored)
        value = lambda policies: own_values(critics, policies, obs[:STATES]).mean(axis=(0, 2))
        there = jnp.arange(self.bank) < self.stored(bank)
        ours, theirs = value(now), jnp.where(there, value(past), -jnp.inf)
        worst, best = ours.argmin(), theirs.argmax()
        due = (bank.updates % self.replace_every == 0) & (theirs[best] > ours[worst])
        put = lambda mine, other: mine.at[worst].set(jnp.where(due, other[best], mine[worst]))
        learner = Learner(pack_like(actors.params, jax.tree.map(put, now, past)), actors.opt_state)
        return learner, Bank(bank.stored, bank.updates, bank.replaced + due)

    def draw(self, actors: Any, bank: "Bank | None", batch: Transition, key: PRNGKeyArray) -> "Drawn":
        """Returns policies from actors and bank, or mixtures of two of them, each with some rows of the batch."""
        who_key, row_key, _ = jax.random.split(key, 3)  # the third is for noise of actions
        rows = jax.random.randint(row_key, (self.policies, self.rows), 0, len(batch.reward))
        return Drawn(self.policies_of(actors, bank, who_key), ensembles.member(batch, rows))

    def policies_of(self, actors: Any, bank: "Bank | None", key: PRNGKeyArray) -> Any:
        """Returns `policies` from actors and bank, or mixtures of two of them."""
        who_key, weight_key, mixed_key = jax.random.split(key, 3)
        known, count = actors, jnp.int32(ensembles.size(actors))
        if bank is not None:
            join = lambda now, past: jnp.concatenate([now, past])
            known, count = jax.tree.map(join, actors, net(bank.stored)), count + self.stored(bank)
        first, second = jax.random.randint(who_key, (2, self.policies), 0, count)
        policies = ensembles.member(known, first)
        if not self.mixed:
            return policies
        weight = jax.random.uniform(weight_key, (self.policies,))
        mixed = jax.random.uniform(mixed_key, (self.policies,)) < self.mixed
        return vmap(Mixture)(policies, ensembles.member(known, second), jnp.where(mixed, weight, 0.0))

    def asked(self, actors: Any, bank: "Bank", count: int, key: PRNGKeyArray, mixtures: bool) -> dict[str, Any]:
        """Returns so many policies of each kind, to ask critics about: past actors, evenly spaced in time, perhaps
        mixtures, and where there are three actors the slice through their parameters, evenly covered."""
        found = {"past": ensembles.member(net(bank.stored), jnp.arange(count) * self.stored(bank) // count)}
        if mixtures:
            found["mixtures"] = dataclasses.replace(self, mixed=1.0, policies=count).policies_of(actors, bank, key)
        if ensembles.size(actors) >= 3:
            found["slice"] = plane(actors, (0, 1, 2), *_spread(count))
        return found

    def stored(self, bank: "Bank") -> Int[Array, ""]:
        """Returns how many past actors the bank holds."""
        return jnp.minimum(bank.updates // self.every, self.bank)


STATES = 32
"""States of a batch at which past actors are valued: as many for each as a cloud would give it, about."""

LOW, HIGH = -0.5, 1.5
"""How far a slice goes: half the way beyond the actors on either side."""


def plane(policies: Any, corners: tuple[int, int, int], x: np.ndarray, y: np.ndarray) -> Any:
    """Returns the policies a + x (b - a) + y (c - a), stacked; x and y have one entry for each.

    Written as (1 - x - y) a + x b + y c, so that the corners are the actors to the last bit.
    """
    first, second, third = (ensembles.member(policies, corner) for corner in corners)

    def mix(*leaves: Array) -> Float[Array, "points ..."]:
        weights = [np.asarray(each, np.float32).reshape(-1, *(1,) * leaves[0].ndim) for each in (1 - x - y, x, y)]
        return sum(weight * leaf[None] for weight, leaf in zip(weights, leaves, strict=True))

    return jax.tree.map(mix, first, second, third)


def _spread(count: int) -> Float[np.ndarray, "2 count"]:
    """Points that cover a slice evenly, however many they are: a sequence of low discrepancy (Roberts 2018)."""
    steps = np.arange(1, count + 1) * np.array([[0.7548776662], [0.5698402910]])
    return LOW + (HIGH - LOW) * ((0.5 + steps) % 1)


class Bank(eqx.Module):
    """Past actors."""

    stored: Any
    """A stack of `Cloud.bank` policies."""
    updates: Int[Array, ""]
    """Updates of the actors so far."""
    replaced: Any = None
    """How many actors have been replaced by a past one, where that is done."""


class Drawn(NamedTuple):
    """Policies of one critic update, each with transitions of its own."""

    policies: Any
    rows: Transition
    """Leading axes (policies, rows)."""


def next_actions(drawn: Drawn) -> Float[Array, "policies rows act"]:
    """Returns what each policy does at its next states."""
    return vmap(lambda policy, obs: vmap(policy)(obs))(drawn.policies, drawn.rows.next_obs)
