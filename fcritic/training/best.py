"""The best policies so far: of every seed, those of its highest evaluation."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int
import numpy as np

from fcritic.agents.base import AbstractAgent
from fcritic.training.replay import Normalizer
from fcritic.training.train_state import TrainState


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
