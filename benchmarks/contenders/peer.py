"""Trains a peer's SAC or TD3 on request, and tells how long it took. Runs in the peers' own environment.

    python peer.py {sb3,sbx} {sac,td3} TASK WARMUP

Nothing of fcritic is imported here. After the warm-up and the first updates one line of JSON says what runs;
then every number of steps that is read is trained, and answered by one line with the seconds it took.
"""

import importlib
from importlib.metadata import version
import json
import sys
import time

import gymnasium as gym
import numpy as np

SETTINGS = {"batch_size": 256, "train_freq": 1, "gradient_steps": 1, "buffer_size": 100_000}
HIDDEN = [256, 256]
PACKAGES = {
    "sb3": ["stable-baselines3", "torch", "numpy", "mujoco", "dm_control", "gymnasium"],
    "sbx": ["sbx-rl", "stable-baselines3", "jax", "flax", "optax", "numpy", "mujoco", "dm_control", "gymnasium"],
}


class DMCTask(gym.Env):
    """A task of the suite with flat float32 observations and actions in [-1, 1], as fcritic has it."""

    def __init__(self, task: str):
        from dm_control import suite

        self._env = suite.load(*task.split("-", 1))
        width = sum(int(np.prod(part.shape)) for part in self._env.observation_spec().values())
        bounds = self._env.action_spec()
        self._middle = (bounds.maximum + bounds.minimum) / 2
        self._half_range = (bounds.maximum - bounds.minimum) / 2
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (width,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, bounds.shape, np.float32)

    def reset(self, *, seed=None, options=None):
        """Begins an episode."""
        super().reset(seed=seed)
        return self._flat(self._env.reset()), {}

    def step(self, action):
        """One frame; the suite's time limit is a truncation."""
        frame = self._env.step(self._middle + self._half_range * np.clip(action, -1, 1))
        ended = frame.last() and frame.discount == 0
        return self._flat(frame), float(frame.reward), ended, frame.last() and not ended, {}

    def _flat(self, frame):
        return np.concatenate(list(frame.observation.values()), axis=None, dtype=np.float32, casting="same_kind")


def main(library: str, algorithm: str, task: str, warmup: int) -> None:
    """Builds the model, lets it begin to learn, and serves requests until the input ends."""
    package = importlib.import_module("stable_baselines3" if library == "sb3" else "sbx")
    noise = {}
    if algorithm == "td3":
        from stable_baselines3.common.noise import NormalActionNoise

        width = DMCTask(task).action_space.shape[0]
        noise["action_noise"] = NormalActionNoise(np.zeros(width), np.full(width, 0.1))
    model = getattr(package, algorithm.upper())(
        "MlpPolicy",
        DMCTask(task),
        policy_kwargs={"net_arch": HIDDEN},
        learning_starts=warmup,
        seed=0,
        device="cpu",
        **SETTINGS,
        **noise,
    )
    model.learn(warmup + 100)
    facts = {"settings": SETTINGS | {"hidden": HIDDEN, "learning_starts": warmup, "device": "cpu"}}
    _tell(facts | {"versions": {name: version(name) for name in PACKAGES[library]}})
    for line in sys.stdin:
        steps = int(line)
        start = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        _tell({"steps": steps, "seconds": time.perf_counter() - start, "updates": int(model._n_updates)})


def _tell(message: dict) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
