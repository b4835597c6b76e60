"""RiverSwim and DeepSea as environments with continuous actions, on the exact models of `fcritic.envs.exact`.

The action is a probability: a in [-1, 1] takes action 1 of the model with probability (1 + a) / 2. In RiverSwim
action 1 goes right. In DeepSea the action that goes right is drawn for each cell, as in the standard task, so that
no constant action finds the treasure. Observations are one-hot vectors.
"""

import functools
import re
from typing import TYPE_CHECKING

import numpy as np

from fcritic.envs.base import AbstractEnv, EnvState, Step
from fcritic.errors import UsageError
from fcritic.types import EnvSpec

if TYPE_CHECKING:
    from fcritic.envs.exact import Task

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

    river, length, sea, size, stochastic = _NAME.fullmatch(name).groups()
    kind, number = river or sea, int(length or size)
    if number > LARGEST[kind]:
        raise UsageError(f"{name} is larger than {kind}-{LARGEST[kind]}, the largest that is offered")
    return river_swim(number) if river else deep_sea(number, stochastic=stochastic is not None)


class FiniteEnv(AbstractEnv):
    """One copy of a finite task, such as ``FiniteEnv("deepsea-10", seed=0)``."""

    def __init__(self, name: str, *, seed: int):
        self.name, self.model = name, _model(name)
        model = self.model
        self.spec = EnvSpec(obs_dim=model.layers * model.states, act_dim=1)
        self._cumulative = model.P.cumsum(axis=-1)
        self._step, self._position = model.horizon, 0  # over until the first reset
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Makes episodes from the next `reset` on those of an environment built with this seed."""
        self._seed, self._episode = seed, -1

    def reset(self) -> np.ndarray:
        """Begins an episode in the first state."""
        self._episode += 1
        self._step = self._position = 0
        self._draw()
        return self._observe()

    def _draw(self) -> None:
        # From (seed, episode) rather than from a running generator, so four integers are all the state.
        random = np.random.default_rng([self._seed, self._episode])
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
        if self._step >= model.horizon:
            raise RuntimeError(f"{self.name}: the episode is over or has not begun; call reset() first")
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
        if episode >= 0:
            self._draw()
