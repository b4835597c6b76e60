"""Does it repeat: the same seed, the episode after the last, and the state that was saved."""

from collections.abc import Iterator
import contextlib
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from fcritic.envs.base import AbstractEnv
from fcritic.envs.checkup.findings import Finding
from fcritic.envs.checkup.subject import Subject
from fcritic.envs.checkup.walk import SEED, Walker
from fcritic.envs.own import told

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
        what = "two copies with the same seed and the same actions part"
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
        what = "an episode is not like that of a fresh copy with the same seed: an earlier one shows"
        advice = "set back in reset all that an episode changes"
        yield Finding("warning", "reset-leaks", what, f"step {differs}" if differs else "reset", advice)


def _run(subject: Subject, walker: Walker, env: gymnasium.Env, seed: int, actions: list[np.ndarray]) -> list[Seen]:
    """What a copy answers to these actions, up to the end of the episode."""
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
                    yield _inexact(f"it parts {number} steps later", where)
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
    advice = "save all that decides the future, the random generator included"
    return Finding("error", "state-inexact", f"a saved state does not continue where it was: {what}", where, advice)
