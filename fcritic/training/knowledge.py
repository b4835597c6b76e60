"""What critics know of policies: their values of some that they may never have met, beside what these reach.

Twice: as critics say them, and corrected by what the replay says of each policy in the critics' features
(`fcritic.agents.bellman`).
A few rollouts beside an evaluation, in environments that training never sees: they belong to no budget of it.
"""

from functools import partial
from typing import Any

import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32
import numpy as np

from fcritic import ensembles, randomness
from fcritic.agents.base import net
from fcritic.agents.bellman import BellmanEquation, corrections
from fcritic.config import TrainConfig
from fcritic.envs import Fault
from fcritic.logs.metrics import CORRECTED, SIGNS
from fcritic.training.device import SEED_AXES, Learning, TrainState, looked_at
from fcritic.training.evaluate import Evaluator
from fcritic.training.sight import Sight

ROWS = 4096
"""Of the replay, by which values are corrected."""

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
        count, seeds = self._config.knowledge, len(state.keys)
        if not count or not bool(learning.agent.has_past(jax.tree.map(lambda leaf: leaf[0], state.agent))):
            return []
        salt = np.uint32(frame % 2**31)
        asked = _asked(learning, count, state, salt)
        if seeds > 1:
            asked["others"] = _others(learning, count, state)
        rows: list[dict[str, Any]] = [{} for _ in range(seeds)]
        for kind in asked:
            played = self._evaluator.play(asked[kind], state.normalizer, f"knowledge {kind} {frame}")
            predicted = np.asarray(_predicted(learning, state, asked[kind], played.first), float)
            corrected = predicted + correction(learning, state, asked[kind], played.first[:, :, None], salt)
            different = _others_of(learning, state) if kind == "others" else count
            for row, *each in zip(rows, predicted, corrected, played.discounted, strict=True):
                row |= _told(kind, *(values[:different] for values in each))
        return rows

    def take_faults(self) -> list[Fault]:
        """The faults that were skipped since the last call."""
        return self._evaluator.take_faults()

    def close(self) -> None:
        """Closes the environments."""
        self._evaluator.close()


def _told(
    kind: str,
    predicted: Float[np.ndarray, " policies"],
    corrected: Float[np.ndarray, " policies"],
    measured: Float[np.ndarray, " policies"],
) -> dict[str, Any]:
    told: dict[str, Any] = {f"measured_{kind}": measured.tolist()}
    for after, values in (("", predicted), (CORRECTED, corrected)):
        found = agreement(values, measured)
        told |= {f"{name}_{kind}{after}": found[name] for name in SIGNS}
        told[f"predicted_{kind}{after}"] = values.tolist()
    return told


def correction(
    learning: Learning,
    state: TrainState,
    policies: Any,
    obs: Float[np.ndarray, "seeds policies starts obs"],
    salt: UInt32[Array, ""] | np.uint32,
) -> Float[np.ndarray, "seeds policies"]:
    """How the critics' mean value of each policy at these states changes by what the replay says of it."""
    found = _equations(learning, state, policies, jnp.asarray(obs, jnp.float32), salt)
    return corrections(jax.device_get(found)).mean(axis=-1)


@partial(jax.jit, static_argnums=0)
def _equations(
    learning: Learning,
    state: TrainState,
    policies: Any,
    obs: Float[Array, "seeds policies starts obs"],
    salt: UInt32[Array, ""],
) -> BellmanEquation:
    def one_seed(state: TrainState, policies: Any, obs: Array) -> BellmanEquation:
        key = jax.random.fold_in(randomness.wrap(state.keys), salt + jnp.uint32(_STREAM))
        logged, _ = looked_at(learning, state.replay, state.normalizer, ROWS, key)
        obs = state.normalizer(obs) if learning.normalize else obs
        return learning.agent.equations(state.agent, policies, obs, logged)

    return vmap(one_seed, in_axes=(SEED_AXES, 0, 0))(state, policies, obs)


@partial(jax.jit, static_argnums=(0, 1))
def _asked(learning: Learning, count: int, state: TrainState, salt: UInt32[Array, ""]) -> dict[str, Any]:
    def one_seed(state: TrainState) -> Any:
        key = jax.random.fold_in(randomness.wrap(state.keys), salt + jnp.uint32(_STREAM))
        return learning.agent.asked(state.agent, count, key)

    return vmap(one_seed, in_axes=(SEED_AXES,))(state)


def _others_of(learning: Learning, state: TrainState) -> int:
    """How many actors all the other seeds have."""
    actors = jax.eval_shape(vmap(learning.agent.evaluation_policies), state.agent)
    return (len(state.keys) - 1) * jax.tree.leaves(actors)[0].shape[1]


@partial(jax.jit, static_argnums=(0, 1))
def _others(learning: Learning, count: int, state: TrainState) -> Any:
    """For each seed `count` actors of the others, evenly spread over them, or all in turn where they are few.

    They learned under normalisers of their own and go on to see through these.
    """
    actors = net(vmap(learning.agent.evaluation_policies)(state.agent))
    seeds, members = jax.tree.leaves(actors)[0].shape[:2]
    few = (seeds - 1) * members
    places = np.arange(count) * max(few, count) // count % few
    whose = (np.arange(seeds)[:, None] + 1 + places // members) % seeds
    policies = jax.tree.map(lambda leaf: leaf[whose, places % members], actors)
    if not learning.normalize:
        return policies
    own = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], count, axis=1), state.normalizer)
    theirs = ensembles.member(state.normalizer, whose)
    return vmap(vmap(lambda policy, *seen: Sight(*seen).view(policy)))(policies, own, theirs)


@partial(jax.jit, static_argnums=0)
def _predicted(
    learning: Learning, state: TrainState, policies: Any, obs: Float[Array, "seeds policies obs"]
) -> Float[Array, "seeds policies"]:
    def one_seed(state: TrainState, policies: Any, obs: Array) -> Array:
        return learning.agent.predicted(state.agent, policies, state.normalizer(obs) if learning.normalize else obs)

    return vmap(one_seed, in_axes=(SEED_AXES, 0, 0))(state, policies, obs)
