"""A frame of dm_control's suite, without what its environment does around the simulation and the task.

`dm_control.rl.control.Environment.step` looks at every observation, also of frames that an action repeat skips, and
reaches the simulator through several layers. The calls below are the ones that remain, in the same order.
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dm_control.rl import control


class Frames:
    """Steps of one environment of the suite; its place in the episode is kept in the environment itself."""

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
