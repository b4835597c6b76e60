"""The error's kernels, interpreted, beside its formula; both in float32, where only the order of sums differs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic import kernels
from fcritic.kernels import error

ACTORS, BATCH, WIDTH = 3, 32, 64


def plain(code, state_action, first, weight, second, last, goal):
    """The mean squared error as E_joint is defined, layer by layer."""

    def layer(rows, scale, offset):
        rows = (rows - rows.mean(axis=-1, keepdims=True)) / jnp.sqrt(rows.var(axis=-1, keepdims=True) + 1e-5)
        return jax.nn.relu(rows * scale + offset)

    with jax.numpy_rank_promotion("allow"):
        hidden = layer(code[:, None] + state_action[None] + first[2], first[0], first[1])
        hidden = layer(hidden @ weight + second[0], second[1], second[2])
        return jnp.mean(((hidden * last[0]).sum(axis=-1) - goal) ** 2)


def inputs():
    draw = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(draw.normal(size=shape), jnp.float32)
    return (
        normal(ACTORS, WIDTH),
        normal(BATCH, WIDTH),
        1 + 0.3 * normal(8, WIDTH),
        normal(WIDTH, WIDTH) / 8,
        0.3 * normal(8, WIDTH) + 0.5,
        normal(1, WIDTH) / 8,
        normal(ACTORS, BATCH),
    )


@pytest.mark.parametrize("shape", [(8, 2, 1), (32, 4, 1), (16, 4, 4)])
def test_error_and_every_gradient_are_those_of_the_formula(monkeypatch, shape):
    """However many rows a program takes, and whether its sums over rows are merged early or late."""
    monkeypatch.setattr(error, "ERROR", {True: shape})
    for name in ("FIRST", "STEP"):
        monkeypatch.setattr(error, name, shape)
    monkeypatch.setattr(kernels, "INTERPRET", True)
    arrays, through = inputs(), range(7)
    fast = lambda *given: error.squared_error(*given)[0]
    found, gradients = jax.value_and_grad(fast, argnums=through)(*arrays)
    wanted, wanted_gradients = jax.value_and_grad(plain, argnums=through)(*arrays)
    assert float(found) == pytest.approx(float(wanted), rel=1e-5)
    for index in through:
        one, other = (np.asarray(tree[index], np.float64) for tree in (gradients, wanted_gradients))
        assert np.linalg.norm(one - other) < 2e-5 * np.linalg.norm(other), index
