"""Gymnasium environments with continuous actions: flat observations, actions in [-1, 1].

Gymnasium is imported only when one of its environments is built or listed.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fcritic.envs.base import AbstractEnv, EnvState, Step
from fcritic.errors import UsageError, did_you_mean
from fcritic.types import EnvSpec

if TYPE_CHECKING:
    import gymnasium


class GymEnv(AbstractEnv):
    """A Gymnasium environment, given as an id (``"Pendulum-v1"``, ``"package:Name-v0"``) or as an object.

    Actions must be a Box with finite bounds, observations a Box or a Dict or Tuple of them. ``terminated``
    becomes discount 0, ``truncated`` ends the episode and keeps discount 1. Further keywords go to
    ``gymnasium.make``.

    Gymnasium has no way to save an environment in mid-episode. One whose unwrapped object has methods
    ``get_state() -> dict[str, np.ndarray]`` (everything that decides its future, its random generator
    included) and ``set_state(state)`` is resumed exactly; of the wrappers, only the time limit's count is
    saved beside it. All others start a new episode when a run resumes.
    """

    def __init__(self, env_or_id: "str | gymnasium.Env", *, seed: int, action_repeat: int = 1, **kwargs: Any):
        if action_repeat < 1:
            raise UsageError(f"action_repeat must be at least 1, not {action_repeat}")
        self._env = _make(env_or_id, kwargs) if isinstance(env_or_id, str) else env_or_id
        given = self._env.spec.id if self._env.spec else type(self._env.unwrapped).__name__
        self.name = env_or_id if isinstance(env_or_id, str) else given
        self._action_space = _checked_action_space(self.name, self._env.action_space)
        _check_observation_space(self.name, self._env.observation_space)
        self._flatten = _flattener(self._env.observation_space)
        low, high = (np.asarray(bound, np.float64) for bound in (self._action_space.low, self._action_space.high))
        self._half_range, self._centre = ((high - low) / 2).ravel(), ((high + low) / 2).ravel()
        self.spec = EnvSpec(_size(self._env.observation_space), self._half_range.size)
        self._action_repeat = action_repeat
        self._seed: int | None = seed
        self._time_limit = _find_time_limit(self._env)

    def reset(self) -> np.ndarray:
        """Begins an episode; the first one sets the seed and checks the observation."""
        seed, self._seed = self._seed, None  # later episodes continue the random generator
        observation, _ = self._env.reset(seed=seed)
        if seed is not None:
            self._check_first(observation)
        return self._flatten(observation)

    def reseed(self, seed: int) -> None:
        """From the next `reset` on, be like an environment that was built with this seed."""
        self._seed = seed

    def _check_first(self, observation: Any) -> None:
        try:
            flat = self._flatten(observation)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise UsageError(
                f"{self.name}: the first observation does not fit its declared space "
                f"{self._env.observation_space} ({type(error).__name__}); correct the environment"
            ) from error
        if flat.shape != (self.spec.obs_dim,):
            raise UsageError(
                f"{self.name}: the first observation has {flat.size} numbers, its declared space has "
                f"{self.spec.obs_dim}; correct the environment's observation_space"
            )
        if not np.isfinite(flat).all():
            raise UsageError(f"{self.name}: the first observation is not finite; correct the environment")

    def step(self, action: np.ndarray) -> Step:
        """Takes one action, repeated `action_repeat` frames or until the episode ends."""
        scaled = np.minimum(np.maximum(action, -1.0), 1.0) * self._half_range + self._centre
        space = self._action_space
        scaled = scaled.astype(space.dtype).reshape(space.shape)
        # Rounding may step over a bound by one unit, and some environments assert that it does not.
        scaled = np.minimum(np.maximum(scaled, space.low), space.high)
        total = 0.0
        for _ in range(self._action_repeat):
            observation, reward, terminated, truncated, _ = self._env.step(scaled)
            total += float(reward)
            last = bool(terminated or truncated)
            if last:
                break
        return Step(self._flatten(observation), total, 0.0 if terminated else 1.0, last)

    def state(self) -> EnvState | None:
        """What the environment's own `get_state` gives and the time limit's count, or None without it."""
        inner = self._env.unwrapped
        if not (hasattr(inner, "get_state") and hasattr(inner, "set_state")):
            return None
        state = inner.get_state()
        if not (isinstance(state, dict) and all(isinstance(part, np.ndarray) for part in state.values())):
            return None
        elapsed = getattr(self._time_limit, "_elapsed_steps", None)
        count = -1 if elapsed is None else elapsed
        return {"elapsed": np.array(count, np.int64)} | {f"own.{key}": np.array(state[key]) for key in state}

    def restore(self, state: EnvState) -> None:
        """Continues from what `state` returned; exact as far as the environment's own methods are."""
        self.reset()  # wrappers refuse a step before the first reset
        own = {key.removeprefix("own."): np.array(state[key]) for key in state if key.startswith("own.")}
        self._env.unwrapped.set_state(own)
        if self._time_limit is not None:
            elapsed = int(state["elapsed"])
            self._time_limit._elapsed_steps = None if elapsed < 0 else elapsed

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()


