"""Actors that are held off the bounds of their actions."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic.errors import UsageError
from fcritic.networks.policies import DeterministicPolicy

KEY = jax.random.key(0)


def test_reach_holds_the_mean_size_of_the_last_layer():
    """By hand: (3, -1) has mean size 2 and is halved by a reach of 1; (0.5, 0.1) is let through."""
    held = DeterministicPolicy(2, (), 2, key=KEY, last_scale=1.0, reach=1.0)
    held = eqx.tree_at(lambda p: p.network.layers[0].weight, held, jnp.eye(2))
    obs = jnp.array([[3.0, -1.0], [0.5, 0.1]])
    expected = jnp.tanh(jnp.array([[1.5, -0.5], [0.5, 0.1]]))
    np.testing.assert_allclose(held(obs), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(held)(obs), expected, rtol=1e-6)


def test_a_held_policy_still_learns_far_from_its_bounds():
    """Where the last layer is 100 times as large, a free action has no gradient left and a held one has."""
    slope = lambda reach: jax.grad(
        lambda p: eqx.tree_at(lambda q: q.network.layers[-1].weight, p, 100 * p.network.layers[-1].weight)(
            jnp.ones(3)
        ).sum()
    )(DeterministicPolicy(3, (8,), 2, key=KEY, last_scale=1.0, reach=reach))
    free, held = (
        max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(slope(reach))) for reach in (None, 1.0)
    )
    assert free < 1e-6 and held > 1e-3


def test_reach_must_be_above_zero(tiny):
    with pytest.raises(UsageError, match="--actor-reach must be at least 1e-06, not 0"):
        dataclasses.replace(tiny, actor_reach=0.0)
