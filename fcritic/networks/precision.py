"""In which precision networks compute. What is learned, summed up or reported stays in float32."""

import os
from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

Precision = Literal["auto", "float32", "bfloat16"]

Tree = TypeVar("Tree")


def on_gpu() -> bool:
    """Whether programs will run on a GPU."""
    return jax.default_backend() == "gpu"


def bits_must_repeat() -> bool:
    """Whether XLA was told, as by `--deterministic`, to use only operations that give the same bits every time."""
    flags = os.environ.get("XLA_FLAGS", "")
    return any(f"--xla_gpu_{name}=true" in flags for name in ("deterministic_ops", "exclude_nondeterministic_ops"))


def lower(tree: Tree, dtype: jnp.dtype) -> Tree:
    """The network with its weights in another type; a layer computes in the type of its weights.

    Layer norms keep theirs: they work in float32 and hand on the type that they were given. Gradients pass
    the cast, so that those of the parameters come out in float32.
    """
    if dtype == jnp.float32:
        return tree
    is_norm = lambda node: isinstance(node, eqx.nn.LayerNorm)
    return jax.tree.map(lambda node: node if is_norm(node) else node.astype(dtype), tree, is_leaf=is_norm)
