"""A check of an environment before hours of training are spent on it.

It looks at the declared spaces, then at the answers to random actions, then at whether the environment is
reproducible.
"""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import time
from typing import Any, Literal, NamedTuple

import gymnasium
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Tuple
from gymnasium.spaces.utils import flatten_space
import numpy as np

from fcritic import envs
from fcritic.envs.answers import ANSWERS, LARGEST, WrongAnswer, behind_wrappers, describe, number, parts, truth
from fcritic.envs.arguments import split
from fcritic.envs.base import EPISODE_LIMIT, AbstractEnv
from fcritic.envs.gym import GymEnv, Spaces, find_time_limit, make_gym
from fcritic.envs.local import LONGEST, Hang, Watch
from fcritic.envs.own import Task, call, find_factory, name_of, takes_many, told
from fcritic.errors import EnvironmentFault, UsageError, require_at_least

# Findings

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was noticed."""

    level: Level
    """`error`: training fails or learns nonsense; `warning`: probably not what you want; `note`: good to know."""
    name: str
    """Short and fixed, for programs."""
    what: str
    where: str = ""
    """The step, the field, the space."""
    advice: str = ""
    """What to do."""

    def text(self) -> str:
        """For a person."""
        where = f" ({self.where})" if self.where else ""
        advice = f"\n         -> {self.advice}" if self.advice else ""
        return f"{self.level:<8} {self.what}{where}{advice}"


@dataclasses.dataclass(frozen=True)
class Report:
    """All that a check found."""

    task: str
    findings: list[Finding]
    facts: dict[str, Any]
    """Sizes, steps taken, steps per second."""

    @property
    def healthy(self) -> bool:
        """Whether training can work: there are no errors."""
        return not self.named("error")

    def named(self, level: Level) -> list[str]:
        """The names of the findings of one level."""
        return [finding.name for finding in self.findings if finding.level == level]

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        findings = [dataclasses.asdict(finding) for finding in self.findings]
        return {"task": self.task, "healthy": self.healthy, "findings": findings, "facts": self.facts}

    def __str__(self) -> str:
        ordered = sorted(self.findings, key=lambda finding: LEVELS.index(finding.level))
        counts = [_count(len(self.named(level)), level) for level in LEVELS]
        verdict = "ready for training" if self.healthy else "correct the errors before training"
        return "\n".join([*(finding.text() for finding in ordered), f"{self.task}: {', '.join(counts)}; {verdict}"])


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


# The environment under test, as Gymnasium and as training see it


class Plain(gymnasium.Env):
    """An `AbstractEnv` behind Gymnasium's interface."""

    def __init__(self, inner: envs.AbstractEnv):
        self.inner = inner
        self.observation_space = spaces.Box(-np.inf, np.inf, (inner.spec.obs_dim,))
        self.action_space = spaces.Box(-1.0, 1.0, (inner.spec.act_dim,))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Begins an episode."""
        if seed is not None:
            self.inner.reseed(seed)
        return self.inner.reset(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Takes an action."""
        obs, reward, discount, last = self.inner.step(action)
        ended = last and discount == 0
        return obs, reward, bool(ended), bool(last and not ended), {}

    def close(self) -> None:
        """Closes what is inside."""
        self.inner.close()


class OneOfMany(gymnasium.Env):
    """The only sub-environment of a vector environment, by the training's own way of reading it."""

    def __init__(self, task: str):
        self._vector = envs.make_vector(task, seeds=[0], envs=1)
        spec = self._vector.spec
        self.observation_space = spaces.Box(-np.inf, np.inf, (spec.obs_dim,))
        self.action_space = spaces.Box(-1.0, 1.0, (spec.act_dim,))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Begins an episode where a seed is given; otherwise the vector has begun it by itself."""
        if seed is not None:
            self._vector.restart([[seed]])
        return self._vector.obs[0, 0].copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Takes an action."""
        taken, episodes = self._vector.step(np.asarray(action, np.float32)[None, None])
        ended = bool(taken.discount[0, 0] == 0)
        obs, reward = taken.next_obs[0, 0].copy(), float(taken.reward[0, 0])
        return obs, reward, ended, bool(episodes) and not ended, {}

    def close(self) -> None:
        """Closes the vector."""
        self._vector.close()


