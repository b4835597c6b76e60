"""What critics know of policies: their values of past actors and mixtures, beside what these reach when they run.

A few rollouts beside an evaluation, in environments that training never sees: they belong to no budget of it.
"""

from functools import partial
from typing import Any

import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32
import numpy as np

from fcritic import randomness
from fcritic.config import TrainConfig
from fcritic.envs import Fault
from fcritic.training.device import SEED_AXES, Learning, TrainState
from fcritic.training.evaluate import Evaluator, Played

KINDS = ("past", "mixtures")
"""Actors that the bank holds, and mixtures of two of all."""

_STREAM = 2**31 + 2**30  # far from the iterations, and from the states on which behaviour is compared


def ranks(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The place of each number in the order of all, from 1; equal ones share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def correlation(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float | None:
    """Pearson's; none where one of them does not vary."""
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size > 0 else None


def rank_correlation(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float | None:
    """Spearman's: the correlation of the ranks. 1 means the same order, 0 none in common."""
    return correlation(ranks(a), ranks(b))


def agreement(predicted: Float[np.ndarray, " n"], measured: Float[np.ndarray, " n"]) -> dict[str, Any]:
    """Order (`rank`, `correlation`) and size: `bias`, `error` (root mean square) and the `slope` of the line
    that best tells measured from predicted; a calibrated critic has slope 1 and bias 0."""
    off, spread = predicted - measured, predicted - predicted.mean()
    slope = float(spread @ measured / (spread @ spread)) if spread @ spread > 0 else None
    return {
        "rank": rank_correlation(predicted, measured),
        "correlation": correlation(predicted, measured),
        "bias": float(off.mean()),
        "error": float(np.sqrt((off**2).mean())),
        "slope": slope,
    }


class Examiner:
    """Asks the critics of a training what they know; its environments are kept between the times."""

    def __init__(self, config: TrainConfig):
        self._config, self._evaluator = config, Evaluator(config, 1)

    def examine(self, learning: Learning, state: TrainState, frame: int) -> list[dict[str, Any]]:
        """A row for each seed; none while the bank is empty."""
        count = self._config.knowledge
        if not count or not bool(learning.agent.has_past(jax.tree.map(lambda leaf: leaf[0], state.agent))):
            return []
        policies = _policies(learning, count, state, np.uint32(frame % 2**31))
        played = self._evaluator.play(policies, state.normalizer, f"knowledge {frame}")
        predicted = np.asarray(_predicted(learning, state, policies, played.first), float)
        return [_row(predicted[seed], played, seed, count) for seed in range(len(predicted))]

    def take_faults(self) -> list[Fault]:
        """The faults that were skipped since the last call."""
        return self._evaluator.take_faults()

    def close(self) -> None:
        """Closes the environments."""
        self._evaluator.close()


def _row(predicted: Float[np.ndarray, " policies"], played: Played, seed: int, count: int) -> dict[str, Any]:
    measured, row = played.discounted[seed], {}
    for kind, part in zip(KINDS, (slice(0, count), slice(count, None)), strict=True):
        if len(predicted[part]):
            found = agreement(predicted[part], measured[part])
            row |= {f"{name}_{kind}": found[name] for name in ("rank", "slope", "error")}
    return row | {"predicted": predicted.tolist(), "measured": measured.tolist()}


@partial(jax.jit, static_argnums=(0, 1))
def _policies(learning: Learning, count: int, state: TrainState, salt: UInt32[Array, ""]) -> Any:
    def one_seed(state: TrainState) -> Any:
        key = jax.random.fold_in(randomness.wrap(state.keys), salt + jnp.uint32(_STREAM))
        return learning.agent.past(state.agent, count, key)

    return vmap(one_seed, in_axes=(SEED_AXES,))(state)


@partial(jax.jit, static_argnums=0)
def _predicted(
    learning: Learning, state: TrainState, policies: Any, obs: Float[Array, "seeds policies obs"]
) -> Float[Array, "seeds policies"]:
    def one_seed(state: TrainState, policies: Any, obs: Array) -> Array:
        return learning.agent.predicted(state.agent, policies, state.normalizer(obs) if learning.normalize else obs)

    return vmap(one_seed, in_axes=(SEED_AXES, 0, 0))(state, policies, obs)
