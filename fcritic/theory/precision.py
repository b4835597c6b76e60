"""Double precision for the theory alone: the deep half of the package keeps its single precision."""

from collections.abc import Callable
import functools
from typing import Any, TypeVar

import jax
import numpy as np

Function = TypeVar("Function", bound=Callable)


def float64(function: Function) -> Function:
    """Runs a function in double precision and hands its arrays out as NumPy's.

    An array of JAX would fall back to single precision in the first operation outside. While JAX traces the
    function (`jit`, `vmap`, `grad`), its tracers pass through untouched.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(True):
            return jax.tree.map(_to_numpy, function(*args, **kwargs))

    return wrapped


def is_traced(value: Any) -> bool:
    """Whether JAX is tracing, so that the value is not known yet."""
    return isinstance(value, jax.core.Tracer)


def _to_numpy(leaf: Any) -> Any:
    if is_traced(leaf) or not isinstance(leaf, jax.Array):
        return leaf
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return np.asarray(leaf)