class Subject:
    """A task that can be built again and again, and whose calls must come back in time."""

    def __init__(self, task: str, timeout: float):
        self.task, self.timeout = task, timeout
        name, self._arguments = split(task)
        factory = find_factory(name) if ":" in name else None
        self.is_vector = factory is not None and takes_many(factory)
        self._build = self._builder(factory)

    def _builder(self, factory: Callable | None) -> Callable[[], Any]:
        if self.is_vector:
            return lambda: OneOfMany(self.task)
        if factory is not None:
            return lambda: call(self.task, factory, self._arguments) if self._arguments else factory()
        name = split(self.task)[0]
        if ":" in name or name in envs.gym_tasks():
            return lambda: make_gym(name, **self._arguments)
        return lambda: envs.make(self.task, seed=0)

    def build(self) -> gymnasium.Env:
        """Returns a new one; raises TypeError if it is not an environment."""
        env = self.timed(self._build)
        if isinstance(env, envs.AbstractEnv):
            return Plain(env)
        if not isinstance(env, gymnasium.Env):
            raise TypeError(f"the factory returned {env!r:.60}, which is not a gymnasium.Env")
        return env

    def as_trained(self, seed: int) -> envs.AbstractEnv:
        """A new one as the training sees it."""
        env = self.build()
        if isinstance(env, Plain):
            env.inner.reseed(seed)
            return env.inner
        return GymEnv(env, seed=seed)

    def timed(self, function: Callable, *arguments: Any, **options: Any) -> Any:
        """Calls an environment; `Hang` where it does not come back."""
        with Watch(self.timeout) as watch:
            watch.begin(0)
            return function(*arguments, **options)


# A walk of random actions, which checks every answer and keeps what judging the whole walk needs

SEED = 123
WALK_LIMIT = 20.0
"""Seconds after which a walk ends, whatever is left of its steps."""


class Ending(NamedTuple):
    """How an episode ended."""

    length: int
    terminated: bool
    truncated: bool


@dataclasses.dataclass
class Walk:
    """The record of a walk."""

    obs: list[np.ndarray] = dataclasses.field(default_factory=list)
    rewards: list[float] = dataclasses.field(default_factory=list)
    endings: list[Ending] = dataclasses.field(default_factory=list)
    length: int = 0
    """Steps of the current episode."""
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
        self._bounds: Any = flatten_space(env.observation_space)
        self._rng = np.random.default_rng(0)
        self._kept: tuple[Any, np.ndarray] | None = None

    def go(self, steps: int) -> bool:
        """Takes this many steps in as many episodes as needed; returns False if an answer prevented that."""
        begun = time.monotonic()
        try:
            self._reset(SEED)
            while self.walk.steps < steps and time.monotonic() - begun < WALK_LIMIT:
                if self._step():
                    self._try_beyond()
                    self._reset(None)
        except Hang:
            self._found("error", "too-slow", f"a call did not come back within {self._subject.timeout:g} s")
        except EnvironmentFault as error:
            self._found("error", "raises", str(error))
        except (Exception, SystemExit) as error:
            wrong = error if isinstance(error, WrongAnswer) else behind_wrappers(error)
            if wrong is None:
                self._found("error", "raises", f"the environment raised {told(error)}")
            else:
                self._found("error", "wrong-answer", str(wrong), "see the requirements in docs/environments.md")
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
        observation, _ = parts("reset", self._subject.timed(self.env.reset, seed=seed), ANSWERS["reset"])
        self.walk.resetting += time.perf_counter() - begun
        self.walk.length = 0
        self._look(observation)

    def _step(self) -> bool:
        action = self.random_action()
        given = action.copy()
        self.walk.length += 1
        begun = time.perf_counter()
        answer = self._subject.timed(self.env.step, action)
        self.walk.stepping += time.perf_counter() - begun
        observation, reward, terminated, truncated, _ = parts("step", answer, ANSWERS["step"])
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
        """Takes one step after the end, which training never does: it must not affect the next episode."""
        if self.walk.goes_on is None:
            try:
                self._subject.timed(self.env.step, self.random_action())
                self.walk.goes_on = True
            except Exception:  # as it should be
                self.walk.goes_on = False


# Judging the declared spaces, before anything is run

