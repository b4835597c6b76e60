"""The actors of a run that are to be seen, and what their critics say of an episode."""

import dataclasses
from typing import Any, NamedTuple

from jaxtyping import Float
import numpy as np

from fcritic import ensembles
from fcritic.agents.critic_ensemble import for_actor
from fcritic.api.valuation import critics_of, values
from fcritic.config import TrainConfig
from fcritic.disk import Place
from fcritic.envs import task_spec
from fcritic.errors import UsageError
from fcritic.networks.critics import BlindEncoder, StateActionCritic
from fcritic.training.health import require_acting
from fcritic.training.replay import Normalizer
from fcritic.training.saving import Progress, load_policies, load_state
from fcritic.training.sight import Sight

Trace = Float[np.ndarray, " states"]


class Values(NamedTuple):
    """Q(pi, s, pi(s)) along an episode: the value that the actor climbs, and the range over all critics."""

    value: Trace
    low: Trace
    high: Trace


def critic_values(agent: Any, state: Any, actor: int, obs: Float[np.ndarray, "states obs"]) -> Values:
    """What one seed's critics say of one of its actors; `obs` are normalised.

    Of functional critics the one or the mean that the actor climbs counts, and the range is over all n: each can
    value any policy. Plain critics that know only their own actor have the value itself for a range.
    """
    critics = critics_of(state)
    policy = ensembles.member(agent.evaluation_policies(state), actor)
    everyone = values(critics, Sight(None), policy, obs)
    if isinstance(critics, StateActionCritic) or agent.pairing == "mean":
        value = np.asarray(for_actor(everyone, getattr(agent, "actor_value", "mean")))
    else:
        value = np.asarray(everyone[actor])
        if isinstance(critics.encoder, BlindEncoder):
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


@dataclasses.dataclass(frozen=True)
class Actor:
    """A policy with what it needs to act."""

    policy: Any
    normalizer: Normalizer
    normalize: bool


class Cast:
    """All actors of one seed of a checkpoint, and their critics where these belong to them."""

    def __init__(self, config: TrainConfig, checkpoint: Place, seed: int | None, best: bool):
        self.config, self.best = config, best
        self.seed = config.seed if seed is None else seed
        index = self.seed - config.seed
        if not 0 <= index < config.seeds:
            last = config.seed + config.seeds - 1
            allowed = f"{config.seed}, the only seed" if config.seeds == 1 else f"{config.seed} to {last}"
            raise UsageError(f"--seed must be {allowed} of this run, not {self.seed}")
        spec = task_spec(config.task)
        self._agent = None
        if best:
            policies, normalizers, facts = load_policies(config, checkpoint, True, spec)
            self._policies, self.frame = ensembles.member(policies, index), int(facts["best"]["frame"][index])
        else:
            state, facts = load_state(config, checkpoint, spec)
            normalizers, self._agent = state.normalizer, ensembles.member(state.agent, index)
            self._policies = config.agent.evaluation_policies(self._agent)
            self.frame = Progress.of(facts).iteration * config.frames_per_iteration
        require_acting(self._policies)
        self._normalizer = ensembles.member(normalizers, index)

    @property
    def size(self) -> int:
        """How many actors there are."""
        return ensembles.size(self._policies)

    def actor(self, index: int) -> Actor:
        """One of the actors."""
        if not 0 <= index < self.size:
            allowed = "0, the only actor" if self.size == 1 else f"0 to {self.size - 1}"
            raise UsageError(f"--actor must be {allowed} of this run, not {index}")
        return Actor(ensembles.member(self._policies, index), self._normalizer, self.config.normalize)

    def values(self, index: int, obs: Float[np.ndarray, "states obs"]) -> Values | None:
        """What the critics say along an episode of an actor; None where they are those of later actors, or know
        actors by name alone."""
        if self._agent is None or getattr(self._agent, "names", None) is not None:
            return None
        seen = np.asarray(self._normalizer(obs)) if self.config.normalize else obs
        return critic_values(self.config.agent, self._agent, index, seen)
