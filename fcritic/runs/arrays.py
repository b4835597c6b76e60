"""Pytrees as named arrays, named arrays as safetensors files, and back."""

from collections.abc import Mapping
import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from fcritic.errors import CheckpointError

Arrays = Mapping[str, np.ndarray]

HEADER_LIMIT = 4 * 2**20
"""Bytes of the header of a file; it takes about 100 per array."""

DTYPES = {
    "BOOL": np.dtype(bool),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    **{f"I{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"U{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}
"""The types that files may hold, by the name that the format has for them."""


def encode(arrays: Arrays) -> bytes:
    """Returns a safetensors file with these arrays."""
    for name, array in arrays.items():
        if array.dtype not in DTYPES.values():
            raise TypeError(f"{name} has dtype {array.dtype}, which cannot be saved")
    # safetensors copies raw memory, so a strided view would be written wrongly.
    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def decode(data: bytes) -> dict[str, np.ndarray]:
    """Returns the arrays of a safetensors file; whatever is wrong with it is a `ValueError`."""
    if int.from_bytes(data[:8], "little") > HEADER_LIMIT:
        raise ValueError("its header is longer than any of ours")
    try:
        return {
            name: np.frombuffer(array["data"], DTYPES[array["dtype"]]).reshape(array["shape"])
            for name, array in deserialize(data)
        }
    except (SafetensorError, LookupError, TypeError, OverflowError) as error:
        raise ValueError(f"it is not a file of arrays ({error!s:.200})") from error


def largest(like: Any) -> int:
    """Returns the most bytes that a file with the arrays of a tree may have."""
    shapes = [
        jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf for leaf in jax.tree.leaves(like)
    ]
    return HEADER_LIMIT + sum(math.prod(shape.shape) * shape.dtype.itemsize for shape in shapes)


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a tree as numpy arrays, named by their place: ``critics/head/layers/0/weight``.

    Typed PRNG keys become their key data. Every leaf must be an array.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, leaf in _named_leaves(tree):
        if name in arrays:
            raise ValueError(f"two leaves of the tree are both named {name}; rename one")
        arrays[name] = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return arrays


def unflatten(like: Any, arrays: Arrays) -> Any:
    """The tree shaped as ``like``, filled with ``arrays``; the inverse of ``flatten``.

    The leaves of ``like`` are arrays or ``jax.ShapeDtypeStruct``. Numpy leaves come back as numpy, the
    others as JAX arrays. Names, shapes and dtypes are all checked before the first leaf is built.
    """
    verify_match(like, arrays)
    filled = [_restore(leaf, arrays[name]) for name, leaf in _named_leaves(like)]
    return jax.tree.unflatten(jax.tree.structure(like), filled)


def verify_match(like: Any, arrays: Arrays) -> None:
    """Refuses arrays whose names, shapes or dtypes are not those of ``like``."""
    leaves = _named_leaves(like)
    for name, leaf in leaves:
        _check_match(name, leaf, arrays)
    extra = sorted(set(arrays) - {name for name, _ in leaves})
    if extra:
        raise CheckpointError(f"the checkpoint has an array {extra[0]!r:.60} that this configuration does not use")


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    named = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator="/") or "value"
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct):
            raise TypeError(f"{name} is a {type(leaf).__name__}; only arrays can be saved")
        named.append((name, leaf))
    return named


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _check_match(name: str, leaf: Any, arrays: Arrays) -> None:
    if name not in arrays:
        raise CheckpointError(f"the checkpoint has no array {name}; it is of another configuration")
    expected = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
    for what in ("shape", "dtype"):
        found, needed = getattr(arrays[name], what), getattr(expected, what)
        if found != needed:
            raise CheckpointError(f"{name} has {what} {found} in the checkpoint, {needed} is needed")
    is_numpy = isinstance(leaf, np.ndarray | np.generic)
    if not is_numpy and jax.dtypes.canonicalize_dtype(expected.dtype) != expected.dtype:
        raise CheckpointError(f"{name} is {expected.dtype}, which JAX would round; enable jax_enable_x64")


def _restore(leaf: Any, array: np.ndarray) -> Any:
    if isinstance(leaf, np.generic):
        return array[()]
    if isinstance(leaf, np.ndarray):
        return array.copy()
    if not _is_key(leaf):
        return jnp.array(array)  # a copy: a donated buffer must not be numpy's memory
    implementation = []  # known only to arrays and tracers, and ``like`` may hold mere structs
    jax.eval_shape(lambda key: implementation.append(jax.random.key_impl(key)), leaf)
    return jax.random.wrap_key_data(jnp.array(array), impl=implementation[0])