WIDE = 100.0
"""Action ranges that differ by more than this factor, or bounds beyond 10 times this, look like mistakes."""
MANY = 1000
"""Numbers of an observation that are more than a small network reads well."""


def judge_spaces(env: gymnasium.Env) -> Iterator[Finding]:
    """Both spaces."""
    if getattr(env, "action_space", None) is None or getattr(env, "observation_space", None) is None:
        advice = "set self.action_space and self.observation_space in __init__"
        yield Finding("error", "no-space", "the environment declares no action or observation space", advice=advice)
        return
    yield from _actions(env.action_space)
    yield from _observations(env.observation_space)


def _actions(space: Any) -> Iterator[Finding]:
    where = f"action_space {space}"
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        yield Finding(
            "error",
            "actions-discrete",
            "actions are not continuous: these methods need a Box of floats",
            where,
            "give continuous actions (torques, velocities), or use a method for discrete ones",
        )
        return
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        yield Finding(
            "error",
            "actions-unbounded",
            "actions have no finite bounds, so there is nothing to scale [-1, 1] to",
            where,
            "declare the range that the actuators have: Box(low, high, shape)",
        )
        return
    span = (space.high - space.low).astype(np.float64).ravel()
    advice = "declare for each actuator the range that it can use"
    if (span == 0).any():
        what = f"action[{int(np.argmin(span))}] has a range of zero, so it has no effect"
        yield Finding("warning", "actions-scale", what, where, advice)
    elif span.max() > WIDE * span.min() or max(np.abs(space.low).max(), np.abs(space.high).max()) > 10 * WIDE:
        what = f"the ranges of actions run from {span.min():g} to {span.max():g}"
        yield Finding("warning", "actions-scale", what, where, advice)


def _observations(space: Any) -> Iterator[Finding]:
    leaves = list(_leaves(space, "observation"))
    for field, leaf in leaves:
        if not isinstance(leaf, Box):
            advice = "give numbers (a one-hot vector for a choice), or wrap it in FlattenObservation"
            yield Finding("error", "observation-kind", f"{field} is {leaf}, not a Box", "observation_space", advice)
            return
    if sum(leaf.shape == () or int(np.prod(leaf.shape)) for _, leaf in leaves) == 0:
        yield Finding("error", "observation-kind", "an observation holds no numbers", "observation_space")
        return
    images = [field for field, leaf in leaves if leaf.dtype == np.uint8 or len(leaf.shape) >= 3]
    size = sum(int(np.prod(leaf.shape)) for _, leaf in leaves)
    if images or size > MANY:
        what = f"{images[0] if images else 'the observation'} looks like an image: {size:,} numbers in all"
        advice = "the networks here expect dozens to hundreds of numbers; give positions and velocities instead"
        yield Finding("warning", "observation-image", what, "observation_space", advice)
    if len(leaves) > 1:
        order = ", ".join(field.removeprefix("observation") for field, _ in leaves[:6])
        what = f"{len(leaves)} parts are joined to {size} numbers in the order {order}"
        yield Finding("note", "observation-parts", what, "observation_space")


def _leaves(space: Any, field: str) -> Iterator[tuple[str, Any]]:
    if isinstance(space, Dict | Tuple):
        named = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        for key, part in named:
            yield from _leaves(part, f"{field}[{key!r}]")
    else:
        yield field, space


# Judging a whole walk: rewards, ends of episodes, scales of observations, speed

HUGE, TINY = 1000.0, 1e-3
"""Rewards beyond these make values that networks learn badly."""
APART = 1000.0
"""Deviations of observations that differ by more than this factor."""
SLOW = 300.0
"""Steps per second below which the environment, not the learning, takes the time."""


def judge_walk(walk: Walk, limit: int | None) -> Iterator[Finding]:
    """All of it; `limit` is that of Gymnasium's TimeLimit where there is one."""
    yield from _rewards(walk)
    yield from _endings(walk, limit)
    yield from _scales(np.stack(walk.obs))
    yield from _speed(walk)


