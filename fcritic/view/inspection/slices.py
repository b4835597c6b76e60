"""Slices through the space of actors: policies whose parameters lie on a plane or a line through trained ones."""

from typing import Any

import jax
from jaxtyping import Array, Float
import numpy as np

from fcritic import ensembles
from fcritic.errors import UsageError

LOW, HIGH = -0.5, 1.5
"""How far a slice goes: half the way beyond the actors on either side."""


def places(count: int) -> Float[np.ndarray, " count"]:
    """Evenly spaced from `LOW` to `HIGH`; 0 and 1, where actors are, must be among them."""
    if count < 5 or count % 4 != 1 or count > 41:
        raise UsageError(f"--grid must be 5, 9, 13 or another of this row up to 41, not {count}")
    return np.linspace(LOW, HIGH, count)


def plane(policies: Any, corners: tuple[int, int, int], x: np.ndarray, y: np.ndarray) -> Any:
    """The policies a + x (b - a) + y (c - a), stacked; x and y have one entry for each.

    Written as (1 - x - y) a + x b + y c, so that the corners are the actors to the last bit.
    """
    first, second, third = (ensembles.member(policies, corner) for corner in corners)

    def mix(a: Array, b: Array, c: Array) -> Float[Array, "points ..."]:
        shape = (-1, *(1,) * a.ndim)
        weights = [np.asarray(each, np.float32).reshape(shape) for each in (1 - x - y, x, y)]
        return sum(weight * np.asarray(leaf)[None] for weight, leaf in zip(weights, (a, b, c), strict=True))

    return jax.tree.map(mix, first, second, third)


def points(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The places x and y of a square of `count` by `count` policies, x varying first, and then of those that lie
    half-way between its policies on the line from a to b."""
    x, y = np.meshgrid(places(count), places(count))
    between = (places(count)[1:] + places(count)[:-1]) / 2
    return np.concatenate([x.ravel(), between]), np.concatenate([y.ravel(), np.zeros_like(between)])


def on_line(count: int) -> np.ndarray:
    """Which of the points lie on the line from a to b, in their order."""
    x, y = points(count)
    line = np.flatnonzero(y == 0)
    return line[np.argsort(x[line])]


def require_corners(corners: tuple[int, ...], actors: int) -> None:
    """Refuses actors that do not exist, or that do not span a plane."""
    if actors < 3:
        raise UsageError(f"a slice needs three actors, this agent has {actors}; train with --members 3 or more")
    if len(corners) != 3 or len(set(corners)) != 3:
        raise UsageError("--actors needs the numbers of three different actors, such as 0 1 2")
    if outside := [corner for corner in corners if not 0 <= corner < actors]:
        raise UsageError(f"--actors names actor {outside[0]}; this agent has actors 0 to {actors - 1}")
