"""What a checkpoint of a training holds, and how a training is put back from it."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fcritic import checkpoint
from fcritic.config import TrainConfig
from fcritic.envs import EnvState, task_spec
from fcritic.errors import CheckpointError
from fcritic.learning import Learning, TrainState
from fcritic.replay import Normalizer
from fcritic.replay import unpack as unpack_rows
from fcritic.trees import flatten, unflatten
from fcritic.types import EnvSpec, Transition

Groups = dict[str, dict[str, np.ndarray]]


@dataclasses.dataclass
class Progress:
    """Where a training stands: everything that is not on the device and not in an environment."""

    iteration: int = 0
    log_position: int = 0


def learning_of(config: TrainConfig, spec: EnvSpec) -> Learning:
    """The device programs for a config."""
    return Learning(config.agent, spec, config.envs, config.replay, config.normalize, config.recency)


def pack(state: TrainState, memory: Any, pending: Transition | None, environments: EnvState) -> Groups:
    """Named arrays of a whole training. Only the filled part of the replay is kept.

    `pending` is the step that the environments have taken but the device has not stored yet.
    """
    filled = min(int(state.replay.written), state.replay.capacity)
    rows = np.asarray(state.replay.rows[:, :filled])
    learned = eqx.tree_at(lambda s: s.replay, state, None)
    return {
        "agent": flatten(learned),
        "replay": flatten({"rows": rows, "written": state.replay.written}),
        "rollout": flatten({"memory": memory} | ({} if pending is None else {"pending": pending})),
        "environments": dict(environments),
    }


def unpack(
    learning: Learning, seeds: list[int], groups: Groups
) -> tuple[TrainState, Any, Transition | None, EnvState]:
    """The reverse of `pack`; names, shapes and types are verified against what the config makes."""
    state = learning.start(seeds)
    memory = learning.begin(state)
    learned = unflatten(eqx.tree_at(lambda s: s.replay, state, None), groups["agent"])
    filled = _filled(groups["replay"])
    if filled > learning.capacity:
        raise CheckpointError("the saved replay is larger than this run's; change --replay back")
    empty = state.replay.rows
    saved = jax.ShapeDtypeStruct((empty.shape[0], filled, *empty.shape[2:]), empty.dtype)
    parts = unflatten({"rows": saved, "written": state.replay.written}, groups["replay"])
    rows = empty.at[:, :filled].set(parts["rows"])
    ring = eqx.tree_at(lambda r: (r.rows, r.written), state.replay, (rows, parts["written"]))
    rollout: dict[str, Any] = {"memory": memory}
    if any(name.startswith("pending") for name in groups["rollout"]):
        rollout["pending"] = jax.tree.map(np.asarray, unpack_rows(empty[:, 0], learning.spec))
    rollout = unflatten(rollout, groups["rollout"])
    state = eqx.tree_at(lambda s: s.replay, learned, ring, is_leaf=lambda leaf: leaf is None)
    return state, rollout["memory"], rollout.get("pending"), groups["environments"]


def load_policies(config: TrainConfig, directory: Path) -> tuple[Any, Normalizer, dict[str, Any]]:
    """The evaluation policies (seeds, actors, ...) of a checkpoint, its normaliser and its facts."""
    groups, facts = checkpoint.load(directory, ["agent"])
    learning = learning_of(config, task_spec(config.task))
    shapes = jax.eval_shape(lambda: learning.start(config.seed_numbers))
    state = unflatten(eqx.tree_at(lambda s: s.replay, shapes, None), groups["agent"])
    policies = jax.vmap(config.agent.evaluation_policies)(state.agent)
    return policies, state.normalizer, facts


def _filled(replay: dict[str, np.ndarray]) -> int:
    rows = replay.get("rows")
    if rows is None or rows.ndim != 4:
        raise CheckpointError("the saved replay has no rows; use an earlier checkpoint")
    return rows.shape[1]


def clear_tally(state: TrainState) -> TrainState:
    """The same state, whose metrics begin to be summed anew."""
    zeros = jax.tree.map(jnp.zeros_like, (state.tally, state.tallied))
    return eqx.tree_at(lambda s: (s.tally, s.tallied), state, zeros)
