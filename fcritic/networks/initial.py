"""First values of parameters, drawn on the host.

Drawn by JAX in one compiled program, every layer would bring its own copy of the generator: that took half a
minute to compile before anything could be trained. NumPy draws the same distributions at once.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
import numpy as np


def uniform(key: PRNGKeyArray, shape: tuple[int, ...], scale: float) -> Float[Array, "..."]:
    """U(-scale, scale). Under a transformation, where a key has no value yet, JAX draws (other numbers)."""
    if isinstance(key, jax.core.Tracer):
        return jax.random.uniform(key, shape, minval=-scale, maxval=scale)
    return jnp.asarray(_generator(key).uniform(-scale, scale, shape), jnp.float32)


def normal(key: PRNGKeyArray, shape: tuple[int, ...], scale: float) -> Float[Array, "..."]:
    """N(0, scale^2), drawn as `uniform` is."""
    if isinstance(key, jax.core.Tracer):
        return scale * jax.random.normal(key, shape)
    return jnp.asarray(_generator(key).normal(0.0, scale, shape), jnp.float32)


def _generator(key: PRNGKeyArray) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
