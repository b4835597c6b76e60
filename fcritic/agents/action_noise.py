"""Noise on actions: as part of a policy, which its critics value and improve, or only to explore."""

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


def remembered_noise(
    noise: Float[Array, "*axes act"], scale: float, memory: float, key: PRNGKeyArray
) -> Float[Array, "*axes act"]:
    """x <- memory x + scale N(0, 1): noise that remembers itself."""
    return memory * noise + scale * jax.random.normal(key, noise.shape)
