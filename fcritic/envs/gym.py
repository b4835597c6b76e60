"""Gymnasium environments with continuous actions: flat observations, actions in [-1, 1].

Gymnasium is imported only when one of its environments is built or listed.
"""

import abc
from collections.abc import Callable
import inspect
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from fcritic.code import Code, code_in_module, import_module, require_name
from fcritic.envs.answers import ANSWERS, WrongAnswer, number, numbers, parts, success_in, truth
from fcritic.envs.base import AbstractEnv, ActionRange, EnvState, Step, Units
from fcritic.errors import UsageError, did_you_mean
from fcritic.types import EnvSpec

if TYPE_CHECKING:
    import gymnasium
    import mujoco

# Spaces that can be used, and their conversion to flat arrays

Flatten = Callable[[Any], np.ndarray]


class Spaces:
    """The spaces of one environment: actions in [-1, 1] are scaled to its bounds, observations are flattened."""

    def __init__(self, name: str, observation_space: "gymnasium.Space", action_space: Any):
        _check_action_space(name, action_space)
        _check_observation_space(name, observation_space)
        self.observation_space = observation_space
        self.flatten = _flattener(observation_space)
        """Makes a new float32 array of an observation; raises `WrongAnswer` for what is not in the space."""
        bounds = ActionRange(action_space.low, action_space.high)
        unflatten = (
            None if observation_space.shape is not None else lambda flat: _unflattened(observation_space, flat)
        )
        self.units = Units(bounds, observation_space.shape, self.flatten, unflatten)
        self.scale = self.units.actions.scale
        """An action as the environment wants it."""
        self.spec = EnvSpec(_size(observation_space), self.units.actions.low.size)


def _check_action_space(name: str, space: "gymnasium.Space") -> None:
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


def _flattener(space: Any, field: str = "observation") -> Flatten:
    """The function from a space's observations to a new float32 array, in the order of Gymnasium's own."""
    from gymnasium.spaces import Box, Dict

    if isinstance(space, Box):
        shape = space.shape
        return lambda seen: np.array(numbers(field, seen, shape), np.float32).reshape(-1)
    named = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
    inner = {key: _flattener(part, f"{field}[{key!r}]") for key, part in named}
    kind = dict if isinstance(space, Dict) else tuple | list

    def flatten(seen: Any) -> np.ndarray:
        if not isinstance(seen, kind) or len(seen) != len(inner):
            raise WrongAnswer(f"{field} is a {type(seen).__name__} that does not fit its space {space}")
        try:
            return np.concatenate([part(seen[key]) for key, part in inner.items()])
        except KeyError as error:
            raise WrongAnswer(f"{field} lacks {error}, which its space has") from error

    return flatten


def _unflattened(space: Any, flat: Any) -> Any:
    """What `_flattener` has made flat, in the space's own parts."""
    from gymnasium.spaces import Box, Dict

    if isinstance(space, Box):
        return flat.reshape(space.shape)
    inner = list(space.spaces.values() if isinstance(space, Dict) else space.spaces)
    ends = np.cumsum([_size(part) for part in inner]).tolist()
    found = [_unflattened(part, flat[begin:end]) for part, begin, end in zip(inner, [0, *ends], ends, strict=False)]
    return dict(zip(space.spaces, found, strict=True)) if isinstance(space, Dict) else tuple(found)


# The state of environments in mid-episode, where it can be saved exactly: Gymnasium has no interface for that

_STATELESS = frozenset(
    {
        *("OrderEnforcing", "PassiveEnvChecker", "FlattenObservation", "ReshapeObservation", "RescaleObservation"),
        *("DtypeObservation", "FilterObservation", "TransformObservation"),
        *("ClipAction", "RescaleAction", "TransformAction", "ClipReward", "TransformReward"),
    }
)
"""Gymnasium's wrappers that remember nothing (of functions given to the Transform ones the same is expected)."""

_CLASSIC = frozenset({"PendulumEnv", "Continuous_MountainCarEnv"})


