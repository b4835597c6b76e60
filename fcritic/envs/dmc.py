"""The DeepMind Control Suite: flat observations, actions in [-1, 1], exact resume in mid-episode.

dm_control is imported only when one of its tasks is built or listed, because that takes most of a second.
"""

from collections.abc import Iterator
import contextlib
import functools
import importlib.util
import logging
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from fcritic.code import told
from fcritic.envs.arguments import Arguments, require_known
from fcritic.envs.base import AbstractEnv, ActionRange, EnvState, Step, Units
from fcritic.envs.dm_control_patches import Frames, compiled_once, put_off, shorten_tolerance
from fcritic.errors import UsageError, did_you_mean
from fcritic.types import EnvSpec

if TYPE_CHECKING:
    import mujoco

NEEDS_RENDERER = frozenset({"quadruped-escape"})
"""Tasks that cannot even be built without OpenGL: their terrain is uploaded to the graphics card."""

REQUIREMENT = "dm_control==1.0.50"
"""The version that was tested. From Python 3.13 on it is installed by itself, without a dependency (labmaze) that
the suite does not use and that has no wheels there."""

INSTALL = f"{sys.executable} -m pip install --no-deps {REQUIREMENT}"

FRAME_LIMIT = 1000
"""Frames in an episode. All tasks of the suite have this limit, apart from lqr, which had none."""

UNLIMITED = 1e9
"""Bounds beyond this are dm_control's way (1e10) to say that an actuator has no limits."""


class DMCEnv(AbstractEnv):
    """One task of the suite, for example ``DMCEnv("cheetah", "run", seed=0)``.

    Observations are concatenated in the suite's key order. Actions are clipped to [-1, 1] and rescaled to
    the task's bounds; actuators without bounds (lqr) take them as they are. The time limit ends an episode
    with discount 1, as dm_control has it.
    """

    def __init__(
        self, domain: str, task: str, *, seed: int, action_repeat: int = 1, arguments: Arguments | None = None
    ):
        self.name = f"{domain}-{task}"
        if not has_suite():
            raise UsageError(f"{self.name}: the DeepMind Control Suite is not installed; run {INSTALL}")
        if self.name not in dmc_tasks():
            raise UsageError(_unknown(domain, task))
        if action_repeat < 1:
            raise UsageError(f"action_repeat must be at least 1, not {action_repeat}")
        self._domain, self._task, self._arguments = domain, task, arguments or {}
        self._action_repeat = action_repeat
        self._build(seed)
        bounds = self._env.action_spec()
        limited = np.abs(bounds.maximum) < UNLIMITED
        low, high = np.where(limited, [bounds.minimum, bounds.maximum], [[-1.0], [1.0]])
        shapes = {name: part.shape for name, part in self._env.observation_spec().items()}
        self.units = Units(ActionRange(low, high), None, _flat, lambda flat: _parts(shapes, flat))
        self._half_range, self._centre = self.units.actions.half_range, self.units.actions.centre
        obs_dim = sum(int(np.prod(part.shape)) for part in self._env.observation_spec().values())
        self.spec = EnvSpec(obs_dim=obs_dim, act_dim=bounds.shape[0])
        # Reused in every step: the physics copies the control, so nobody else ever sees this array.
        self._control = np.zeros(bounds.shape)

    def _build(self, seed: int) -> None:
        self._seed = seed
        self._rng = np.random.RandomState(seed)
        suite = load_suite()
        if self._arguments:
            require_known(self.name, suite._DOMAINS[self._domain].SUITE[self._task], self._arguments)
        with compiled_once(), _quiet_absl():  # models with deprecated attributes warn at each construction
            try:
                given = self._arguments | {"random": self._rng}
                self._env = suite.load(self._domain, self._task, task_kwargs=given)
            except (TypeError, ValueError, AttributeError) as error:
                if not self._arguments:
                    raise
                raise UsageError(f"{self.name} cannot be built with {self._arguments}: {told(error)}") from error
        self._env._step_limit = min(self._env._step_limit, FRAME_LIMIT)
        self._frames = Frames(self._env)
        self._rng_before_reset = self._rng.get_state()

    def reset(self) -> np.ndarray:
        """Begins an episode and returns its first observation."""
        self._rng_before_reset = self._rng.get_state()
        return _flat(self._env.reset().observation)

    def reseed(self, seed: int) -> None:
        """Makes the next `reset` behave as in an environment built with this seed."""
        if self._domain == "lqr":
            self._build(seed)  # lqr draws its springs when it is built
        self._seed = seed
        self._rng.seed(seed)

    def step(self, action: np.ndarray) -> Step:
        """Takes one action, repeated `action_repeat` frames or until the episode ends."""
        if self._env._reset_next_step:
            raise RuntimeError(f"{self.name}: the episode is over or has not begun; call reset() first")
        control = self._control
        np.maximum(action, -1.0, out=control)
        np.minimum(control, 1.0, out=control)
        control *= self._half_range
        control += self._centre
        reward, discount = 0.0, 1.0
        for _ in range(self._action_repeat):
            frame_reward, end = self._frames.step(control)
            reward += frame_reward
            if end is not None:
                discount = end
                break
        observation = self._env.task.get_observation(self._env.physics)
        return Step(_flat(observation), float(reward), float(discount), end is not None)

    def state(self) -> EnvState:
        """The physics, both random states and the place in the episode; always exact.

        What a task drew at its last reset (targets, sizes) lives in the model and is not part of MuJoCo's
        state. It is drawn again in `restore`, which is why the random state before that reset is kept.
        """
        import mujoco

        return {
            "seed": np.array(self._seed, np.int64),
            "physics": self._env.physics.get_state(mujoco.mjtState.mjSTATE_INTEGRATION),
            "frame": np.array(self._env._step_count, np.int64),
            "over": np.array(self._env._reset_next_step),
            **_rng_arrays("rng_before_reset", self._rng_before_reset),
            **_rng_arrays("rng", self._rng.get_state()),
        }

    def restore(self, state: EnvState) -> None:
        """Continues exactly from a saved state, also in an environment built with another seed."""
        import mujoco

        if self._domain == "lqr" and int(state["seed"]) != self._seed:
            self.reseed(int(state["seed"]))
        self._rng.set_state(_rng_state("rng_before_reset", state))
        self.reset()
        physics = self._env.physics
        physics.set_state(state["physics"], mujoco.mjtState.mjSTATE_INTEGRATION)
        physics.forward()
        self._rng.set_state(_rng_state("rng", state))
        self._env._step_count = int(state["frame"])
        self._env._reset_next_step = bool(state["over"])

    def simulation(self) -> "tuple[mujoco.MjModel, mujoco.MjData]":
        """Returns MuJoCo's current model and data, read-only."""
        return self._env.physics.model.ptr, self._env.physics.data.ptr

    def close(self) -> None:
        """Frees the physics."""
        self._env.close()


