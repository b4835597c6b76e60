"""The precision in which networks compute. Parameters, sums and metrics stay in float32."""

from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from fcritic.networks.mlp import Exact

Precision = Literal["auto", "float32", "bfloat16"]

Tree = TypeVar("Tree")


def on_gpu() -> bool:
    """Returns whether programs will run on a GPU."""
    return jax.default_backend() == "gpu"


def lower(tree: Tree, dtype: jnp.dtype) -> Tree:
    """Returns the network with its weights in another type; a layer computes in the type of its weights.

    Two kinds of layers keep theirs: layer norms, which work in float32 and hand on the type that they were given,
    and the last layer of a value. Gradients pass the cast, so those of the parameters come out in float32.
    """
    if dtype == jnp.float32:
        return tree
    keeps = lambda node: isinstance(node, eqx.nn.LayerNorm | Exact)
    return jax.tree.map(lambda node: node if keeps(node) else node.astype(dtype), tree, is_leaf=keeps)