def _rewards(walk: Walk) -> Iterator[Finding]:
    rewards = np.array(walk.rewards)
    largest, where = float(np.abs(rewards).max()), f"{walk.steps} random steps"
    if largest == 0:
        advice = "random actions must meet a reward now and then; shape it, or begin episodes nearer to the goal"
        yield Finding("warning", "reward-zero", "every reward was zero", where, advice)
    elif largest > HUGE:
        what = f"rewards reach {largest:g}, so values reach {largest / (1 - 0.99):.2g} with a discount of 0.99"
        yield Finding("warning", "reward-huge", what, where, "divide rewards until most are between -1 and 1")
    elif largest < TINY:
        what = f"no reward is larger than {largest:g}: differences vanish in the critics' errors"
        yield Finding("warning", "reward-tiny", what, where, "multiply rewards until some are near 1")
    elif walk.steps > 1 and np.ptp(rewards) == 0 and not any(ending.terminated for ending in walk.endings):
        what = f"every reward was {rewards[0]:g} and nothing terminated: all policies have the same value"
        yield Finding("warning", "reward-constant", what, where, "let the reward depend on what is done")


def _endings(walk: Walk, limit: int | None) -> Iterator[Finding]:
    if not walk.endings:
        if limit is None or limit > EPISODE_LIMIT:
            what = "no episode ended, and there is no time limit: an evaluation would never end"
            advice = "set max_episode_steps when registering, or wrap it in gymnasium.wrappers.TimeLimit"
            yield Finding("warning", "never-ends", what, f"{walk.steps} random steps", advice)
        return
    lengths = [ending.length for ending in walk.endings]
    if max(lengths) == 1:
        what = f"all {len(lengths)} episodes ended after one step"
        yield Finding("warning", "ends-at-once", what, advice="look at the condition for terminated")
        return
    confusions = list(_confusions(walk, limit, lengths))
    yield from confusions
    if not confusions and limit is None and not any(ending.truncated for ending in walk.endings):
        what = "episodes end by termination alone: evaluation gives up on one that a good policy never ends"
        advice = f"add a time limit (max_episode_steps) if episodes can exceed {EPISODE_LIMIT:,} steps"
        yield Finding("note", "no-time-limit", what, advice=advice)
    if walk.goes_on:
        yield Finding("note", "step-after-end", "a step after the end is accepted; fcritic never takes one")


def _confusions(walk: Walk, limit: int | None, lengths: list[int]) -> Iterator[Finding]:
    """Time limits reported as ends, and ends as time limits: the critics would learn wrong values."""
    kinds = {(ending.terminated, ending.truncated) for ending in walk.endings}
    same = len(lengths) >= 3 and len(set(lengths)) == 1
    if kinds == {(True, False)} and same:
        what = f"all {len(lengths)} episodes terminated after exactly {lengths[0]} steps, as a time limit would do"
        advice = "if it is one, return terminated=False, truncated=True: values then look beyond it"
        yield Finding("warning", "limit-as-end", what, "terminated", advice)
    elif kinds == {(True, True)}:
        advice = "return truncated for a time limit and terminated for a true end, not both"
        yield Finding(
            "warning", "both-flags", "terminated and truncated always come together", "terminated", advice
        )
    elif kinds == {(False, True)} and limit is None and len(set(lengths)) > 1:
        what = f"episodes are truncated after {min(lengths)} to {max(lengths)} steps and never terminated"
        advice = "if something ended (a fall, a goal), return terminated=True: nothing comes after it"
        yield Finding("warning", "end-as-limit", what, "truncated", advice)


def _scales(obs: np.ndarray) -> Iterator[Finding]:
    deviations = obs.astype(np.float64).std(axis=0)
    moving = np.flatnonzero(deviations > 1e-8 * np.maximum(1, np.abs(obs).max(axis=0)))
    still = np.setdiff1d(np.arange(obs.shape[1]), moving)
    if still.size and len(obs) > 10:
        named = ", ".join(str(index) for index in still[:5]) + (" ..." if still.size > 5 else "")
        what = f"observation[{named}] never changed in {len(obs) - 1} steps"
        yield Finding("note", "observation-constant", what, advice="leave it out if it never does")
    if moving.size > 1 and deviations[moving].max() > APART * deviations[moving].min():
        least, most = moving[deviations[moving].argmin()], moving[deviations[moving].argmax()]
        what = (
            f"observation[{most}] varies by {deviations[most]:.2g}, observation[{least}] by {deviations[least]:.2g}"
        )
        yield Finding(
            "note", "observation-scales", what, advice="keep the normaliser on (--normalize, the default)"
        )