def has_suite() -> bool:
    """Whether dm_control is installed."""
    return importlib.util.find_spec("dm_control") is not None


def dmc_tasks() -> list[str]:
    """Names of all usable tasks, as ``domain-task``: none without dm_control, and none that need a renderer."""
    if not has_suite():
        return []
    names = (f"{domain}-{task}" for domain, task in load_suite().ALL_TASKS)
    return [name for name in names if name not in NEEDS_RENDERER]


def _unknown(domain: str, task: str) -> str:
    """One line on a task that is not there: its domain's tasks where the domain exists, else the closest."""
    name = f"{domain}-{task}"
    if name in NEEDS_RENDERER:
        return f"{name} needs a renderer and cannot be used for training; choose another quadruped task"
    siblings = [known for known in dmc_tasks() if known.startswith(f"{domain}-")]
    if siblings:
        return f"{domain} has no task '{task}'; it has {', '.join(siblings)}"
    return f"unknown task '{name}'{did_you_mean(name, dmc_tasks())}"


def _flat(observation: dict) -> np.ndarray:
    """All parts, scalars included, as one new float32 array."""
    return np.concatenate(tuple(observation.values()), axis=None, dtype=np.float32, casting="same_kind")


def _parts(shapes: dict[str, tuple[int, ...]], flat: Any) -> dict[str, Any]:
    """What `_flat` has made flat, by name."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()]).tolist()
    places = zip(shapes.items(), [0, *ends], ends, strict=False)
    return {name: flat[begin:end].reshape(shape) for (name, shape), begin, end in places}


def _rng_arrays(name: str, state: tuple) -> EnvState:
    """A RandomState's tuple as arrays that any checkpoint format can hold."""
    _, key, position, has_gauss, cached_gauss = state
    return {
        f"{name}_key": np.array(key, np.uint32),
        f"{name}_position": np.array([position, has_gauss], np.int64),
        f"{name}_gauss": np.array(cached_gauss, np.float64),
    }


def _rng_state(name: str, arrays: EnvState) -> tuple:
    position, has_gauss = (int(number) for number in arrays[f"{name}_position"])
    return "MT19937", arrays[f"{name}_key"], position, has_gauss, float(arrays[f"{name}_gauss"])


@functools.cache
def load_suite() -> ModuleType:
    """dm_control.suite, imported so that no OpenGL library is looked for.

    dm_control reads MUJOCO_GL once, when imported. Unset, it would try to load GLFW, EGL and OSMesa, which
    warns or fails on machines without a display. A value the user has set is respected, and the variable
    is removed afterwards because Gymnasium's renderers refuse the value "disabled".
    """
    chosen = os.environ.get("MUJOCO_GL")
    os.environ.setdefault("MUJOCO_GL", "disabled")
    try:
        with put_off("scipy.ndimage"):
            from dm_control import suite
            from dm_control.utils import rewards
    except Exception as error:
        if chosen is None:
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"MUJOCO_GL={chosen} does not work here ({reason}); unset it to train") from error
    finally:
        if chosen is None:
            del os.environ["MUJOCO_GL"]
    shorten_tolerance(rewards)
    return suite


@contextlib.contextmanager
def _quiet_absl() -> Iterator[None]:
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
