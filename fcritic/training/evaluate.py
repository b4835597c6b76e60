"""Evaluation: every actor, on environments that training never saw, without exploration; the best policies."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax import vmap
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from fcritic import envs
from fcritic.agents.base import AbstractAgent
from fcritic.config import TrainConfig
from fcritic.envs.base import EPISODE_LIMIT
from fcritic.errors import UsageError
from fcritic.training.device import TrainState
from fcritic.training.replay import Normalizer


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns of one seed's actors, and how long and how successful their episodes were."""

    returns: Float[np.ndarray, "actors episodes"]
    lengths: Float[np.ndarray, "actors episodes"] | None = None
    """In actions."""
    successes: Float[np.ndarray, "actors episodes"] | None = None
    """NaN where the task does not report it."""

    @property
    def actors(self) -> Float[np.ndarray, " actors"]:
        """The mean return of each actor."""
        return self.returns.mean(axis=1)

    @property
    def mean_actor(self) -> float:
        """The expected return of a randomly drawn actor: the headline figure."""
        return float(self.actors.mean())

    @property
    def best_actor(self) -> float:
        """The highest of the actors' means. With few episodes it flatters: it picks among noisy numbers."""
        return float(self.actors.max())

    @property
    def spread(self) -> float:
        """Deviation between actors."""
        return float(self.actors.std())

    def to_json(self) -> dict[str, Any]:
        """The numbers under the names that logs and reports use."""
        return {
            "mean_actor": self.mean_actor,
            "best_actor": self.best_actor,
            "best_actor_index": int(self.actors.argmax()),
            "actor_spread": self.spread,
            "actors": self.actors.tolist(),
            "episodes_per_actor": self.returns.shape[1],
        } | self._episodes()

    def _episodes(self) -> dict[str, Any]:
        """The mean length of an episode, and the share of successful ones: over all actors, and by actor."""
        told = {}
        if self.lengths is not None:
            told |= {"length": float(self.lengths.mean()), "lengths": self.lengths.mean(axis=1).tolist()}
        if self.successes is not None and not np.isnan(self.successes).any():
            told |= {"success": float(self.successes.mean()), "successes": self.successes.mean(axis=1).tolist()}
        return told


class Played(NamedTuple):
    """One episode of every actor of every seed."""

    returns: Float[np.ndarray, "seeds actors"]
    """The sums of rewards."""
    discounted: Float[np.ndarray, "seeds actors"]
    """The sums of gamma^t r_t, which is what a critic values."""
    first: Float[np.ndarray, "seeds actors obs"]
    """The first observations."""
    lengths: Float[np.ndarray, "seeds actors"]
    """In actions."""
    successes: Float[np.ndarray, "seeds actors"]
    """NaN where the task does not report it."""
    path: "Path | None" = None
    """All of it, where that was asked for."""


class Path(NamedTuple):
    """The observations and rewards of an episode, step by step; after its end others follow, with reward 0."""

    obs: Float[np.ndarray, "steps seeds actors obs"]
    reward: Float[np.ndarray, "steps seeds actors"]
    ended: Bool[np.ndarray, "seeds actors"]
    """Whether the task was over, not just its time."""