class AbstractStateKeeper(abc.ABC):
    """Saves and restores the state of one environment without its wrappers."""

    def before_step(self) -> None:  # noqa: B027 (only MuJoCo needs it)
        """Called before every step."""

    def after_reset(self) -> None:  # noqa: B027
        """Called when an episode has begun."""

    @abc.abstractmethod
    def save(self) -> EnvState | None:
        """Named arrays from which `restore` restores the environment."""

    @abc.abstractmethod
    def restore(self, state: EnvState) -> None:
        """Restores a state in an environment that has just been reset."""


def find_state_keeper(env: Any) -> AbstractStateKeeper | None:
    """Returns the one that fits this environment, or None where its state cannot be saved."""
    limits = 0
    while env is not env.unwrapped:
        limits += type(env).__name__ == "TimeLimit"
        if not type(env).__module__.startswith("gymnasium.wrappers."):
            return None
        if type(env).__name__ not in _STATELESS | {"TimeLimit"}:
            return None
        env = env.env
    module, name = type(env).__module__, type(env).__name__
    if limits > 1:
        return None
    if hasattr(env, "get_state") and hasattr(env, "set_state"):
        return OwnMethods(env)
    if module.startswith("gymnasium.envs.classic_control.") and name in _CLASSIC:
        return ClassicControl(env)
    if module.startswith("gymnasium.envs.mujoco.") and module[-3:] in ("_v4", "_v5"):
        return MuJoCo(env)
    return None


class OwnMethods(AbstractStateKeeper):
    """For environments with ``get_state() -> dict[str, np.ndarray]`` and ``set_state(state)``."""

    def __init__(self, env: Any):
        self._env = env

    def save(self) -> EnvState | None:
        """Returns the environment's own state, or None if that is not named arrays."""
        state = self._env.get_state()
        if not (isinstance(state, dict) and all(isinstance(part, np.ndarray) for part in state.values())):
            return None
        return {name: part.copy() for name, part in state.items()}

    def restore(self, state: EnvState) -> None:
        """Restores it by the environment's own method."""
        self._env.set_state(state)


class ClassicControl(AbstractStateKeeper):
    """Pendulum and MountainCarContinuous: a small array and a random generator."""

    def __init__(self, env: Any):
        self._env = env

    def save(self) -> EnvState:
        """Its type is kept too: MountainCar begins in double precision and goes on in single."""
        return {"state": np.array(self._env.state), "rng": generator_state(self._env.np_random)}

    def restore(self, state: EnvState) -> None:
        """Exact: nothing else in these environments ever changes."""
        self._env.state = state["state"]
        set_generator_state(self._env.np_random, state["rng"])


class MuJoCo(AbstractStateKeeper):
    """Gymnasium's MuJoCo environments.

    After a step, the positions of bodies in MuJoCo's data are those before its last integration, and some
    rewards are computed from them in the next step. They are not part of MuJoCo's state. So the state before the
    last step is kept too, and that step is simulated once more.
    """

    def __init__(self, env: Any):
        import mujoco

        self._env, self._mujoco = env, mujoco
        self._kind = mujoco.mjtState.mjSTATE_INTEGRATION
        self._before = np.zeros(mujoco.mj_stateSize(env.model, self._kind))
        self._stepped = False

    def before_step(self) -> None:
        """Notes the state before the step."""
        self._read(self._before)
        self._stepped = True

    def after_reset(self) -> None:
        """There is no last step in this episode yet."""
        self._stepped = False

    def _read(self, into: np.ndarray) -> np.ndarray:
        self._mujoco.mj_getState(self._env.model, self._env.data, into, self._kind)
        return into

    def _write(self, physics: np.ndarray) -> None:
        self._mujoco.mj_setState(self._env.model, self._env.data, physics, self._kind)

    def save(self) -> EnvState:
        """The physics now and before the last step, whether there was one, and the random generator."""
        return {
            "physics": self._read(np.empty_like(self._before)),
            "before": self._before.copy(),
            "stepped": np.array(self._stepped),
            "rng": generator_state(self._env.np_random),
        }

    def restore(self, state: EnvState) -> None:
        """Simulates the last step again, and then makes sure of the physics."""
        self._write(state["physics"])
        if state["stepped"]:
            control = self._env.data.ctrl.copy()  # of the last step; it is part of the physics
            self._write(state["before"])
            self._env.do_simulation(control, self._env.frame_skip)
        else:
            self._mujoco.mj_forward(self._env.model, self._env.data)
        self._write(state["physics"])
        self._before[:], self._stepped = state["before"], bool(state["stepped"])
        set_generator_state(self._env.np_random, state["rng"])


