"""Who collects data, and how: the options, and the memory of an environment for an episode."""

from collections.abc import Callable
import dataclasses
import math
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fcritic.agents.losses import own_values
from fcritic.errors import UsageError, require_at_least
from fcritic.kernels.packing import Packed
from fcritic.networks.critics import FunctionalCritic
from fcritic.networks.policies import DeterministicPolicy, GaussianPolicy, Policy

LEAD = -1
"""The actor of an episode that has not begun."""
Policies = DeterministicPolicy | GaussianPolicy | Packed
Choice = Literal["random", "optimist"]


@dataclasses.dataclass(frozen=True)
class Explore:
    """How the actors collect data."""

    noise: float = 0.0
    """Standard deviation of the exploration noise added at each step (paper: none; TD3+: 0.2)."""
    memory: float = 0.85
    """Share m of the noise that persists: x <- m x + noise N(0, 1) (TD3+: 0.85; 0: white noise)."""
    actors: int | None = None
    """Number of actors that collect data for all (ablation; paper: all actors)."""
    per_step: bool = False
    """Draw the rollout actor at every step (ablation; paper: once per episode, Algorithm 5, line 7)."""
    choose: Choice = "random"
    """Who plays an episode: an actor drawn at `random` (paper), or that of the `optimist`: the actor whose value at
    the first state, by the mean of the critics plus `doubt` times their standard deviation, is the highest."""
    doubt: float = 1.0
    """Weight of the standard deviation of the critics' values in the optimist's choice; 0: the mean alone."""

    def __post_init__(self) -> None:
        require_at_least(0, **{"explore.noise": self.noise})
        if not math.isfinite(self.doubt):
            raise UsageError(f"--explore.doubt must be a finite number, not {self.doubt}")
        if not 0 <= self.memory < 1:
            raise UsageError(f"--explore.memory must be in [0, 1), not {self.memory:g}")


class Explorer(NamedTuple):
    """The memory of an environment for an episode where actors explore with noise."""

    actor: Int[Array, ""]
    noise: Float[Array, " act"]


RolloutMemory = Int[Array, ""] | Explorer
"""The rollout actor's index, with its noise where there is some."""


class Led(NamedTuple):
    """The actors with the one that is to begin an episode, or with what names it."""

    policies: Policies
    lead: Any


def led(
    policy: Policies | Led, memory: RolloutMemory, name: Callable[[Policies, Any], Int[Array, ""]]
) -> tuple[Policies, RolloutMemory]:
    """Returns the actors, and the memory of an episode with its actor, where it begins and has none yet.

    `name` gives the actor's number from the actors and what `Led` has beside them.
    """
    if not isinstance(policy, Led):
        return policy, memory
    lead = name(*policy)
    named = lambda actor: jnp.where(actor == LEAD, lead, actor)
    explores = isinstance(memory, Explorer)
    return policy.policies, memory._replace(actor=named(memory.actor)) if explores else named(memory)


def most_promising(
    policies: Policy, critics: FunctionalCritic, obs: Float[Array, " obs"], doubt: float, candidates: int
) -> Int[Array, ""]:
    """Returns which of the first actors has the highest mean plus `doubt` deviations of the critics' values."""
    each = own_values(critics, policies, obs[None])[:, :candidates, 0]
    return (each.mean(axis=0) + doubt * each.std(axis=0)).argmax().astype(jnp.int32)
