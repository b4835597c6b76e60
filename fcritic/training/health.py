"""Checks that stop a diverged training (NaN or infinite numbers, exploding values) or refuse a bad checkpoint."""

from collections.abc import Mapping
from functools import partial
import re
from typing import Any

import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
import numpy as np

from fcritic.config import TrainConfig
from fcritic.disk import require_memory
from fcritic.errors import CheckpointError, Diverged, UsageError
from fcritic.training.device import TrainState
from fcritic.training.replay import width_of
from fcritic.types import EnvSpec, Metrics

BOUND = 1 + 1e-6
"""The largest action, with room for the rounding of a tanh."""

MOST_WEIGHT = 1e6
"""Of a network: four layers of such weights still stay below the largest single-precision number."""

MOST_SEEN = 1e18
"""Of an observation or a reward; its square is a single-precision number."""

Arrays = Mapping[str, np.ndarray]


def require_room(config: TrainConfig, spec: EnvSpec) -> None:
    """Refuses a replay that the memory of this machine cannot hold; a GPU reports that itself."""
    if jax.default_backend() == "cpu":
        size = 4 * width_of(spec) * config.replay * config.envs * config.seeds
        require_memory(size, f"a replay of {config.replay:,} steps x {config.envs} x {config.seeds} (--replay)")


def require_sane_parameters(state: TrainState, config: TrainConfig, frame: int) -> None:
    """Raises `Diverged` if a seed has a parameter, target, optimiser state or metric that is NaN or infinite."""
    sick = np.flatnonzero(~np.asarray(_all_finite((state.agent, state.normalizer, state.tally))))
    if sick.size:
        raise diverged(config, sick[0], frame, "a parameter is NaN or infinite")


def require_sane_metrics(means: Metrics, state: TrainState, spec: EnvSpec, config: TrainConfig, frame: int) -> None:
    """Raises `Diverged` if a mean since the last look is NaN or infinite, or the values have exploded."""
    for name, values in means.items():
        sick = np.flatnonzero(~np.isfinite(values))
        if sick.size:
            raise diverged(config, sick[0], frame, f"{name} is {values[sick[0]]}")
    values = means.get("critic_value")
    if values is None or not config.value_limit:
        return
    limits = config.value_limit * np.asarray(_possible_value(state.replay.rows, spec, config.agent.discount))
    sick = np.flatnonzero(np.abs(values) > limits)
    if sick.size:
        what = f"its mean value {values[sick[0]]:.3g} is beyond {limits[sick[0]]:.3g} (--value-limit)"
        raise diverged(config, sick[0], frame, what)


def sane_actions(
    actions: Float[Array | np.ndarray, "seeds envs act"], config: TrainConfig, frame: int
) -> Float[np.ndarray, "seeds envs act"]:
    """The actions on the host; raises `Diverged` if some are NaN and `UsageError` if some are beyond the bounds."""
    actions = np.asarray(actions)
    within = np.abs(actions) <= BOUND  # False for NaN
    if not within.all():
        sick = int(np.flatnonzero(~within.all(axis=(1, 2)))[0])
        wrong = actions[sick][~within[sick]][0]
        if np.isfinite(wrong):
            kind = type(config.agent).__name__
            raise UsageError(f"{kind}.act returned the action {wrong:g}; clip its actions to [-1, 1]")
        raise diverged(config, sick, frame, f"an action is {wrong}")
    return actions


def diverged(config: TrainConfig, seed_index: int, frame: int, what: str) -> Diverged:
    """The error, which names the seed, the frame and the field."""
    seed = config.seed + int(seed_index)
    return Diverged(f"seed {seed} diverged by frame {frame:,}: {what}; lower --learning-rate")


