"""Tiny tasks whose action values are known exactly, to check that a critic learns what it should.

Each isolates one thing that can go wrong, so the first probe an agent fails tells where to look. All have
one observation and one action; the reward is a function of these two alone.
"""

from collections.abc import Callable
import dataclasses
from typing import Literal

import numpy as np

from fcritic.envs.base import AbstractEnv, EnvState, Step
from fcritic.errors import UsageError, did_you_mean
from fcritic.types import EnvSpec

Policy = Callable[[np.ndarray], np.ndarray]
"""A deterministic policy: observation in, action out, both of shape (1,)."""


@dataclasses.dataclass(frozen=True)
class Probe:
    """One row of the table below."""

    purpose: str
    """What an agent that fails here has got wrong."""
    reward: Callable[[float, float], float]
    """Of observation and action."""
    best: Callable[[float], float] = lambda obs: 0.0
    """The best action for an observation; 0 where the action does not matter."""
    steps: int = 1
    """Length of an episode."""
    shows: Literal["nothing", "sign", "step"] = "nothing"
    """What the observation tells: 0 always, a random -1 or +1 that lasts the episode, or the step."""
    step_scale: float = 1.0
    """Observation per step where the step is shown; never above 1."""
    terminates: bool = True
    """Whether the last step is the end of the task (discount 0) or a time limit (discount 1)."""

    def observation(self, step: int, sign: float) -> float:
        """What is seen at a step of an episode."""
        return {"nothing": 0.0, "sign": sign, "step": min(1.0, step * self.step_scale)}[self.shows]


PROBES = {
    "constant": Probe("values regress to the reward", lambda obs, act: 1.0),
    "observation": Probe("values see the observation", lambda obs, act: obs, shows="sign"),
    "delay": Probe("values look one step ahead", lambda obs, act: obs, steps=2, shows="step"),
    "action": Probe("values see the action", lambda obs, act: 1 - (act - 0.5) ** 2, best=lambda obs: 0.5),
    "both": Probe(
        "the policy sees the observation",
        lambda obs, act: 1 - (act - 0.5 * obs) ** 2,
        best=lambda obs: 0.5 * obs,
        shows="sign",
    ),
    "limit": Probe("time limits do not end the task", lambda obs, act: 1.0, steps=5, terminates=False),
    "terminate": Probe("termination does", lambda obs, act: 1.0, steps=5, shows="step", step_scale=0.2),
    "policy": Probe(
        "values see the policy", lambda obs, act: obs * act, best=lambda obs: 1.0, steps=2, shows="step"
    ),
}
"""The probes by name, in the order in which to try them."""


def probe_tasks() -> list[str]:
    """Names of all probes as tasks: ``probe-constant`` and so on."""
    return [f"probe-{name}" for name in PROBES]


class ProbeEnv(AbstractEnv):
    """One probe as an environment, for example ``ProbeEnv("delay", seed=0)``."""

    spec = EnvSpec(obs_dim=1, act_dim=1)

    def __init__(self, name: str, *, seed: int):
        if name not in PROBES:
            known = did_you_mean(f"probe-{name}", probe_tasks()) or f"; known are {', '.join(probe_tasks())}"
            raise UsageError(f"unknown probe 'probe-{name}'{known}")
        self.name = f"probe-{name}"
        self.probe = PROBES[name]
        self._step = self.probe.steps  # over until the first reset
        self._sign = 0.0
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """From the next `reset` on, be like an environment that was built with this seed."""
        self._seed, self._episode = seed, -1

    def reset(self) -> np.ndarray:
        """Begins an episode and returns its first observation."""
        self._episode += 1
        self._step = 0
        self._draw_sign()
        return self._observe()

    def _draw_sign(self) -> None:
        # Drawn from (seed, episode) rather than from a running generator, so two integers are all the state.
        self._sign = float(2 * np.random.default_rng([self._seed, self._episode]).integers(2) - 1)

    def _observe(self) -> np.ndarray:
        return np.array([self.probe.observation(self._step, self._sign)], np.float32)

    def step(self, action: np.ndarray) -> Step:
        """Takes one action."""
        if self._step >= self.probe.steps:
            raise RuntimeError(f"{self.name}: the episode is over or has not begun; call reset() first")
        obs = self.probe.observation(self._step, self._sign)
        reward = self.probe.reward(obs, min(1.0, max(-1.0, float(action[0]))))
        self._step += 1
        last = self._step == self.probe.steps
        return Step(self._observe(), reward, float(not (last and self.probe.terminates)), last)

    def action_value(self, policy: Policy, obs: np.ndarray, act: np.ndarray, discount: float) -> float:
        """Q(policy, obs, act): the discounted rewards of taking `act` and following `policy` after it."""
        probe, seen = self.probe, float(obs[0])
        value = probe.reward(seen, float(act[0]))
        if not probe.terminates:  # one observation for ever, since a time limit is not part of the task
            return value + discount / (1 - discount) * probe.reward(seen, float(policy(obs)[0]))
        step = round(seen / probe.step_scale) if probe.shows == "step" else 0
        for later in range(step + 1, probe.steps):
            then = np.array([probe.observation(later, seen)], np.float32)
            value += discount ** (later - step) * probe.reward(float(then[0]), float(policy(then)[0]))
        return value

    def best_policy(self, obs: np.ndarray) -> np.ndarray:
        """The action of the best policy; 0 where no action is better than another."""
        return np.array([self.probe.best(float(obs[0]))], np.float32)

    def state(self) -> EnvState:
        """Three integers: seed, episode and step."""
        return {"place": np.array([self._seed, self._episode, self._step], np.int64)}

    def restore(self, state: EnvState) -> None:
        """Continues exactly from a saved state."""
        self._seed, self._episode, self._step = (int(number) for number in state["place"])
        if self._episode >= 0:
            self._draw_sign()
