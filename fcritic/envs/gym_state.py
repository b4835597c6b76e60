"""The state of Gymnasium's environments in mid-episode, where it can be told exactly.

Gymnasium has no way to save an environment. Its own classic-control and MuJoCo environments are known well
enough to do it from outside; others may offer `get_state` and `set_state`. For all the rest, and for wrappers
that may hold something of their own, there is no state.
"""

import abc
from typing import TYPE_CHECKING, Any

import numpy as np

from fcritic.envs.base import EnvState

if TYPE_CHECKING:
    import gymnasium

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
    """Tells and restores what one environment, without its wrappers, has in it."""

    def before_step(self) -> None:  # noqa: B027 (only MuJoCo needs it)
        """Called before every step."""

    def after_reset(self) -> None:  # noqa: B027
        """Called when an episode has begun."""

    @abc.abstractmethod
    def tell(self) -> EnvState | None:
        """Named arrays from which `put_back` restores the environment."""

    @abc.abstractmethod
    def put_back(self, state: EnvState) -> None:
        """Restores a state in an environment that has just been reset."""


def find_state_keeper(env: "gymnasium.Env") -> AbstractStateKeeper | None:
    """The one that fits this environment, or None where its state cannot be told."""
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
    if module.startswith("gymnasium.envs.classic_control.") and name in (
        "PendulumEnv",
        "Continuous_MountainCarEnv",
    ):
        return ClassicControl(env)
    if module.startswith("gymnasium.envs.mujoco.") and module[-3:] in ("_v4", "_v5"):
        return MuJoCo(env)
    return None


class OwnMethods(AbstractStateKeeper):
    """For environments with ``get_state() -> dict[str, np.ndarray]`` and ``set_state(state)``."""

    def __init__(self, env: Any):
        self._env = env

    def tell(self) -> EnvState | None:
        """What the environment says, where that is named arrays."""
        state = self._env.get_state()
        if not (isinstance(state, dict) and all(isinstance(part, np.ndarray) for part in state.values())):
            return None
        return {name: part.copy() for name, part in state.items()}

    def put_back(self, state: EnvState) -> None:
        """Leaves it to the environment."""
        self._env.set_state(state)


class ClassicControl(AbstractStateKeeper):
    """Pendulum and MountainCarContinuous: a small array and a random generator."""

    def __init__(self, env: Any):
        self._env = env

    def tell(self) -> EnvState:
        """Its type is kept too: MountainCar begins in double precision and goes on in single."""
        return {"state": np.array(self._env.state), "rng": generator_state(self._env.np_random)}

    def put_back(self, state: EnvState) -> None:
        """Exact: nothing else in these environments ever changes."""
        self._env.state = state["state"]
        set_generator_state(self._env.np_random, state["rng"])


class MuJoCo(AbstractStateKeeper):
    """Gymnasium's MuJoCo environments.

    After a step, the positions of bodies in MuJoCo's data are those before its last integration, and some
    rewards are computed from them in the next step. They are no part of MuJoCo's state. So the state before the
    last step is kept too, and that step is simulated once more.
    """

    def __init__(self, env: Any):
        import mujoco

        self._env, self._mujoco = env, mujoco
        self._kind = mujoco.mjtState.mjSTATE_INTEGRATION
        self._before = np.zeros(mujoco.mj_stateSize(env.model, self._kind))
        self._stepped = False

    def before_step(self) -> None:
        """Notes from where the step is taken."""
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

    def tell(self) -> EnvState:
        """The physics now and before the last step, whether there was one, and the random generator."""
        return {
            "physics": self._read(np.empty_like(self._before)),
            "before": self._before.copy(),
            "stepped": np.array(self._stepped),
            "rng": generator_state(self._env.np_random),
        }

    def put_back(self, state: EnvState) -> None:
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
