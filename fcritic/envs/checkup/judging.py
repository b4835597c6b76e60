"""What a whole walk tells: rewards, ends of episodes, scales of observations, speed."""

from collections.abc import Iterator

import numpy as np

from fcritic.envs.base import EPISODE_LIMIT
from fcritic.envs.checkup.findings import Finding
from fcritic.envs.checkup.walk import Walk

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
        what = f"no reward is larger than {largest:g}: differences drown in the critics' errors"
        yield Finding("warning", "reward-tiny", what, where, "multiply rewards until some are near 1")
    elif walk.steps > 1 and np.ptp(rewards) == 0 and not any(ending.terminated for ending in walk.endings):
        what = f"every reward was {rewards[0]:g} and nothing terminated: all policies are worth the same"
        yield Finding("warning", "reward-constant", what, where, "let the reward depend on what is done")


def _endings(walk: Walk, limit: int | None) -> Iterator[Finding]:
    if not walk.endings:
        if limit is None or limit > EPISODE_LIMIT:
            what = "no episode ended, and there is no time limit: an evaluation would never be over"
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
        what = "episodes end by termination alone: one that a good policy never ends makes evaluation give up"
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
            "note", "observation-scales", what, advice="keep the normaliser on (it is by default: --normalize)"
        )


def _speed(walk: Walk) -> Iterator[Finding]:
    rate = walk.steps / max(walk.stepping + walk.resetting, 1e-9)
    what = f"{rate:,.0f} steps per second: a million steps take {_duration(1e6 / rate)} here, learning apart"
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
