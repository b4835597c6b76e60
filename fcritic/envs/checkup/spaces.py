"""What the declared spaces tell, before anything is run."""

from collections.abc import Iterator
from typing import Any

import gymnasium
from gymnasium.spaces import Box, Dict, Tuple
import numpy as np

from fcritic.envs.checkup.findings import Finding

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
        what = f"action[{int(np.argmin(span))}] has a range of zero: it can do nothing"
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
        advice = "the networks here are for dozens to hundreds of numbers; give positions and velocities instead"
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
