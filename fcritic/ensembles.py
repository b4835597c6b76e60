"""Ensembles are ordinary pytrees with one more leading axis: no lists, no class of their own."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.core import Tracer
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray
import numpy as np

from fcritic.randomness import apart

Tree = TypeVar("Tree")


def stack(make: Callable[[PRNGKeyArray], Tree], count: int, key: PRNGKeyArray) -> Tree:
    """`count` members, each made from its own key, along a new leading axis."""
    return stack_all([make(member_key) for member_key in apart(key, count)])


def stack_all(members: list[Tree]) -> Tree:
    """Members along a new leading axis. Real arrays are joined on the host, where nothing is compiled."""
    if any(map(_needs_jax, jax.tree.leaves(members[0]))):
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    join = lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves])
    return jax.device_put(jax.tree.map(join, *members))


def _needs_jax(leaf: Array) -> bool:
    return isinstance(leaf, Tracer) or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def member(tree: Tree, index: int | Int[Array, "..."]) -> Tree:
    """One member of a stack (or several, for an array of indices)."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def size(tree: Any) -> int:
    """How many members a stack holds."""
    return jax.tree.leaves(tree)[0].shape[0]


def polyak(slow: Tree, fast: Tree, rate: float) -> Tree:
    """slow <- (1 - tau) slow + tau fast, leaf by leaf (line 16 of Algorithm 5, with rho = 1 - tau)."""
    return jax.tree.map(lambda s, f: s + rate * (f - s), slow, fast)
