"""Is a training still sane? Numbers that are none, values that no sum of rewards could reach, too little room."""

from functools import partial

import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
import numpy as np

from fcritic.config import TrainConfig
from fcritic.disk import require_memory
from fcritic.errors import Diverged
from fcritic.training.replay import width_of
from fcritic.training.train_state import TrainState
from fcritic.types import EnvSpec, Metrics


def require_room(config: TrainConfig, spec: EnvSpec) -> None:
    """Refuses a replay that the memory of this machine cannot hold; a GPU tells by itself."""
    if jax.default_backend() == "cpu":
        size = 4 * width_of(spec) * config.replay * config.envs * config.seeds
        require_memory(size, f"a replay of {config.replay:,} steps x {config.envs} x {config.seeds} (--replay)")


def require_sane_parameters(state: TrainState, config: TrainConfig, frame: int) -> None:
    """Raises `Diverged` if a seed has a parameter, target or optimiser state that is no number."""
    sick = np.flatnonzero(~np.asarray(_all_finite((state.agent, state.normalizer))))
    if sick.size:
        raise diverged(config, sick[0], frame, "a parameter is no number")


def require_sane_metrics(means: Metrics, state: TrainState, spec: EnvSpec, config: TrainConfig, frame: int) -> None:
    """Raises `Diverged` if a mean since the last look is no number, or the values have exploded."""
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
    """The actions on the host; raises `Diverged` if a seed has some that are no numbers."""
    actions = np.asarray(actions)
    finite = np.isfinite(actions)
    if not finite.all():
        sick = np.flatnonzero(~finite.all(axis=(1, 2)))
        raise diverged(config, sick[0], frame, "its actions are no numbers")
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
