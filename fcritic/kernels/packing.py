"""Trees of arrays as single vectors.

Each array that a program takes and returns costs the host microseconds, and an update of it the GPU a kernel. A
functional critic has hundreds, most of them small: parameters, their moments and their delayed copies. Where that
matters a network is kept as one vector, and its arrays are slices that a program takes where it needs them.

An optimiser then sees one array for each network. What treats the arrays of a network differently, such as
`optax.masked`, or weight decay of matrices alone, does not find them: leave the kind of network out of
`AbstractAgent.packed_kinds`.
"""

from functools import partial
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Packed(eqx.Module):
    """A tree of float32 arrays as one vector. Optimisers and averages that work by elements accept it."""

    vector: Float[Array, " numbers"]
    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @staticmethod
    def of(tree: Any) -> "Packed":
        """The arrays of a tree, one after the other."""
        leaves, structure = jax.tree.flatten(tree)
        shapes = tuple(leaf.shape for leaf in leaves)
        return Packed(jnp.concatenate([leaves[i].reshape(-1) for i in _order(shapes)]), structure, shapes)

    @property
    def tree(self) -> Any:
        """The tree again."""
        leaves: list[Any] = [None] * len(self.shapes)
        start = 0
        for index in _order(self.shapes):
            stop = start + math.prod(self.shapes[index])
            leaves[index] = self.vector[start:stop].reshape(self.shapes[index])
            start = stop
        return jax.tree.unflatten(self.structure, leaves)


def pack(tree: Any, kinds: tuple[type, ...]) -> Any:
    """The same tree, in which every node of one of these classes is a vector."""
    is_kind = lambda node: isinstance(node, kinds)
    return jax.tree.map(lambda node: Packed.of(node) if is_kind(node) else node, tree, is_leaf=is_kind)


def unpack(tree: Any) -> Any:
    """The reverse of `pack`; other nodes are unchanged."""
    return jax.tree.map(lambda node: node.tree if _is_packed(node) else node, tree, is_leaf=_is_packed)


@partial(jax.jit, static_argnums=1)
def pack_stack(trees: Any, kinds: tuple[type, ...]) -> Any:
    """`pack` for each of a stack of trees."""
    return jax.vmap(lambda tree: pack(tree, kinds))(trees)


@jax.jit
def unpack_stack(trees: Any) -> Any:
    """`unpack` for each of a stack of trees."""
    return jax.vmap(unpack)(trees)


def pack_like(pattern: Any, tree: Any) -> Any:
    """The tree with vectors where the pattern has them."""
    return jax.tree.map(lambda p, t: Packed.of(t) if _is_packed(p) else t, pattern, tree, is_leaf=_is_packed)


def _is_packed(node: Any) -> bool:
    return isinstance(node, Packed)


def _order(shapes: tuple[tuple[int, ...], ...]) -> list[int]:
    """The largest first: a kernel that joins arrays looks through them for the one that an element comes from."""
    return sorted(range(len(shapes)), key=lambda index: -math.prod(shapes[index]))
