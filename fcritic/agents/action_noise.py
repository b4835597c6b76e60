"""Noise that is part of a policy: it acts with it, its critics value it, and it is improved with it."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

_STREAM = 2**31 + 2
"""Far from what else is drawn with the same key."""


def draw_noise(scale: float, shape: tuple[int, ...], key: PRNGKeyArray) -> Float[Array, "*shape"] | None:
    """Normal noise of this deviation; None where there shall be none."""
    return scale * jax.random.normal(jax.random.fold_in(key, _STREAM), shape) if scale else None


def with_noise(
    act: Float[Array, "*axes act"], noise: Float[Array, "*axes act"] | None
) -> Float[Array, "*axes act"]:
    """What an environment makes of an action with noise: it is clipped to [-1, 1]."""
    return act if noise is None else jnp.clip(act + noise, -1.0, 1.0)
