"""First values of parameters, drawn on the host.

Drawn by JAX in one compiled program, every layer would bring its own copy of the generator: that took half a
minute to compile before anything could be trained. NumPy draws the same distributions at once, and its arrays are
passed to the device unchanged: JAX would compile every operation on them, once for each shape.
"""

import functools
from typing import Any

import equinox as eqx
import jax
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray
import numpy as np


def uniform(key: PRNGKeyArray, shape: tuple[int, ...], scale: float) -> Float[Array, "..."]:
    """U(-scale, scale). Under a transformation, where a key has no value yet, JAX draws (other numbers)."""
    if isinstance(key, Tracer):
        return jax.random.uniform(key, shape, minval=-scale, maxval=scale)
    return _on_device(_generator(key).uniform(-scale, scale, shape))


def normal(key: PRNGKeyArray, shape: tuple[int, ...], scale: float) -> Float[Array, "..."]:
    """N(0, scale^2), drawn as `uniform` is."""
    if isinstance(key, Tracer):
        return scale * jax.random.normal(key, shape)
    return _on_device(_generator(key).normal(0.0, scale, shape))


def zeros(*shape: int) -> Float[Array, "..."]:
    """Zeros."""
    return _on_device(np.zeros(shape))


def fresh_norm(width: int) -> eqx.nn.LayerNorm:
    """A layer norm as Equinox begins it, which itself would compile programs that make ones and zeros."""
    return jax.tree.unflatten(_norm_structure(width), [_on_device(np.ones(width)), zeros(width)])


@functools.cache
def _norm_structure(width: int) -> Any:
    return jax.tree.structure(eqx.filter_eval_shape(eqx.nn.LayerNorm, width))


def _on_device(values: np.ndarray) -> Float[Array, "..."]:
    return jax.device_put(values.astype(np.float32))


def _generator(key: PRNGKeyArray) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
