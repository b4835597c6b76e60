"""What an actor's critics say of the states it visits, and what those states turned out to be worth."""

from typing import Any, NamedTuple

from jaxtyping import Float
import numpy as np

from fcritic import ensembles
from fcritic.agents.base import AbstractAgent
from fcritic.agents.critic_ensemble import for_actor
from fcritic.api.valuation import Sight, critics_of, values
from fcritic.networks.critics import BlindEncoder, StateActionCritic

Trace = Float[np.ndarray, " states"]


class Values(NamedTuple):
    """Q(pi, s, pi(s)) along an episode: the value that the actor climbs, and the range over all critics."""

    value: Trace
    low: Trace
    high: Trace


def critic_values(agent: AbstractAgent, state: Any, actor: int, obs: Float[np.ndarray, "states obs"]) -> Values:
    """What one seed's critics say of one of its actors; `obs` are normalised.

    Of functional critics the actor's own one counts, and the range is over all n: each can value any policy. Plain
    critics know only their own actor, so there the range is the value itself.
    """
    critics = critics_of(state)
    policy = ensembles.member(agent.evaluation_policies(state), actor)
    everyone = values(critics, Sight(None), policy, obs)
    functional = not isinstance(critics, StateActionCritic)
    value = np.asarray(everyone[actor] if functional else for_actor(everyone, agent.actor_value))
    if functional and isinstance(critics.encoder, BlindEncoder):
        return Values(value, value, value)
    return Values(value, np.asarray(everyone.min(axis=0)), np.asarray(everyone.max(axis=0)))


def returns_to_go(rewards: Trace, discounts: Trace, gamma: float) -> Trace:
    """The discounted rewards from each action to the end of the episode: G_t = r_t + gamma d_t G_{t+1}."""
    found, after = np.zeros(len(rewards)), 0.0
    for step in range(len(rewards) - 1, -1, -1):
        after = rewards[step] + gamma * discounts[step] * after
        found[step] = after
    return found


MISSING = 0.1
"""The weight of what lies beyond a time limit, from which on a measured return is no longer called whole."""


def whole_returns(steps: int, terminated: bool, gamma: float) -> int:
    """How many of the first returns to go can be held against a critic.

    A critic looks beyond a time limit; what was measured ends there. What is missing has the weight gamma^(T-t).
    """
    if terminated or gamma == 0:
        return steps
    return min(steps, max(0, int(np.floor(steps - np.log(MISSING) / np.log(gamma))) + 1))