def _speed(walk: Walk) -> Iterator[Finding]:
    rate = walk.steps / max(walk.stepping + walk.resetting, 1e-9)
    what = f"{rate:,.0f} steps per second: a million steps take {_duration(1e6 / rate)} here, without learning"
    if rate < SLOW:
        advice = "spread copies over processes: --envs 8 --env-processes 4"
        yield Finding("warning", "slow", what, advice=advice)
    else:
        yield Finding("note", "speed", what)


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


# Reproducibility: the same seed, the episode after the last, and a saved state

STEPS = 20


class Seen(NamedTuple):
    """The answer to one call."""

    obs: np.ndarray
    reward: float
    over: bool

    def same(self, other: "Seen") -> bool:
        """Bit for bit."""
        alike = np.array_equal(self.obs, other.obs, equal_nan=True) and self.over == other.over
        return alike and (self.reward == other.reward or self.reward != self.reward)


def judge_repeats(subject: Subject, walker: Walker) -> Iterator[Finding]:
    """Compares fresh copies with each other and with the one that has walked."""
    actions = [walker.random_action() for _ in range(STEPS)]

    def fresh(seed: int) -> list[Seen]:
        with contextlib.closing(subject.build()) as env:
            return _run(subject, walker, env, seed, actions)

    first = fresh(SEED)
    differs = _first_difference(first, fresh(SEED))
    if differs == 0:
        yield Finding(
            "warning",
            "seed-ignored",
            "two copies that were reset with the same seed begin differently",
            "reset",
            "call super().reset(seed=seed) and draw from self.np_random only, not from np.random or random",
        )
    elif differs is not None:
        what = "two copies with the same seed and the same actions differ"
        advice = "draw from self.np_random only; beware of time, threads and global generators"
        yield Finding("warning", "not-deterministic", what, f"step {differs}", advice)
    else:
        yield from _leaks(first, _run(subject, walker, walker.env, SEED, actions))
        if fresh(SEED + 1)[0].same(first[0]):
            what = "another seed begins in the same state"
            yield Finding("note", "same-start", what, "reset", "vary the start, or policies learn one path only")
    with contextlib.closing(subject.as_trained(SEED)) as one, contextlib.closing(subject.as_trained(0)) as other:
        yield from _resumes(one, other, exact=differs is None)


def _leaks(fresh: list[Seen], used: list[Seen]) -> Iterator[Finding]:
    differs = _first_difference(fresh, used)
    if differs is not None:
        what = "an episode differs from that of a fresh copy with the same seed: an earlier one leaves traces"
        advice = "restore in reset everything that an episode changes"
        yield Finding("warning", "reset-leaks", what, f"step {differs}" if differs else "reset", advice)


def _run(subject: Subject, walker: Walker, env: gymnasium.Env, seed: int, actions: list[np.ndarray]) -> list[Seen]:
    """Returns a copy's answers to these actions, up to the end of the episode."""
    seen = [Seen(walker.flatten(subject.timed(env.reset, seed=seed)[0]), 0.0, False)]
    for action in actions:
        obs, reward, terminated, truncated, _ = subject.timed(env.step, action.copy())
        seen.append(Seen(walker.flatten(obs), float(reward), bool(terminated or truncated)))
        if seen[-1].over:
            break
    return seen


def _first_difference(one: list[Seen], other: list[Seen]) -> int | None:
    pairs = zip(one, other, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if not a.same(b)), None)


def _resumes(one: AbstractEnv, other: AbstractEnv, exact: bool) -> Iterator[Finding]:
    """Saves in mid-episode, goes on in another copy, and compares."""
    actions = np.random.default_rng(1).uniform(-1, 1, (STEPS, one.spec.act_dim))
    where = "get_state, set_state" if _has_methods(one) else ""
    try:
        one.reset()
        if any(one.step(action).last for action in actions[:5]):
            one.reset()
        state = one.state()
        if state is None:
            yield _no_state(_has_methods(one))
            return
        other.reset()
        other.restore(state)
        for number, action in enumerate(actions[5:], 1):
            here, there = (
                Seen(step.obs, step.reward, step.last) for step in (one.step(action), other.step(action))
            )
            if not here.same(there):
                if exact:  # otherwise nothing could be the same
                    yield _inexact(f"it differs {number} steps later", where)
                return
            if here.over:
                break
        if exact and not np.array_equal(one.reset(), other.reset()):
            yield _inexact("the next episode begins differently", where)
            return
    except Exception as error:
        yield _inexact(told(error), where)
        return
    yield Finding("note", "resume", "a run that was stopped continues exactly, in mid-episode", where)


