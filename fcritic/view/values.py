"""What critics say along an episode, and the measured returns to compare that with."""

from typing import Any, NamedTuple, cast

from jaxtyping import Float
import numpy as np

from fcritic.agents.critic_ensemble import for_actor
from fcritic.api.load import TrainedAgent
from fcritic.networks.critics import BlindEncoder, NamesAlone, StateActionCritic

Trace = Float[np.ndarray, "states"]


class Values(NamedTuple):
    """Q(pi, s, pi(s)) along an episode: the value that the actor climbs, and the range over all critics."""

    value: Trace
    low: Trace
    high: Trace


def critic_values(agent: TrainedAgent, actor: int, obs: Float[np.ndarray, "states obs"]) -> Values | None:
    """Returns the critics' values of an actor; None where the critics are newer than it or see only its name.

    The value is that of the functional critic, or of the mean of critics, which the actor climbs, and the range is
    over all n, since each can value any policy. Plain critics value only their own actor, so there the range is the
    value itself.
    """
    if agent.best_frame is not None or isinstance(getattr(agent.critics, "encoder", None), NamesAlone):
        return None
    found, algorithm = agent.value(actor, obs), cast(Any, agent.config.agent)
    if isinstance(agent.critics, StateActionCritic) or algorithm.pairing == "mean":
        value = np.asarray(for_actor(found, getattr(algorithm, "actor_value", "mean")))
    else:
        value = np.asarray(found[actor])
        if isinstance(agent.critics.encoder, BlindEncoder):
            return Values(value, value, value)
    return Values(value, np.asarray(found.min(axis=0)), np.asarray(found.max(axis=0)))


MISSING = 0.1
"""The weight of what lies beyond a time limit, from which on a measured return is no longer called whole."""


def whole_returns(steps: int, terminated: bool, gamma: float) -> int:
    """How many of the first returns to go can be held against a critic.

    A critic looks beyond a time limit; what was measured ends there. What is missing has the weight gamma^(T-t).
    """
    if terminated or gamma == 0:
        return steps
    return min(steps, max(0, int(np.floor(steps - np.log(MISSING) / np.log(gamma))) + 1))
