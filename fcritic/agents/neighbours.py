"""Policies that are never run but join the product set on which the critics learn.

A TD target needs no rollout of its policy, so any policy may join for the price of its encoding. The actors
alone are n points in a space of many thousand dimensions; neighbours show the critics what changes when a
policy changes, which is what the second term of the gradient differentiates.
"""

from typing import Literal, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from fcritic import ensembles

NeighbourKind = Literal["none", "path", "perturbed", "mixed"]

Policies = TypeVar("Policies")


def draw_neighbours(
    kind: NeighbourKind, policies: Policies, slow: Policies, scale: float, key: PRNGKeyArray
) -> Policies:
    """One neighbour per actor.

    - `path`: the actor moved along its own path, pi + a (pi - slow average of pi), a in U(-scale, scale);
    - `perturbed`: every weight moved by `scale` times the root mean square of its array;
    - `mixed`: pi + a (another actor - pi), a in U(0, scale); at a scale of 1 a point between the two.
    """
    count = ensembles.size(policies)
    if kind == "perturbed":
        return _perturbed(policies, scale, key)
    low, high = (-scale, scale) if kind == "path" else (0.0, scale)
    amount_key, other_key = jax.random.split(key)
    amount = jax.random.uniform(amount_key, (count,), minval=low, maxval=high)
    other = slow
    if kind == "mixed":
        shift = jax.random.randint(other_key, (count,), 1, max(count, 2))  # never the actor itself
        other = ensembles.member(policies, (jnp.arange(count) + shift) % count)
        amount = -amount

    def move(here: jax.Array, there: jax.Array) -> jax.Array:
        return here + amount.reshape(-1, *[1] * (here.ndim - 1)) * (here - there)

    return jax.tree.map(move, policies, other)


def _perturbed(policies: Policies, scale: float, key: PRNGKeyArray) -> Policies:
    leaves, structure = jax.tree.flatten(policies)
    keys = jax.random.split(key, len(leaves))

    def shake(leaf: jax.Array, leaf_key: PRNGKeyArray) -> jax.Array:
        axes = tuple(range(1, leaf.ndim))
        size = jnp.sqrt(jnp.mean(leaf**2, axis=axes, keepdims=True))
        return leaf + scale * size * jax.random.normal(leaf_key, leaf.shape)

    return structure.unflatten(shake(leaf, k) for leaf, k in zip(leaves, keys, strict=True))
