"""What a checkpoint of a training holds, and how a training is put back from it."""

from collections.abc import Mapping
import dataclasses
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from fcritic import randomness
from fcritic.config import TrainConfig
from fcritic.disk import Place
from fcritic.envs import EnvState, VectorEnv, task_spec
from fcritic.errors import CheckpointError, UsageError
from fcritic.runs import checkpoint
from fcritic.runs.trees import flatten, unflatten
from fcritic.training.device import Learning, TrainState
from fcritic.training.evaluate import Best
from fcritic.training.health import require_finite
from fcritic.training.replay import Normalizer
from fcritic.training.replay import unpack as unpack_rows
from fcritic.types import EnvSpec, Transition

_BLOCK = 1024
"""Steps that leave the device in one piece: one program serves every amount."""


@dataclasses.dataclass
class Progress:
    """Where a training stands: the counters that are not on the device and not in an environment."""

    iteration: int = 0
    log_position: int = 0
    """Bytes of metrics.jsonl that belong to what was saved."""
    rollbacks: int = 0
    """How often the training went back to a checkpoint; each time with other random numbers."""

    @staticmethod
    def of(facts: Mapping[str, Any]) -> "Progress":
        """The counters that a checkpoint's facts hold."""
        counts = {field.name: facts.get(field.name) for field in dataclasses.fields(Progress)}
        if any(type(value) is not int or value < 0 for value in counts.values()):
            raise CheckpointError("the checkpoint does not say where the training stood; take an earlier one")
        return Progress(**counts)


class Snapshot(NamedTuple):
    """All of a training at one moment."""

    state: TrainState
    memory: Any
    pending: Transition | None
    """The step that the environments have taken but the device has not stored yet."""
    environments: EnvState
    best: Best
    progress: Progress

    @staticmethod
    def first(learning: Learning, seeds: list[int]) -> "Snapshot":
        """A training that has not begun; its environments are as they were built."""
        state = learning.start(seeds)
        best = Best.none(learning.agent, state)
        return Snapshot(state, learning.begin(len(seeds)), None, {}, best, Progress())


def learning_of(config: TrainConfig, spec: EnvSpec) -> Learning:
    """The device programs for a config."""
    return Learning(config.agent, spec, config.envs, config.replay, config.normalize, config.recency)


def pack(snapshot: Snapshot) -> dict[str, dict[str, np.ndarray]]:
    """Named arrays of a whole training but for the replay, which has files of its own."""
    pending = {} if snapshot.pending is None else {"pending": snapshot.pending}
    return {
        "agent": flatten(without_replay(snapshot.state)),
        "rollout": flatten({"memory": snapshot.memory} | pending),
        "environments": dict(snapshot.environments),
        "best": flatten(snapshot.best),
    }


def unpack_state(like: TrainState, agent: dict[str, np.ndarray], rows: np.ndarray, written: int) -> TrainState:
    """The state on the device; names, shapes and types are verified against `like`."""
    ring = eqx.tree_at(lambda r: (r.rows, r.written), like.replay, (jnp.array(rows), jnp.int32(written)))
    learned = unflatten(without_replay(like), agent)
    return eqx.tree_at(lambda s: s.replay, learned, ring, is_leaf=lambda leaf: leaf is None)


def unpack_rollout(
    learning: Learning, state: TrainState, arrays: dict[str, np.ndarray]
) -> tuple[Any, Transition | None]:
    """What the environments' episodes remember, and the step that waits to be stored."""
    rollout: dict[str, Any] = {"memory": learning.begin(len(state.keys))}
    if any(name.startswith("pending") for name in arrays):
        step = jax.eval_shape(lambda rows: unpack_rows(rows[:, 0], learning.spec), state.replay.rows)
        rollout["pending"] = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), step)
    rollout = unflatten(rollout, arrays)
    return rollout["memory"], rollout.get("pending")


def restore_environments(vector: VectorEnv, state: EnvState) -> int:
    """Puts environments back; how many could not tell their state and began a new episode instead."""
    try:
        return vector.restore(state)
    except UsageError:
        raise
    except Exception as error:  # arrays that another task saved, or a forger, may fail in any way in a simulator
        what = f"{type(error).__name__}: {error}"
        raise CheckpointError(
            f"the saved environments do not fit this task ({what:.200}); take an earlier one"
        ) from error


def load_policies(
    config: TrainConfig, directory: Place, best: bool = False, spec: EnvSpec | None = None
) -> tuple[Any, Normalizer, dict[str, Any]]:
    """The evaluation policies (seeds, actors, ...) of a checkpoint, its normaliser and its facts.

    With `best`, each seed's policies are those of its best evaluation up to the checkpoint. `spec` spares building
    the task to find out its sizes.
    """
    if best:
        like = Best.like(config.agent, _shapes_of(config, spec))
        groups, facts = checkpoint.load(directory, ["best"], {"best": like})
        require_finite({name: array for name, array in groups["best"].items() if name != "score"})
        found = unflatten(like, groups["best"])
        return found.policies, found.normalizer, _dated(config, facts) | {"best": found.to_json()}
    state, facts = load_state(config, directory, spec)
    return jax.vmap(config.agent.evaluation_policies)(state.agent), state.normalizer, facts


def load_state(
    config: TrainConfig, directory: Place, spec: EnvSpec | None = None
) -> tuple[TrainState, dict[str, Any]]:
    """All that a checkpoint's agents have learned (seeds, ...), without the replay, and the checkpoint's facts."""
    like = without_replay(_shapes_of(config, spec))
    groups, facts = checkpoint.load(directory, ["agent"], {"agent": like})
    require_finite(groups["agent"])
    return unflatten(like, groups["agent"]), _dated(config, facts)


def _dated(config: TrainConfig, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts with the frame that they are of, which a forger may have left out."""
    return facts | {"env_steps": Progress.of(facts).iteration * config.frames_per_iteration}


def _shapes_of(config: TrainConfig, spec: EnvSpec | None) -> TrainState:
    """A training's state without its numbers."""
    return jax.eval_shape(learning_of(config, spec or task_spec(config.task)).start, config.seed_numbers)


def ring_rows(rows: Float[Array, "seeds capacity envs width"], first: int, last: int) -> np.ndarray:
    """Steps number `first` to `last` - 1 of a ring, in their order: (steps, seeds, envs, width)."""
    capacity = rows.shape[1]
    block = min(_BLOCK, capacity)
    parts, step = [], first
    while step < last:
        place = step % capacity
        taken = min(block, last - step, capacity - place)
        begin = min(place, capacity - block)
        part = np.asarray(_block_of(rows, begin, block))
        parts.append(part[:, place - begin : place - begin + taken])
        step += taken
    return np.moveaxis(np.concatenate(parts, axis=1), 1, 0)


@partial(jax.jit, static_argnums=2)
def _block_of(rows: Float[Array, "seeds capacity envs width"], begin: int, size: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(rows, begin, size, axis=1)


def without_replay(state: TrainState) -> TrainState:
    """The state without its replay."""
    return eqx.tree_at(lambda s: s.replay, state, None)


def with_new_episodes(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the states of its environments; every one of them begins a new episode."""
    kept = {name: value for name, value in snapshot.environments.items() if not name.startswith("env/")}
    return snapshot._replace(environments=kept)


def with_other_numbers(state: TrainState, salt: int) -> TrainState:
    """The same state, whose random streams from here on are others."""
    other = jax.vmap(lambda key: jax.random.key_data(jax.random.fold_in(randomness.wrap(key), salt)))(state.keys)
    return eqx.tree_at(lambda s: s.keys, state, other)
