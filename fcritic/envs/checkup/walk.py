"""A walk of random actions: every answer is looked at, and what is needed to judge them together is kept."""

from collections.abc import Iterator
import dataclasses
import time
from typing import Any, NamedTuple

import gymnasium
from gymnasium.spaces.utils import flatten_space
import numpy as np

from fcritic.envs.answers import LARGEST, WrongAnswer, describe, number, parts, truth
from fcritic.envs.checkup.findings import Finding
from fcritic.envs.checkup.subject import Subject
from fcritic.envs.gym import ANSWER
from fcritic.envs.gym_spaces import Spaces
from fcritic.envs.own import told
from fcritic.envs.watch import Hang
from fcritic.errors import EnvironmentFault

SEED = 123
LONGEST = 20.0
"""Seconds after which a walk ends, whatever is left of its steps."""


class Ending(NamedTuple):
    """How an episode ended."""

    length: int
    terminated: bool
    truncated: bool


@dataclasses.dataclass
class Walk:
    """What was seen on the way."""

    obs: list[np.ndarray] = dataclasses.field(default_factory=list)
    rewards: list[float] = dataclasses.field(default_factory=list)
    endings: list[Ending] = dataclasses.field(default_factory=list)
    length: int = 0
    """Steps of the episode that is under way."""
    stepping: float = 0.0
    resetting: float = 0.0
    """Seconds."""
    goes_on: bool | None = None
    """Whether a step after an end was accepted; None before it was tried."""

    @property
    def steps(self) -> int:
        """Steps taken."""
        return len(self.rewards)


class Walker:
    """Walks in one environment; `findings` are what is wrong with single answers."""

    def __init__(self, subject: Subject, env: gymnasium.Env):
        self.env, self.walk, self.findings = env, Walk(), []
        self._subject = subject
        self._spaces = Spaces(subject.task, env.observation_space, env.action_space)
        self.spec = self._spaces.spec
        self._bounds = flatten_space(env.observation_space)
        self._rng = np.random.default_rng(0)
        self._kept: tuple[Any, np.ndarray] | None = None

    def go(self, steps: int) -> bool:
        """Takes so many steps in as many episodes as that needs; False where an answer made it impossible."""
        begun = time.monotonic()
        try:
            self._reset(SEED)
            while self.walk.steps < steps and time.monotonic() - begun < LONGEST:
                if self._step():
                    self._try_beyond()
                    self._reset(None)
        except WrongAnswer as error:
            self._found(
                "error", "wrong-answer", str(error), "see what an environment must promise: docs/environments.md"
            )
        except Hang:
            self._found("error", "too-slow", f"a call did not come back within {self._subject.timeout:g} s")
        except EnvironmentFault as error:
            self._found("error", "raises", str(error))
        except (Exception, SystemExit) as error:
            self._found("error", "raises", f"the environment raised {told(error)}")
        else:
            return True
        return False

    def random_action(self) -> np.ndarray:
        """Uniform within the bounds."""
        return self._spaces.scale(self._rng.uniform(-1, 1, self.spec.act_dim))

    def flatten(self, observation: Any) -> np.ndarray:
        """An observation as the networks see it."""
        return self._spaces.flatten(observation)

    @property
    def _where(self) -> str:
        return f"step {self.walk.length} of episode {len(self.walk.endings) + 1}"

    def _found(self, level: str, name: str, what: str, advice: str = "", where: str | None = None) -> None:
        if name not in {finding.name for finding in self.findings}:  # the first of a kind is enough
            self.findings.append(Finding(level, name, what, self._where if where is None else where, advice))

    def _reset(self, seed: int | None) -> None:
        begun = time.perf_counter()
        observation, _ = parts("reset", self._subject.timed(self.env.reset, seed=seed), ("observation", "info"))
        self.walk.resetting += time.perf_counter() - begun
        self.walk.length = 0
        self._look(observation)

    def _step(self) -> bool:
        action = self.random_action()
        given = action.copy()
        begun = time.perf_counter()
        answer = self._subject.timed(self.env.step, action)
        self.walk.stepping += time.perf_counter() - begun
        self.walk.length += 1
        observation, reward, terminated, truncated, _ = parts("step", answer, ANSWER)
        self._look(observation)
        self.walk.rewards.append(self._reward(reward))
        if not np.array_equal(action, given):
            advice = "work on a copy: np.array(action)"
            self._found("warning", "action-changed", "step writes into the action that it was given", advice)
        flags = truth("terminated", terminated), truth("truncated", truncated)
        if any(flags):
            self.walk.endings.append(Ending(self.walk.length, *flags))
        return any(flags)

    def _reward(self, reward: Any) -> float:
        value = number("reward", reward)
        if not abs(value) <= LARGEST:
            self._found(
                "error", "not-finite", f"the reward is {value}", "find the division by zero or the overflow"
            )
        return value

    def _look(self, observation: Any) -> None:
        flat = self._spaces.flatten(observation)
        if self._kept is not None:
            earlier, copy = self._kept
            if not np.array_equal(self._spaces.flatten(earlier), copy, equal_nan=True):
                what = "an observation that was handed out changes in the next step: it is the same array"
                self._found(
                    "warning", "aliasing", what, "return a copy; fcritic makes one itself, other code may not"
                )
        self._kept = observation, flat
        self.walk.obs.append(flat)
        for finding in self._about(observation, flat):
            self._found(*finding)

    def _about(self, observation: Any, flat: np.ndarray) -> Iterator[tuple]:
        if not np.isfinite(flat).all():
            yield "error", "not-finite", describe("observation", flat), "find the division by zero or the overflow"
            return
        low, high = self._bounds.low, self._bounds.high
        slack = 1e-5 * np.maximum(1, np.abs(flat))
        outside = np.flatnonzero((flat < low - slack) | (flat > high + slack))
        if outside.size:
            index = int(outside[0])
            what = f"observation[{index}] is {flat[index]:g}, outside its space [{low[index]:g}, {high[index]:g}]"
            advice = "declare the bounds that it has (np.inf if none); fcritic does not clip, other code may"
            yield "warning", "observation-outside", what, advice
        declared = getattr(self._spaces.observation_space, "dtype", None)
        given = getattr(observation, "dtype", None)
        if declared is not None and given != declared:
            what = f"observations are {given or type(observation).__name__}, their space says {declared}"
            yield "note", "observation-dtype", what, "harmless here: all become float32", "observation"

    def _try_beyond(self) -> None:
        """One step after the end, which the training never takes: it must not spoil the next episode."""
        if self.walk.goes_on is None:
            try:
                self._subject.timed(self.env.step, self.random_action())
                self.walk.goes_on = True
            except Exception:  # as it should be
                self.walk.goes_on = False
