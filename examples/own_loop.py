"""The agent in your own loop: act, step, store, learn. No run directory, no logs, no evaluation.

python examples/own_loop.py --steps 6000
"""

import argparse

import gymnasium
import numpy as np

import fcritic
from fcritic.training.device import Device, Learning
from fcritic.types import EnvSpec, Transition


def main(steps=6000, warmup=1000, agent=None):
    """Trains on the pendulum and returns the returns of its episodes."""
    agent = agent or fcritic.find_recipe("fac-small")
    env = gymnasium.make("Pendulum-v1")  # 3 numbers to see, a torque in [-2, 2]
    learning = Learning(agent, EnvSpec(obs_dim=3, act_dim=1), envs=1, capacity=steps, normalize=True, recency=8.0)
    device = Device(learning, learning.start([0]))  # one seed, number 0

    chance = np.random.default_rng(0)
    obs, fresh, total, returns = env.reset(seed=0)[0], True, 0.0, []
    for iteration in range(steps):
        warm = iteration < warmup  # random actions, no learning
        one = lambda value: np.asarray(value, np.float32)[None, None]  # axes: seeds, environments
        actions = device.act(one(obs), np.array([[fresh]]), iteration)
        action = chance.uniform(-1.0, 1.0, 1) if warm else np.asarray(actions)[0, 0]
        next_obs, reward, terminated, truncated, _ = env.step(2.0 * action)
        # The discount is 0 where the task ended; a time limit is no end.
        taken = Transition(one(obs), one(action), one(reward), one(0.0 if terminated else 1.0), one(next_obs))
        device.store(taken) if warm else device.learn(taken, iteration)
        total, obs, fresh = total + reward, next_obs, terminated or truncated
        if fresh:
            returns.append(float(total))
            print(f"step {iteration + 1}: return {total:.0f}")
            obs, total = env.reset()[0], 0.0
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=6000)
    main(parser.parse_args().steps)
