"""Small tasks with known answers: probes of a critic, a trap for actors without noise, RiverSwim and DeepSea."""

import abc
from collections.abc import Callable
import dataclasses
import functools
import re
from typing import TYPE_CHECKING, Literal

import numpy as np

from fcritic.envs.base import AbstractEnv, EnvState, Step
from fcritic.errors import UsageError, did_you_mean
from fcritic.types import EnvSpec

if TYPE_CHECKING:
    from fcritic.envs.exact import Task


class AbstractToyEnv(AbstractEnv):
    """A task whose random numbers follow from its seed and the number of the episode alone."""

    def __init__(self, horizon: int, seed: int):
        self._horizon = self._step = horizon  # over until the first reset
        self._position = 0
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Makes episodes from the next `reset` on those of an environment built with this seed."""
        self._seed, self._episode = seed, -1

    def reset(self) -> np.ndarray:
        """Begins an episode and returns its first observation."""
        self._episode += 1
        self._step = self._position = 0
        self._draw(np.random.default_rng([self._seed, self._episode]))
        return self._observe()

    def _draw(self, random: np.random.Generator) -> None:
        """Draws what is random in an episode."""

    @abc.abstractmethod
    def _observe(self) -> np.ndarray:
        """Returns what is seen now."""

    def _require_open(self) -> None:
        if self._step >= self._horizon:
            raise RuntimeError(f"{self.name}: the episode is over or has not begun; call reset() first")

    def _restore_draws(self) -> None:
        if self._episode >= 0:
            self._draw(np.random.default_rng([self._seed, self._episode]))


# Probes: each isolates one thing that can go wrong, so the first one that an agent fails shows where to look

Policy = Callable[[np.ndarray], np.ndarray]
"""A deterministic policy: observation in, action out, both of shape (1,)."""


@dataclasses.dataclass(frozen=True)
class Probe:
    """One row of the table below."""

    purpose: str
    """What an agent that passes has learned."""
    reward: Callable[[float, float], float]
    """Of observation and action."""
    best: Callable[[float], float] = lambda obs: 0.0
    """The best action for an observation; 0 where the action does not matter."""
    steps: int = 1
    """Length of an episode."""
    shows: Literal["nothing", "sign", "step"] = "nothing"
    """The content of the observation: always 0, a random -1 or +1 that lasts the episode, or the step."""
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


class ProbeEnv(AbstractToyEnv):
    """One probe as an environment, for example ``ProbeEnv("delay", seed=0)``."""

    spec = EnvSpec(obs_dim=1, act_dim=1)

    def __init__(self, name: str, *, seed: int):
        if name not in PROBES:
            known = did_you_mean(f"probe-{name}", probe_tasks()) or f"; known are {', '.join(probe_tasks())}"
            raise UsageError(f"unknown probe 'probe-{name}'{known}")
        self.name = f"probe-{name}"
        self.probe = PROBES[name]
        super().__init__(self.probe.steps, seed)

    def _draw(self, random: np.random.Generator) -> None:
        self._sign = float(2 * random.integers(2) - 1)

    def _observe(self) -> np.ndarray:
        return np.array([self.probe.observation(self._step, self._sign)], np.float32)

    def step(self, action: np.ndarray) -> Step:
        """Takes one action."""
        self._require_open()
        obs = self.probe.observation(self._step, self._sign)
        reward = self.probe.reward(obs, min(1.0, max(-1.0, float(action[0]))))
        self._step += 1
        last = self._step == self._horizon
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
        self._restore_draws()


# A trap for actors without noise: one step from the reward, and nothing that points to it

STEPS = 50
"""Time limit of an episode."""
REACH = 0.1
"""How far an action of 1 goes."""


class TrapEnv(AbstractToyEnv):
    """The position s in [0, 1] begins at 0; an action a moves it by a / 10; below 0 the task ends with reward 1.

    Any action below zero solves it at once. An actor without noise whose first action is above zero sees no reward,
    so its critic learns that nothing is worth anything, and no gradient leads it back. The best value at s is
    discount^n, where n = floor(10 s) is the number of full steps before the one that crosses 0. Seen is 2 s - 1: at
    an observation of exactly 0 networks without biases are exactly 0 too, and so are their gradients.
    """

    spec = EnvSpec(obs_dim=1, act_dim=1)
    name = "trap"

    def __init__(self, *, seed: int):
        super().__init__(STEPS, seed)

    def _observe(self) -> np.ndarray:
        return np.array([2 * self._position - 1], np.float32)

    def step(self, action: np.ndarray) -> Step:
        """Moves; a step across 0 ends the task, the fiftieth step ends the episode only."""
        self._require_open()
        goes = self._position + REACH * min(1.0, max(-1.0, float(action[0])))
        out = goes < 0
        self._position = min(1.0, max(0.0, goes))
        self._step = STEPS if out else self._step + 1
        return Step(self._observe(), float(out), float(not out), self._step == STEPS)

    def state(self) -> EnvState:
        """Step and position."""
        return {"step": np.array(self._step, np.int64), "position": np.array(self._position, np.float64)}

    def restore(self, state: EnvState) -> None:
        """Continues exactly from a saved state."""
        step, position = int(state["step"]), float(state["position"])
        if not (0 <= step <= STEPS and 0 <= position <= 1):
            raise ValueError(f"trap has no step {step} at position {position}")
        self._step, self._position = step, position


# RiverSwim and DeepSea: a in [-1, 1] takes action 1 of the exact model with probability (1 + a) / 2

LARGEST = {"riverswim": 1000, "deepsea": 100}
"""The largest sizes: a sea of N columns has N * N observations, a river's model N * N numbers."""