@jax.jit
def _all_finite(tree: object) -> Bool[Array, " seeds"]:
    """For every seed, whether all its floating-point numbers are finite."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    each = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1) for leaf in floats]
    return jnp.stack(each).all(axis=0)


@partial(jax.jit, static_argnums=(1, 2))
def _possible_value(
    rows: Float[Array, "seeds capacity envs width"], spec: EnvSpec, discount: float
) -> Float[Array, " seeds"]:
    """The value of receiving the largest reward in the replay for ever, max |r| / (1 - gamma).

    At least that of a reward of 1, since rewards may be rare and not found yet.
    """
    largest = vmap(lambda own: jnp.abs(own[..., spec.obs_dim + spec.act_dim]).max())(rows)
    return jnp.maximum(largest, 1.0) / (1 - discount)


_FIELDS = ("obs", "act", "reward", "discount", "next_obs")
_RANGES = {"act": (-BOUND, BOUND), "discount": (0.0, 1.0)}


def require_sound(
    groups: Mapping[str, Arrays],
    rows: Float[np.ndarray, "steps seeds envs width"],
    written: int,
    iteration: int,
    prefilled: int,
    config: TrainConfig,
    spec: EnvSpec,
) -> None:
    """Raises `CheckpointError` where a checkpoint holds numbers that no training of this config could have saved.

    Names, shapes and types of the first three groups have been verified before.
    """
    agent, best, rollout = groups["agent"], groups["best"], groups["rollout"]
    require_sound_agent(agent, iteration if config.begin_from is None else None)
    require_finite({name: array for name, array in best.items() if name != "score"})
    _require("best/score", np.maximum(best["score"], -1.0))  # minus infinity before the first evaluation
    _require("best/frame", best["frame"], 0, iteration * config.frames_per_iteration)
    last_actor = getattr(config.agent, "collectors", 1) - 1
    for name, array in rollout.items():
        is_actor = name.startswith("memory") and array.dtype.kind == "i"
        _require(name, array, *((0, last_actor) if is_actor else _RANGES.get(name.removeprefix("pending/"), ())))
    if written + ("pending/obs" in rollout) != iteration + prefilled:
        raise _unsound(f"its replay has {written:,} steps after {iteration:,} iterations")
    ends = np.cumsum([spec.obs_dim, spec.act_dim, 1, 1]).tolist()
    for field, part in zip(_FIELDS, np.split(rows, ends, axis=-1), strict=True):
        _require(f"replay/{field}", part, *_RANGES.get(field, (-MOST_SEEN, MOST_SEEN)))
    _require_sound_environments(groups["environments"], iteration, config, spec)


def require_sound_agent(agent: Arrays, most_updates: int | None = None) -> None:
    """The same for what agents have learned alone, after at most so many updates of the normaliser."""
    for name, array in agent.items():
        counted = "opt_state" in name and (array.dtype.kind == "i" or "/nu" in name)  # updates, means of squares
        _require(name, array, low=0 if counted else None)
        if "opt_state" not in name and re.match("agent/(.*/params/|target)", name):
            _require(name, array, -MOST_WEIGHT, MOST_WEIGHT)
    _require("normalizer/mean", agent["normalizer/mean"], -MOST_SEEN, MOST_SEEN)
    _require("normalizer/variance", agent["normalizer/variance"], 0, MOST_SEEN**2)
    _require("normalizer/updates", agent["normalizer/updates"], 0, most_updates)
    _require("tallied", agent["tallied"], low=0)


def _require_sound_environments(arrays: Arrays, iteration: int, config: TrainConfig, spec: EnvSpec) -> None:
    each = (config.seeds, config.envs)
    ranges = {"steps": (iteration, iteration), "length": (0, iteration), "faults": (0,), "seeds": (0,)}
    shapes = {"steps": (), "obs": (*each, spec.obs_dim)}
    kinds = {"obs": "f", "total_reward": "f", "fresh": "b"}
    for name in ("steps", "obs", "fresh", "total_reward", "length", "faults", "seeds"):
        found = arrays.get(name)
        if found is None or found.shape != shapes.get(name, each) or found.dtype.kind != kinds.get(name, "i"):
            raise _unsound(f"environments/{name} is missing, or of another type or shape")
        _require(f"environments/{name}", found, *ranges.get(name, ()))
    # The rest of an environment's state is its own and may hold anything.
    require_finite({name: array for name, array in arrays.items() if name.endswith("physics")})


def require_finite(arrays: Arrays) -> None:
    """Raises `CheckpointError` if an array holds NaN or infinities."""
    for name, array in arrays.items():
        _require(name, array)


def require_acting(policies: Any) -> None:
    """Refuses policies with weights beyond what learning reaches: after a few layers their actions are NaN."""
    for leaf in jax.tree.leaves(policies):
        if leaf.size and (most := float(np.abs(np.asarray(leaf, np.float32)).max())) > MOST_WEIGHT:
            raise _unsound(f"an actor has a weight of {most:g}")


def _require(name: str, array: np.ndarray, low: float | None = None, high: float | None = None) -> None:
    """Refuses an array with NaN, infinities or numbers out of range; extremes are NaN where a number is."""
    if array.size == 0 or array.dtype.kind not in "fi":
        return
    least, most = array.min(), array.max()
    if not (np.isfinite(least) and np.isfinite(most)):
        raise _unsound(f"{name} holds NaN or infinities")
    if (low is not None and least < low) or (high is not None and most > high):
        bounds = f"at least {low:g}" if high is None else f"{low:g} to {high:g}"
        raise _unsound(f"{name} holds {least if low is not None and least < low else most:g}, not {bounds}")


def _unsound(what: str) -> CheckpointError:
    return CheckpointError(f"{what}: the file is damaged or of another program; take an earlier checkpoint")
