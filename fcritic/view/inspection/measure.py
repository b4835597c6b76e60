"""Policies on slices through the space of actors: what critics say of them, and what they reach when they run."""

from collections.abc import Callable
import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from fcritic import ensembles
from fcritic.agents.cloud import HIGH, LOW
from fcritic.agents.losses import encode_all
from fcritic.api import valuation
from fcritic.api.load import TrainedAgent
from fcritic.errors import UsageError
from fcritic.networks.critics import FunctionalCritic
from fcritic.training.evaluate import Evaluator
from fcritic.training.sight import Sight


def places(count: int) -> Float[np.ndarray, " count"]:
    """Evenly spaced from `LOW` to `HIGH`; 0 and 1, where actors are, must be among them."""
    if count < 5 or count % 4 != 1 or count > 41:
        raise UsageError(f"--grid must be 5, 9, 13 or another of this row up to 41, not {count}")
    return np.linspace(LOW, HIGH, count)


def points(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The places x and y of a square of `count` by `count` policies, x varying first, and then of those that lie
    half-way between its policies on the line from a to b."""
    x, y = np.meshgrid(places(count), places(count))
    between = (places(count)[1:] + places(count)[:-1]) / 2
    return np.concatenate([x.ravel(), between]), np.concatenate([y.ravel(), np.zeros_like(between)])


def on_line(count: int) -> np.ndarray:
    """Which of the points lie on the line from a to b, in their order."""
    x, y = points(count)
    line = np.flatnonzero(y == 0)
    return line[np.argsort(x[line])]


def require_corners(corners: tuple[int, ...], actors: int) -> None:
    """Refuses actors that do not exist, or that do not span a plane."""
    if actors < 3:
        raise UsageError(f"a slice needs three actors, this agent has {actors}; train with --members 3 or more")
    if len(corners) != 3 or len(set(corners)) != 3:
        raise UsageError("--actors needs the numbers of three different actors, such as 0 1 2")
    if outside := [corner for corner in corners if not 0 <= corner < actors]:
        raise UsageError(f"--actors names actor {outside[0]}; this agent has actors 0 to {actors - 1}")


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
        alone = dataclasses.replace(agent.config, seed=agent.seed, seeds=1, on_fault="stop")
        self._evaluator = Evaluator(alone, episodes)

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
        of_seed = jax.tree.map(lambda leaf: leaf[None], (policies, self.agent.normalizer))
        played = self._evaluator.play(*of_seed, f"inspection {number}", starts=1)
        return Returns(played.returns[0], played.discounted[0], played.first[0, 0], int(played.lengths.max()))

    def close(self) -> None:
        """Closes the environments."""
        self._evaluator.close()


CHUNK = 8
"""Policies that are valued in one piece: the paper's encoders need 10 MB for each."""


def values(
    agent: TrainedAgent, policies: Any, obs: Float[np.ndarray, "states obs"]
) -> Float[np.ndarray, "critics policies"]:
    """The mean over states of Q_i(pi, s, pi(s)), for a stack of policies."""
    count, parts = ensembles.size(policies), []
    for start in range(0, count, CHUNK):
        index = np.minimum(np.arange(start, start + CHUNK), count - 1)
        parts.append(np.asarray(_values(agent.critics, agent.sight, ensembles.member(policies, index), obs)))
    return np.concatenate(parts, axis=1)[:, :count]


@eqx.filter_jit
def _values(
    critics: FunctionalCritic, sight: Sight, policies: Any, obs: Float[Array, "states obs"]
) -> Float[Array, "critics policies"]:
    one = lambda policy: valuation.values(critics, sight, policy, obs).mean(axis=1)
    return vmap(one, out_axes=1)(policies)


def codes(agent: TrainedAgent, policies: Any, normalizer: Any) -> Float[np.ndarray, "critics actors code"]:
    """The code of every actor by every critic's encoder, of actors that see through this normaliser."""
    own = Sight(agent.critic_normalizer, normalizer) if agent.config.normalize else Sight(None)
    return np.asarray(_codes(agent.critics, own, policies))


@eqx.filter_jit
def _codes(critics: FunctionalCritic, sight: Sight, policies: Any) -> Float[Array, "critics actors code"]:
    return encode_all(critics, vmap(sight.view)(policies))


def sensitivity(
    agent: TrainedAgent, policies: Any, obs: Float[np.ndarray, "states obs"]
) -> Float[np.ndarray, "critics probes"]:
    """How much values move with each probe state: the length of the gradient in it of the mean over states of
    Q_i(pi, s, pi(s)), averaged over the actors."""
    return np.asarray(_sensitivity(agent.critics, agent.sight, policies, obs))


@eqx.filter_jit
def _sensitivity(
    critics: Any, sight: Sight, policies: Any, obs: Float[Array, "states obs"]
) -> Float[Array, "critics probes"]:
    shared = critics.encoder.config.shared
    count = ensembles.size(critics.head)

    def value(probes: Float[Array, "probes obs"], encoder: Any, head: Any, policy: Any) -> Float[Array, ""]:
        encoder = eqx.tree_at(lambda each: each.probes, encoder, probes)
        critic, seen = FunctionalCritic(encoder, head), sight(obs)
        code = critic.encode(sight.view(policy))
        return vmap(lambda o: critic.value(code, o, sight.view(policy)(o)))(seen).mean()

    def of_critic(index: Array) -> Float[Array, " probes"]:
        head = ensembles.member(critics.head, index)
        encoder = critics.encoder if shared else ensembles.member(critics.encoder, index)
        slope = lambda policy: jax.grad(value)(encoder.probes, encoder, head, policy)
        return jnp.linalg.norm(jax.lax.map(slope, policies), axis=-1).mean(axis=0)

    return jax.lax.map(of_critic, jnp.arange(count))


def probes(agent: TrainedAgent) -> Float[np.ndarray, "critics probes obs"]:
    """The probe states of every critic, in the units of the task."""
    critics: Any = agent.critics
    found, count = critics.encoder.probes, ensembles.size(critics.head)
    stacked = jnp.broadcast_to(found, (count, *found.shape[-2:]))
    return np.asarray(agent.critic_normalizer.undo(stacked) if agent.config.normalize else stacked)