def gym_tasks() -> list[str]:
    """The ids of all registered Gymnasium environments, whatever their actions."""
    import gymnasium

    return sorted(gymnasium.registry)


def _make(name: str, kwargs: dict[str, Any]) -> "gymnasium.Env":
    import gymnasium

    if ":" not in name and name not in gymnasium.registry:
        raise UsageError(f"Gymnasium has no environment '{name}'{did_you_mean(name, gym_tasks())}")
    try:
        # Gymnasium's checker costs time in every step; what matters here is checked at the first reset.
        return gymnasium.make(name, **{"disable_env_checker": True, **kwargs})
    except (gymnasium.error.Error, ImportError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        install = "; install it" if isinstance(error, ModuleNotFoundError) and ":" not in name else ""
        raise UsageError(f"Gymnasium cannot build '{name}': {reason}{install}") from error


def _checked_action_space(name: str, space: "gymnasium.Space") -> "gymnasium.spaces.Box":
    from gymnasium.spaces import Box

    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise UsageError(
            f"{name} has the actions {space}; choose a task with continuous ones (a Box of floats), "
            "such as Pendulum-v1"
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise UsageError(
            f"{name} has actions without finite bounds; wrap it in gymnasium.wrappers.TransformAction with a "
            "bounded Box as its action space"
        )
    return space


def _check_observation_space(name: str, space: "gymnasium.Space") -> None:
    from gymnasium.spaces import Box, Dict, Tuple

    if isinstance(space, Dict | Tuple):
        for part in space.values() if isinstance(space, Dict) else space:
            _check_observation_space(name, part)
    elif not isinstance(space, Box):
        raise UsageError(
            f"{name} has the observation {space}, not a Box of numbers; wrap it in "
            "gymnasium.wrappers.FlattenObservation or another wrapper that gives a Box"
        )


def _size(space: "gymnasium.Space") -> int:
    from gymnasium.spaces.utils import flatdim

    return flatdim(space)


def _flattener(space: "gymnasium.Space") -> Callable[[Any], np.ndarray]:
    """The function from this space's observations to a new float32 array."""
    from gymnasium.spaces import Box
    from gymnasium.spaces.utils import flatten

    if isinstance(space, Box):  # the common case, without the general function's dispatch
        return lambda observation: np.array(observation, np.float32).reshape(-1)
    return lambda observation: np.array(flatten(space, observation), np.float32)


def _find_time_limit(env: "gymnasium.Env") -> Any:
    """The TimeLimit wrapper among `env`'s wrappers, or None."""
    from gymnasium.wrappers import TimeLimit

    while env is not env.unwrapped and not isinstance(env, TimeLimit):
        env = env.env
    return env if isinstance(env, TimeLimit) else None
