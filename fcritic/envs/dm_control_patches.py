"""Shorter ways where dm_control is slow, with the same results to the last bit.

Each can be removed by itself, with its use in `fcritic.envs.dmc`; what it buys stands beside it.
"""

from collections.abc import Iterator
import contextlib
import functools
import importlib
import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from dm_control.mujoco.wrapper.core import MjModel
    from dm_control.rl import control


class Frames:
    """Steps of one environment of the suite; its place in the episode is kept in the environment itself.

    `dm_control.rl.control.Environment.step` looks at every observation, also of frames that an action repeat skips,
    and reaches the simulator through several layers. The calls below are the ones that remain, in the same order.
    Four frames of `cheetah-run` take 76 us instead of 126 us.
    """

    def __init__(self, env: "control.Environment"):
        import mujoco

        self._env, self._task, self._physics = env, env.task, env.physics
        self._model, self._data = env.physics.model.ptr, env.physics.data.ptr
        self._control, self._warnings = self._data.ctrl, self._data.warning.number
        self._substeps = env._n_sub_steps
        self._splits = self._model.opt.integrator != mujoco.mjtIntegrator.mjINT_RK4
        self._step, self._step1, self._step2 = mujoco.mj_step, mujoco.mj_step1, mujoco.mj_step2

    def step(self, control: np.ndarray) -> tuple[float, float | None]:
        """Takes a frame and returns its reward and, where the episode ends with it, its discount."""
        env, task, physics = self._env, self._task, self._physics
        self._control[:] = control
        self._simulate()
        reward = task.get_reward(physics)
        env._step_count += 1
        discount = 1.0 if env._step_count >= env._step_limit else task.get_termination(physics)
        env._reset_next_step = discount is not None
        return reward, discount

    def _simulate(self) -> None:
        """Positions and velocities are those at the end of the frame, as `mj_step1` leaves them."""
        model, data, before = self._model, self._data, self._warnings.tobytes()
        if not self._splits:
            self._step(model, data, self._substeps)
        else:
            self._step2(model, data)
            if self._substeps > 1:
                self._step(model, data, self._substeps - 1)
        self._step1(model, data)
        if self._warnings.tobytes() != before:
            self._complain(np.frombuffer(before, self._warnings.dtype))

    def _complain(self, before: np.ndarray) -> None:
        """Raises what dm_control raises when the simulation has become unstable."""
        from dm_control.rl.control import PhysicsError
        import mujoco

        names = np.compress(self._warnings > before, list(mujoco.mjtWarning.__members__))
        if names.size:
            raise PhysicsError(f"Physics state is invalid. Warning(s) raised: {', '.join(names)}")


_building = threading.Lock()  # dm_control is changed for all threads
_compiled: "dict[tuple, MjModel]" = {}
"""The last model, by the text and the files it was made from: a process needs many copies of one, hardly of two."""


@contextlib.contextmanager
def compiled_once() -> Iterator[None]:
    """While it is entered, dm_control copies a model that it has just compiled from the same text.

    It takes a tenth of the time. A copy belongs to its environment alone: some tasks change their model in `reset`.
    """
    from dm_control.mujoco.wrapper.core import MjModel

    def copied(kind: "type[MjModel]", xml_string: str | bytes, assets: dict[str, Any] | None = None) -> "MjModel":
        source = (xml_string, frozenset((assets or {}).items()))
        if source not in _compiled:
            _compiled.clear()
            _compiled[source] = compile_model(kind, xml_string, assets)
        return _compiled[source].copy()

    with _building:
        original = vars(MjModel)["from_xml_string"]
        compile_model = original.__func__
        MjModel.from_xml_string = classmethod(copied)  # pyright: ignore[reportAttributeAccessIssue]
        try:
            yield
        finally:
            MjModel.from_xml_string = original


def shorten_tolerance(rewards: Any) -> None:
    """Gives dm_control's module of rewards a short way for single numbers.

    Its `tolerance`, from which most rewards are made, is written for arrays, and makes half a dozen of them for one
    number: a third of a step of `cheetah-run`. A sigmoid that does not exist is noticed only outside of the bounds,
    where it is needed.
    """
    of_arrays, sigmoid_of = rewards.tolerance, rewards._sigmoids
    usual = rewards._DEFAULT_VALUE_AT_MARGIN

    @functools.wraps(of_arrays)
    def tolerance(x, bounds=(0.0, 0.0), margin=0.0, sigmoid="gaussian", value_at_margin=usual):
        lower, upper = bounds
        if type(x) is not np.float64 or lower > upper or margin < 0:
            return of_arrays(x, bounds, margin, sigmoid, value_at_margin)
        if lower <= x <= upper:
            return 1.0
        if margin == 0:
            return 0.0
        distance = lower - x if x < lower else x - upper
        return float(sigmoid_of(distance / margin, value_at_margin, sigmoid))

    rewards.tolerance = tolerance


class _Later(ModuleType):
    """Stands for a module that is imported when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself asks every module for
            raise AttributeError(name)
        self.give_way()
        return getattr(importlib.import_module(self.__name__), name)

    def give_way(self) -> None:
        """From now on whoever imports the module gets it at once."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


@contextlib.contextmanager
def put_off(name: str) -> Iterator[None]:
    """Whoever imports this module here gets it when he uses it.

    Most of the time to import the suite went into SciPy's images, which draw the terrain of one task.
    """
    if name in sys.modules:
        yield
        return
    later = sys.modules[name] = _Later(name)
    try:
        yield
    finally:
        later.give_way()