def generator_state(generator: np.random.Generator) -> np.ndarray:
    """The state of Gymnasium's generator (PCG64) as six integers of 64 bits."""
    full = generator.bit_generator.state
    wide = [full["state"]["state"], full["state"]["inc"]]
    words = [part for number in wide for part in (number >> 64, number & (2**64 - 1))]
    return np.array([*words, full["has_uint32"], full["uinteger"]], np.uint64)


def set_generator_state(generator: np.random.Generator, words: np.ndarray) -> None:
    """Puts back what `generator_state` gave."""
    numbers = [int(word) for word in words]
    state, inc = ((numbers[i] << 64) | numbers[i + 1] for i in (0, 2))
    has_half, half = numbers[4:]
    inner = {"state": state, "inc": inc}
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": inner,
        "has_uint32": has_half,
        "uinteger": half,
    }


# Environments


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
        observation, _ = parts("reset", self._env.reset(seed=seed), ANSWERS["reset"])
        if self._keeper is not None:
            self._keeper.after_reset()
        return self._spaces.flatten(observation) if seed is None else self._checked_first(observation)

    def reseed(self, seed: int) -> None:
        """Makes the next `reset` behave as in an environment built with this seed."""
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
            observation, reward, terminated, truncated, info = parts(
                "step", self._env.step(scaled), ANSWERS["step"]
            )
            total += number("reward", reward)
            terminated = truth("terminated", terminated)
            last = truth("truncated", truncated) or terminated
            if last:
                break
        if last:
            self.success = success_in(info)
        return Step(self._spaces.flatten(observation), total, 0.0 if terminated else 1.0, last)

    def state(self) -> EnvState | None:
        """Returns the environment's state and the time limit's count, or None where it cannot be saved."""
        own = None if self._keeper is None else self._keeper.save()
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
        self._keeper.restore(
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
    """Returns a registered environment of Gymnasium; one that cannot be built is a `UsageError`."""
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
    except (gymnasium.error.Error, ImportError, TypeError, ValueError, OSError, AssertionError) as error:
        reason = " ".join(str(error).split())
        if (unknown := re.search(r"unexpected keyword argument '(\w+)'", reason)) and unknown[1] in kwargs:
            raise UsageError(f"{name} takes no argument {unknown[1]}{_closest(name, unknown[1])}") from error
        install = "; install it" if isinstance(error, ModuleNotFoundError) and ":" not in name else ""
        raise UsageError(f"Gymnasium cannot build '{name}': {reason}{install}") from error


def _closest(name: str, argument: str) -> str:
    """The hint at an argument that a registered environment does take."""
    from gymnasium.envs.registration import load_env_creator, spec

    entry = spec(name).entry_point
    build = load_env_creator(entry) if isinstance(entry, str) else entry
    return did_you_mean(argument, [*inspect.signature(build).parameters, "max_episode_steps"]) if build else ""


def find_time_limit(env: Any) -> Any:
    """The TimeLimit wrapper among `env`'s wrappers, or None."""
    from gymnasium.wrappers import TimeLimit

    while env is not env.unwrapped and not isinstance(env, TimeLimit):
        env = env.env
    return env if isinstance(env, TimeLimit) else None