class Evaluator:
    """Environments for evaluation, kept between evaluations because building them takes long."""

    def __init__(self, config: TrainConfig, episodes: int):
        self._config, self._episodes = config, episodes
        self._vector: envs.VectorEnv | None = None

    def evaluate(self, policies: Any, normalizer: Normalizer, salt: str) -> list[Evaluation]:
        """Runs every actor of every seed side by side, one episode after the other.

        `policies` have leading axes (seeds, actors). Another `salt` means other start states; the same salt
        gives the same numbers again, whatever was evaluated before.
        """
        played = [self.play(policies, normalizer, f"evaluation {salt} {i}") for i in range(self._episodes)]
        parts = ([getattr(each, name) for each in played] for name in ("returns", "lengths", "successes"))
        return [Evaluation(*seed) for seed in zip(*(np.stack(part, axis=-1) for part in parts), strict=True)]

    def play(
        self, policies: Any, normalizer: Normalizer, salt: str, path: bool = False, starts: int = 0
    ) -> "Played":
        """One episode of every actor; with its `path` if that is asked for.

        With `starts` there are so many start states, which policies have in turn.
        """
        vector = self._fresh_environments(jax.tree.leaves(policies)[0].shape[1], salt, starts)
        first, discount = np.array(vector.obs), self._config.agent.discount
        returns, discounted, weight = np.full(vector.shape, np.nan), np.zeros(vector.shape), np.ones(vector.shape)
        lengths, successes = np.full(vector.shape, np.nan), np.full(vector.shape, np.nan)
        met: list[np.ndarray] = []
        rewards: list[np.ndarray] = []
        ended = np.zeros(vector.shape, bool)
        while np.isnan(returns).any():
            if vector.steps == EPISODE_LIMIT:
                raise UsageError(
                    f"the episodes of {self._config.task} do not end within {EPISODE_LIMIT:,} actions; "
                    "give the task a time limit (max_episode_steps in Gymnasium)"
                )
            actions = _actions(policies, normalizer, vector.obs, self._config.normalize)
            alive = np.isnan(returns)
            if path:
                met.append(np.array(vector.obs))
            step, episodes = vector.step(np.asarray(actions))
            discounted += np.where(alive, weight * step.reward, 0.0)
            if path:
                rewards.append(np.where(alive, step.reward, 0.0))
                ended |= alive & (step.discount == 0)
            weight *= discount
            for episode in episodes:
                place = (episode.seed_index, episode.env_index)
                if np.isnan(returns[place]):  # only the first episode of each environment counts
                    returns[place], lengths[place] = episode.total_reward, episode.length_in_steps
                    successes[place] = np.nan if episode.success is None else episode.success
        steps = Path(np.stack(met), np.stack(rewards), ended) if path else None
        return Played(returns, discounted, first, lengths, successes, steps)

    def _fresh_environments(self, actors: int, salt: str, starts: int) -> envs.VectorEnv:
        config = self._config
        new = self._vector is None
        if self._vector is None:
            self._vector = envs.make_vector(config.task, envs=actors, salt=salt, **config.env_options)
        if starts:
            few = envs.copy_seeds(config.seed_numbers, starts, salt)
            self._vector.restart([[row[column % starts] for column in range(actors)] for row in few])
        elif not new:
            self._vector.restart(envs.copy_seeds(config.seed_numbers, actors, salt))
        return self._vector

    def take_faults(self) -> list[envs.Fault]:
        """The faults that were skipped since the last call."""
        return [] if self._vector is None else self._vector.take_faults()

    def close(self) -> None:
        """Closes the environments."""
        if self._vector is not None:
            self._vector.close()


@partial(jax.jit, static_argnums=3)
def _actions(
    policies: Any, normalizer: Normalizer, obs: Float[Array, "seeds actors obs"], normalize: bool
) -> Float[Array, "seeds actors act"]:
    def one_seed(policies: Any, normalizer: Normalizer, obs: Float[Array, "actors obs"]) -> Array:
        return vmap(lambda policy, seen: policy(seen))(policies, normalizer(obs) if normalize else obs)

    return vmap(one_seed)(policies, normalizer, obs)


class Best(eqx.Module):
    """Policies (seeds, actors, ...) with what runs them, as NumPy arrays: the device may forget them."""

    policies: Any
    normalizer: Normalizer
    score: Float[Array, " seeds"]
    """The mean actor's return in that evaluation; minus infinity before the first."""
    frame: Int[Array, " seeds"]
    """When that was."""

    @staticmethod
    def none(agent: AbstractAgent, state: TrainState) -> "Best":
        """Before the first evaluation: the untrained policies."""
        return Best(*_on_host(_kept(agent, state)), *_scores(state))

    @staticmethod
    def like(agent: AbstractAgent, state: TrainState) -> "Best":
        """Shapes and types, from a state's shapes and types."""
        return jax.eval_shape(lambda s: Best(*_kept(agent, s), *_scores(s)), state)

    def improved(self, policies: Any, normalizer: Normalizer, scores: np.ndarray, frame: int) -> "Best":
        """The same, but with these policies for every seed whose score is higher than before."""
        better = np.asarray(scores, np.float32) > self.score
        choose = lambda new, old: np.where(better.reshape(-1, *[1] * (old.ndim - 1)), new, old)
        kept = jax.tree.map(choose, _on_host((policies, normalizer)), (self.policies, self.normalizer))
        return Best(*kept, choose(np.asarray(scores, np.float32), self.score), choose(np.int32(frame), self.frame))

    def to_json(self) -> dict[str, list]:
        """Score and frame of every seed."""
        return {"score": np.asarray(self.score).tolist(), "frame": np.asarray(self.frame).tolist()}


def _kept(agent: AbstractAgent, state: TrainState) -> tuple[Any, Normalizer]:
    return jax.vmap(agent.evaluation_policies)(state.agent), state.normalizer


def _scores(state: TrainState) -> tuple[np.ndarray, np.ndarray]:
    seeds = state.keys.shape[0]
    return np.full(seeds, -np.inf, np.float32), np.zeros(seeds, np.int32)


def _on_host(tree: Any) -> Any:
    """Copies that training cannot overwrite: it gives its buffers back to the device."""
    return jax.tree.map(lambda leaf: np.array(leaf), tree)
