"""Ensembles are ordinary pytrees with one more leading axis: no lists, no class of their own."""

from collections.abc import Callable
from typing import TypeVar

import jax
from jaxtyping import Array, Int, PRNGKeyArray

Tree = TypeVar("Tree")


def stack(make: Callable[[PRNGKeyArray], Tree], count: int, key: PRNGKeyArray) -> Tree:
    """`count` members, each made from its own key, along a new leading axis."""
    return jax.vmap(make)(jax.random.split(key, count))


def member(tree: Tree, index: int | Int[Array, "..."]) -> Tree:
    """One member of a stack (or several, for an array of indices)."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def size(tree: Tree) -> int:
    """How many members a stack holds."""
    return jax.tree.leaves(tree)[0].shape[0]


def polyak(slow: Tree, fast: Tree, rate: float) -> Tree:
    """slow <- (1 - tau) slow + tau fast, leaf by leaf (line 16 of `alg-nn`, with rho = 1 - tau)."""
    return jax.tree.map(lambda s, f: s + rate * (f - s), slow, fast)
