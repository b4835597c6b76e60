"""Gymnasium environments with continuous actions: flat observations, actions in [-1, 1].

Gymnasium is imported only when one of its environments is built or listed.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from fcritic.envs.answers import WrongAnswer, number, parts, truth
from fcritic.envs.base import AbstractEnv, EnvState, Step
from fcritic.envs.code import Code, code_in_module, import_module, require_name
from fcritic.envs.gym_spaces import Spaces
from fcritic.envs.gym_state import find_state_keeper
from fcritic.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import gymnasium
    import mujoco

ANSWER = ("observation", "reward", "terminated", "truncated", "info")
"""What a step returns."""


class GymEnv(AbstractEnv):
    """A Gymnasium environment, given as an id (``"Pendulum-v1"``, ``"package:Name-v0"``) or as an object.

    Actions must be a Box with finite bounds, observations a Box or a Dict or Tuple of them. ``terminated``
    becomes discount 0, ``truncated`` ends the episode and keeps discount 1. Further keywords go to
    ``gymnasium.make``.

    Gymnasium has no way to save an environment in mid-episode. Its Pendulum, MountainCarContinuous and MuJoCo
    environments are resumed exactly, and so is one whose unwrapped object has methods
    ``get_state() -> dict[str, np.ndarray]`` (everything that decides its future, its random generator
    included) and ``set_state(state)``, as long as no wrapper but the time limit holds a state of its own. All
    others start a new episode when a run resumes.
    """

    def __init__(self, env_or_id: "str | gymnasium.Env", *, seed: int, action_repeat: int = 1, **kwargs: Any):
        if action_repeat < 1:
            raise UsageError(f"action_repeat must be at least 1, not {action_repeat}")
        self._env = make_gym(env_or_id, **kwargs) if isinstance(env_or_id, str) else env_or_id
        given = self._env.spec.id if self._env.spec else type(self._env.unwrapped).__name__
        self.name = env_or_id if isinstance(env_or_id, str) else given
        self._spaces = Spaces(self.name, self._env.observation_space, self._env.action_space)
        self.spec, self.units = self._spaces.spec, self._spaces.units
        self._action_repeat = action_repeat
        self._seed: int | None = seed
        self._time_limit = find_time_limit(self._env)
        self._keeper = find_state_keeper(self._env)

    def reset(self) -> np.ndarray:
        """Begins an episode; the first one sets the seed and checks the observation."""
        seed, self._seed = self._seed, None  # later episodes continue the random generator
        observation, _ = parts("reset", self._env.reset(seed=seed), ("observation", "info"))
        if self._keeper is not None:
            self._keeper.after_reset()
        return self._spaces.flatten(observation) if seed is None else self._checked_first(observation)

    def reseed(self, seed: int) -> None:
        """From the next `reset` on, be like an environment that was built with this seed."""
        self._seed = seed

    def _checked_first(self, observation: Any) -> np.ndarray:
        try:
            flat = self._spaces.flatten(observation)
        except WrongAnswer as error:
            raise UsageError(
                f"{self.name}: the first observation does not fit its declared space "
                f"{self._env.observation_space}: {error}; correct the environment"
            ) from error
        if not np.isfinite(flat).all():
            raise UsageError(f"{self.name}: the first observation is not finite; correct the environment")
        return flat

    def step(self, action: np.ndarray) -> Step:
        """Takes one action, repeated `action_repeat` frames or until the episode ends."""
        scaled = self._spaces.scale(action)
        total = 0.0
        for _ in range(self._action_repeat):
            if self._keeper is not None:
                self._keeper.before_step()
            observation, reward, terminated, truncated, _ = parts("step", self._env.step(scaled), ANSWER)
            total += number("reward", reward)
            terminated = truth("terminated", terminated)
            last = truth("truncated", truncated) or terminated
            if last:
                break
        return Step(self._spaces.flatten(observation), total, 0.0 if terminated else 1.0, last)

    def state(self) -> EnvState | None:
        """The environment's state and the time limit's count, or None where it cannot be told."""
        own = None if self._keeper is None else self._keeper.tell()
        if own is None:
            return None
        elapsed = getattr(self._time_limit, "_elapsed_steps", None)
        count = -1 if elapsed is None else elapsed
        return {"elapsed": np.array(count, np.int64)} | {f"own.{name}": part for name, part in own.items()}

    def restore(self, state: EnvState) -> None:
        """Continues from what `state` returned."""
        if self._keeper is None:
            raise UsageError(f"{self.name} cannot be restored; resume it as it was saved, without new wrappers")
        self.reset()  # wrappers refuse a step before the first reset
        self._keeper.put_back(
            {name.removeprefix("own."): np.array(state[name]) for name in state if name.startswith("own.")}
        )
        if self._time_limit is not None:
            elapsed = int(state["elapsed"])
            self._time_limit._elapsed_steps = None if elapsed < 0 else elapsed

    def simulation(self) -> "tuple[mujoco.MjModel, mujoco.MjData] | None":
        """MuJoCo's model and data, where the unwrapped environment has them as `model` and `data`."""
        import mujoco

        model, data = (getattr(self._env.unwrapped, name, None) for name in ("model", "data"))
        fits = isinstance(model, mujoco.MjModel) and isinstance(data, mujoco.MjData)
        return (model, data) if fits else None

    def picture(self) -> np.ndarray | None:
        """What the environment's own `render` draws, (height, width, 3), if it was built to return pictures."""
        return self._env.render()

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()


def gym_tasks() -> list[str]:
    """The ids of all registered Gymnasium environments, whatever their actions."""
    import gymnasium

    return sorted(gymnasium.registry)


def code_of_registered(name: str) -> Code | None:
    """The code behind an id of Gymnasium's registry; None where that is Gymnasium's own or this very program's."""
    import gymnasium

    if name not in gymnasium.registry:
        return None
    entry = gymnasium.registry[name].entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
    if module.partition(".")[0] == "gymnasium" or (module == "__main__" and callable(entry)):
        return None
    return code_in_module(module, name)


def make_gym(name: str, **kwargs: Any) -> "gymnasium.Env":
    """A registered environment of Gymnasium, as it is; what cannot be built is told in a line."""
    import gymnasium

    require_name(name)
    module, colon, _ = name.rpartition(":")
    if colon:
        import_module(module)
    elif name not in gymnasium.registry:
        raise UsageError(f"Gymnasium has no environment '{name}'{did_you_mean(name, gym_tasks())}")
    try:
        # Gymnasium's checker costs time in every step; what matters here is checked at the first reset.
        return gymnasium.make(name, **{"disable_env_checker": True, **kwargs})
    except (gymnasium.error.Error, ImportError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        install = "; install it" if isinstance(error, ModuleNotFoundError) and ":" not in name else ""
        raise UsageError(f"Gymnasium cannot build '{name}': {reason}{install}") from error


def find_time_limit(env: "gymnasium.Env") -> Any:
    """The TimeLimit wrapper among `env`'s wrappers, or None."""
    from gymnasium.wrappers import TimeLimit

    while env is not env.unwrapped and not isinstance(env, TimeLimit):
        env = env.env
    return env if isinstance(env, TimeLimit) else None