_NAME = re.compile(r"(riverswim)-([0-9]{1,6})|(deepsea)-([0-9]{1,6})(-stochastic)?")


def finite_tasks() -> list[str]:
    """Returns the names of the usual sizes. Other sizes are built by their number."""
    seas = [f"deepsea-{size}{form}" for size in (10, 20, 30) for form in ("", "-stochastic")]
    return [*(f"riverswim-{length}" for length in (6, 12, 20)), *seas]


def is_finite_task(name: str) -> bool:
    """Returns whether a name is that of a river or a sea."""
    return _NAME.fullmatch(name) is not None


@functools.cache
def _model(name: str) -> "Task":
    """Returns the exact model of a task, which all copies share."""
    from fcritic.envs.exact import deep_sea, river_swim

    river, length, sea, size, stochastic = _NAME.fullmatch(name).groups()  # pyright: ignore[reportOptionalMemberAccess]
    kind, number = river or sea, int(length or size)
    if number > LARGEST[kind]:
        raise UsageError(f"{name} is larger than {kind}-{LARGEST[kind]}, the largest that is offered")
    return river_swim(number) if river else deep_sea(number, stochastic=stochastic is not None)


class FiniteEnv(AbstractToyEnv):
    """One copy of a finite task, such as ``FiniteEnv("deepsea-10", seed=0)``."""

    def __init__(self, name: str, *, seed: int):
        self.name, self.model = name, _model(name)
        model = self.model
        self.spec = EnvSpec(obs_dim=model.layers * model.states, act_dim=1)
        self._cumulative = model.P.cumsum(axis=-1)
        super().__init__(model.horizon, seed)

    def _draw(self, random: np.random.Generator) -> None:
        self._chances = random.random((self.model.horizon, 2))
        self._noise = random.standard_normal(self.model.horizon)

    def _observe(self) -> np.ndarray:
        """Returns a one-hot vector over layers and states; zeros at the bottom of the sea, which is terminal."""
        obs = np.zeros(self.spec.obs_dim, np.float32)
        if not (self.model.ends and self._step == self.model.horizon):
            obs[self._layer * self.model.states + self._position] = 1.0
        return obs

    @property
    def _layer(self) -> int:
        return self._step % self.model.layers

    def step(self, action: np.ndarray) -> Step:
        """Takes action 1 with probability (1 + a) / 2."""
        model, layer = self.model, self._layer
        self._require_open()
        chance, outcome = self._chances[self._step]
        place = layer, self._position, int(chance < (1 + min(1.0, max(-1.0, float(action[0])))) / 2)
        reward = model.reward[place] + model.noise[place] * self._noise[self._step]
        cumulative = self._cumulative[place]
        self._position = int(model.successors[self._position, (outcome * cumulative[-1] >= cumulative).sum()])
        self._step += 1
        last = self._step == model.horizon
        return Step(self._observe(), float(reward), float(not (last and model.ends)), last)

    def state(self) -> EnvState:
        """Returns four integers: seed, episode, step and position."""
        return {"place": np.array([self._seed, self._episode, self._step, self._position], np.int64)}

    def restore(self, state: EnvState) -> None:
        """Continues exactly from a saved state."""
        seed, episode, step, position = (int(number) for number in state["place"])
        if not (0 <= step <= self.model.horizon and 0 <= position < self.model.states):
            raise ValueError(f"{self.name} has no step {step} at position {position}")
        self._seed, self._episode, self._step, self._position = seed, episode, step, position
        self._restore_draws()
