"""What policies reach: returns measured by running them, all from the same first states."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import vmap
from jaxtyping import Array, Float
import numpy as np

from fcritic import ensembles, envs
from fcritic.api.load import TrainedAgent
from fcritic.envs.base import EPISODE_LIMIT
from fcritic.errors import UsageError
from fcritic.training.replay import Normalizer

WIDTH = 48
"""Environments that run side by side; more policies take turns."""


class Returns(NamedTuple):
    """Of every policy, in every episode."""

    plain: Float[np.ndarray, "policies episodes"]
    """The sum of rewards."""
    discounted: Float[np.ndarray, "policies episodes"]
    """The sum of gamma^t r_t over actions, which is what a critic values."""
    first: Float[np.ndarray, "episodes obs"]
    """The first observation of each episode, the same for every policy."""
    longest: int
    """Actions in the longest episode."""


class Rollouts:
    """Environments of an agent's task, kept while policies take turns in them."""

    def __init__(self, agent: TrainedAgent, episodes: int, width: int = WIDTH):
        self.agent, self.episodes, self.width = agent, episodes, width
        options = agent.config.env_options | {"seeds": [agent.seed], "on_fault": "stop"}
        self._vector = envs.make_vector(agent.config.task, envs=width, salt="inspection", **options)

    def measure(self, policies: Any, progress: Callable[[int], None] = lambda done: None) -> Returns:
        """Runs a stack of policies; `progress` hears how many episodes are over."""
        count, parts, done = ensembles.size(policies), [], 0
        for start in range(0, count, self.width):
            index = np.minimum(np.arange(start, start + self.width), count - 1)  # the last one fills up
            part, own = ensembles.member(policies, index), []
            for number in range(self.episodes):
                own.append(self._episode(part, number))
                done += min(self.width, count - start)
                progress(done)
            parts.append(own)
        join = lambda name: np.concatenate(
            [np.stack([getattr(each, name) for each in part], axis=1) for part in parts]
        )[:count]
        first = np.stack([each.first for each in parts[0]])
        return Returns(
            join("plain"), join("discounted"), first, max(each.longest for part in parts for each in part)
        )

    def _episode(self, policies: Any, number: int) -> Returns:
        """One episode of each policy; all begin alike, since their environments have the same seed."""
        (seed,) = envs.copy_seeds([self.agent.seed], 1, f"inspection {number}")
        self._vector.restart([seed * self.width])
        first = self._vector.obs[0, 0].copy()
        plain, discounted = np.zeros(self.width), np.zeros(self.width)
        alive, weight, steps = np.ones(self.width, bool), np.ones(self.width), 0
        normalizer = self.agent.normalizer if self.agent.config.normalize else None
        while alive.any():
            if steps == EPISODE_LIMIT:
                raise UsageError(f"the episodes of {self.agent.config.task} do not end within {steps:,} actions")
            actions = _actions(policies, normalizer, self._vector.obs[0])
            transition, ended = self._vector.step(np.asarray(actions)[None])
            plain += alive * transition.reward[0]
            discounted += alive * weight * transition.reward[0]
            weight = weight * self.agent.config.agent.discount * transition.discount[0]
            alive[[episode.env_index for episode in ended]] = False
            steps += 1
        return Returns(plain, discounted, first, steps)

    def close(self) -> None:
        """Closes the environments."""
        self._vector.close()


@jax.jit
def _actions(
    policies: Any, normalizer: Normalizer | None, obs: Float[Array, "policies obs"]
) -> Float[Array, "policies act"]:
    return vmap(lambda policy, seen: policy(seen))(policies, obs if normalizer is None else normalizer(obs))
