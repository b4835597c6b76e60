"""The environment under examination, as Gymnasium's interface and as the training would use it."""

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium import spaces
import numpy as np

from fcritic import envs
from fcritic.envs.gym import GymEnv, make_gym
from fcritic.envs.own import find_factory, takes_many
from fcritic.envs.watch import Watch


class Plain(gymnasium.Env):
    """An `AbstractEnv` in Gymnasium's clothes."""

    def __init__(self, inner: envs.AbstractEnv):
        self.inner = inner
        self.observation_space = spaces.Box(-np.inf, np.inf, (inner.spec.obs_dim,))
        self.action_space = spaces.Box(-1.0, 1.0, (inner.spec.act_dim,))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Begins an episode."""
        if seed is not None:
            self.inner.reseed(seed)
        return self.inner.reset(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Takes an action."""
        obs, reward, discount, last = self.inner.step(action)
        ended = last and discount == 0
        return obs, reward, bool(ended), bool(last and not ended), {}

    def close(self) -> None:
        """Closes what is inside."""
        self.inner.close()


class OneOfMany(gymnasium.Env):
    """The only sub-environment of a vector environment, by the training's own way of reading it."""

    def __init__(self, task: str):
        self._vector = envs.make_vector(task, seeds=[0], envs=1)
        spec = self._vector.spec
        self.observation_space = spaces.Box(-np.inf, np.inf, (spec.obs_dim,))
        self.action_space = spaces.Box(-1.0, 1.0, (spec.act_dim,))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Begins an episode where a seed is given; otherwise the vector has begun it by itself."""
        if seed is not None:
            self._vector.restart([[seed]])
        return self._vector.obs[0, 0].copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Takes an action."""
        taken, episodes = self._vector.step(np.asarray(action, np.float32)[None, None])
        ended = bool(taken.discount[0, 0] == 0)
        obs, reward = taken.next_obs[0, 0].copy(), float(taken.reward[0, 0])
        return obs, reward, ended, bool(episodes) and not ended, {}

    def close(self) -> None:
        """Closes the vector."""
        self._vector.close()


class Subject:
    """A task that can be built again and again, and whose calls must come back in time."""

    def __init__(self, task: str, timeout: float):
        self.task, self.timeout = task, timeout
        factory = find_factory(task) if ":" in task else None
        self.is_vector = factory is not None and takes_many(factory)
        self._build = self._builder(factory)

    def _builder(self, factory: Callable | None) -> Callable[[], Any]:
        if self.is_vector:
            return lambda: OneOfMany(self.task)
        if factory is not None:
            return factory
        if ":" in self.task or self.task in envs.gym_tasks():
            return lambda: make_gym(self.task)
        return lambda: envs.make(self.task, seed=0)

    def build(self) -> gymnasium.Env:
        """A new one; what is no environment is a TypeError."""
        env = self.timed(self._build)
        if isinstance(env, envs.AbstractEnv):
            return Plain(env)
        if not isinstance(env, gymnasium.Env):
            raise TypeError(f"the factory returned {env!r:.60}, which is no gymnasium.Env")
        return env

    def as_trained(self, seed: int) -> envs.AbstractEnv:
        """A new one as the training sees it."""
        env = self.build()
        if isinstance(env, Plain):
            env.inner.reseed(seed)
            return env.inner
        return GymEnv(env, seed=seed)

    def timed(self, function: Callable, *arguments: Any, **options: Any) -> Any:
        """Calls an environment; `Hang` where it does not come back."""
        with Watch(self.timeout) as watch:
            watch.begin(0)
            return function(*arguments, **options)
