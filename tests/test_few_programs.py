"""Kernels of few programs that leave most of a GPU to others: results are as if there were many."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import quick_jit
from test_precision import SMALL, SPEC, batch, interpreted  # noqa: F401

from fcritic import ensembles
from fcritic.kernels import product, weight_kernels


def test_target_values_do_not_depend_on_who_shares_a_program(interpreted):  # noqa: F811
    """Few seeds: two programs take the actors of a tile one after the other; a single actor has its own."""
    critics = SMALL.init(SPEC, jax.random.key(0)).critics.params
    head = ensembles.member(critics.head, 0).lowered(jnp.dtype("bfloat16"))
    draw = lambda *shape: jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape), jnp.float32)
    codes, act = draw(6, 16).astype(jnp.bfloat16), draw(6, 128, 3)
    values = quick_jit(lambda codes, act: product.target_values(head, codes, batch().next_obs, act))
    together = values(codes, act)
    alone = [values(codes[i : i + 1], act[i : i + 1])[0] for i in range(6)]
    np.testing.assert_allclose(together, jnp.stack(alone), rtol=1e-6, atol=1e-6)
    assert jnp.ptp(together, axis=0).min() > 0


@pytest.mark.parametrize(
    ("count", "inputs", "outputs"),
    [(320, 128, 256), (272, 256, 32), (80, 32, 32), (48, 32, 32), (100, 32, 32), (128, 192, 32)],
)
def test_the_gradient_of_a_weight_is_the_sum_over_all_rows(count, inputs, outputs):
    """Also where rows are no whole steps; where they or a weight are no whole tiles, the kernel is not used."""
    draw = lambda seed, width: jnp.asarray(np.random.default_rng(seed).normal(size=(count, width)), jnp.bfloat16)
    rows, grads = draw(0, inputs), draw(1, outputs)
    wanted = np.asarray(rows, np.float64).T @ np.asarray(grads, np.float64)
    found = quick_jit(lambda *both: weight_kernels.weight_gradient(*both, interpret=True))(rows, grads)
    terms = np.abs(np.asarray(rows, np.float64)).T @ np.abs(np.asarray(grads, np.float64))
    # Rounded to bfloat16 after a sum in float32, whose order, and so whose error, differs between machines.
    assert (np.abs(np.asarray(found, np.float64) - wanted) <= 2**-8 * np.abs(wanted) + count * 2**-24 * terms).all()
