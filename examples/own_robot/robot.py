"""Your own robot: a two-wheeled bot that balances and rolls to a line on the floor."""

import json
from pathlib import Path

import gymnasium
from gymnasium.spaces import Box
import mujoco
import numpy as np

FRAMES = 4  # of 5 ms each: 50 decisions per second
STATE = mujoco.mjtState.mjSTATE_INTEGRATION


class BalanceBot(gymnasium.Env):
    """Observes place, tilt and three speeds; is paid for standing upright on the line; falling ends the task."""

    def __init__(self):
        self.model = mujoco.MjModel.from_xml_path(str(Path(__file__).with_name("robot.xml")))
        self.data = mujoco.MjData(self.model)
        low, high = self.model.actuator_ctrlrange.T
        self.action_space = Box(low.astype(np.float32), high.astype(np.float32))
        self.observation_space = Box(-np.inf, np.inf, (5,))

    def reset(self, *, seed=None, options=None):
        """Begins up to half a metre beside the line, a little tilted."""
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[0] = self.np_random.uniform(-0.5, 0.5)
        self.data.qpos[2] = self.np_random.uniform(-0.15, 0.15)
        return self._observe(), {}

    def step(self, action):
        """Holds a torque for four frames of the simulator."""
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, FRAMES)
        place, _, tilt, _ = self.data.qpos
        reward = float(np.exp(-6 * tilt**2 - 2 * place**2))
        fallen = bool(abs(tilt) > 0.8 or abs(place) > 3)
        return self._observe(), reward, fallen, False, {}

    def _observe(self):
        place, _, tilt, _ = self.data.qpos
        speed, _, tilting, rolling = self.data.qvel
        return np.array([place, tilt, speed, tilting, 0.1 * rolling], np.float32)

    def get_state(self):
        """All that decides its future: with this, a stopped run continues exactly, in mid-episode."""
        physics = np.empty(mujoco.mj_stateSize(self.model, STATE))
        mujoco.mj_getState(self.model, self.data, physics, STATE)
        chance = json.dumps(self.np_random.bit_generator.state).encode()
        return {"physics": physics, "chance": np.frombuffer(chance, np.uint8)}

    def set_state(self, state):
        """Puts it back."""
        mujoco.mj_setState(self.model, self.data, state["physics"], STATE)
        self.np_random.bit_generator.state = json.loads(state["chance"].tobytes())


def make():
    """The task: six seconds, which are a limit on the time and no end of the task."""
    return gymnasium.wrappers.TimeLimit(BalanceBot(), max_episode_steps=300)