def _has_methods(env: Any) -> bool:
    inner = getattr(getattr(env, "_env", None), "unwrapped", None)
    return hasattr(inner, "get_state") and hasattr(inner, "set_state")


def _no_state(has_methods: bool) -> Finding:
    what = "the state cannot be saved: when a run resumes, an episode begins"
    advice = "give the environment get_state() -> dict[str, np.ndarray] and set_state(state): docs/environments.md"
    if has_methods:
        advice = "get_state must return named arrays, and no wrapper may hold a state: docs/environments.md"
    return Finding("note", "no-state", what, advice=advice)


def _inexact(what: str, where: str) -> Finding:
    advice = "save everything that determines the future, including the random generator"
    return Finding("error", "state-inexact", f"a saved state does not continue where it was: {what}", where, advice)


# The whole check


def check(task: Task, steps: int = 1000, timeout: float = 60.0) -> Report:
    """Checks an environment: its spaces, its answers, its episodes, its reproducibility.

    `task` is what `fcritic train --task` takes, or a callable that builds the environment. `steps` random actions
    are taken, in at most 20 s; a call that takes longer than `timeout` seconds is an error.
    """
    require_at_least(10, steps=steps)
    require_at_least(0.1, env_timeout=timeout)
    if timeout > LONGEST:
        raise UsageError(f"--env-timeout must be at most {LONGEST:,g}, not {timeout:g}")
    name = name_of(task)
    subject, facts = Subject(name, timeout), {}
    try:
        env = subject.build()
    except UsageError:
        raise
    except (Exception, SystemExit, Hang) as error:
        return Report(name, [Finding("error", "build", f"it cannot be built: {told(error)}")], facts)
    try:
        findings = list(judge_spaces(env))
        if not any(finding.level == "error" for finding in findings):
            findings += _examine(subject, env, steps, facts)
    finally:
        env.close()
    return Report(name, findings, facts)


def _examine(subject: Subject, env: gymnasium.Env, steps: int, facts: dict[str, Any]) -> Iterator[Finding]:
    walker = Walker(subject, env)
    sound = walker.go(steps)
    yield from walker.findings
    facts |= _facts(walker, walker.walk)
    if not sound or any(finding.level == "error" for finding in walker.findings):
        return
    limit = find_time_limit(env)
    yield from judge_walk(walker.walk, None if limit is None else limit._max_episode_steps)
    try:
        yield from judge_repeats(subject, walker)
    except (Exception, SystemExit, Hang) as error:
        yield Finding("error", "raises", f"another copy raised {told(error)}", "when it was repeated")
    yield from _geometry(env)


def _facts(walker: Walker, walk: Walk) -> dict[str, Any]:
    seconds = walk.stepping + walk.resetting
    return {
        "obs_dim": walker.spec.obs_dim,
        "act_dim": walker.spec.act_dim,
        "steps": walk.steps,
        "episodes": len(walk.endings),
        "steps_per_second": round(walk.steps / seconds, 1) if walk.steps else 0.0,
        "reward_range": [min(walk.rewards), max(walk.rewards)] if walk.rewards else None,
    }


def _geometry(env: gymnasium.Env) -> Iterator[Finding]:
    """Whether there is a MuJoCo model to be drawn."""
    inner = env.inner if isinstance(env, Plain) else env.unwrapped
    physics = getattr(getattr(inner, "_env", None), "physics", None)
    model: Any = getattr(inner, "model", getattr(physics, "model", None))
    if all(hasattr(model, name) for name in ("nbody", "ngeom", "nq")):
        what = (
            f"a MuJoCo model: {model.nbody - 1} bodies, {model.ngeom} geometries, so episodes can be drawn in 3-D"
        )
        yield Finding("note", "mujoco", what, "model")
