"""Kernels of few programs that leave most of a GPU to others: results are as if there were many."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import quick_jit
from test_precision import SMALL, SPEC, batch, interpreted  # noqa: F401

from fcritic import ensembles
from fcritic.kernels import heads, weights
from fcritic.networks.precision import lower


def test_target_values_do_not_depend_on_who_shares_a_program(interpreted):  # noqa: F811
    """Few seeds: two programs take the actors of a tile one after the other; a single actor has its own."""
    critics = SMALL.init(SPEC, jax.random.key(0)).critics.params
    head = lower(ensembles.member(critics.head, 0), jnp.dtype("bfloat16"))
    draw = lambda *shape: jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape), jnp.float32)
    codes, act = draw(6, 16).astype(jnp.bfloat16), draw(6, 128, 3)
    values = quick_jit(lambda codes, act: heads.values(head, codes, batch().next_obs, act))
    together = values(codes, act)
    alone = [values(codes[i : i + 1], act[i : i + 1])[0] for i in range(6)]
    np.testing.assert_allclose(together, jnp.stack(alone), rtol=1e-6, atol=1e-6)
    assert jnp.ptp(together, axis=0).min() > 0


@pytest.mark.parametrize(
    ("count", "inputs", "outputs"),
    [(320, 128, 256), (272, 256, 32), (80, 32, 32), (48, 32, 32), (100, 32, 32), (128, 192, 32)],
)
def test_the_gradient_of_a_weight_is_the_sum_over_all_rows(interpreted, count, inputs, outputs):  # noqa: F811
    """Also where rows are no whole steps; where they or a weight are no whole tiles, the kernel is not used."""
    draw = lambda seed, width: jnp.asarray(np.random.default_rng(seed).normal(size=(count, width)), jnp.bfloat16)
    rows, grads = draw(0, inputs), draw(1, outputs)
    wanted = np.asarray(rows, np.float64).T @ np.asarray(grads, np.float64)
    found = quick_jit(weights.weight_gradient)(rows, grads)
    terms = np.abs(np.asarray(rows, np.float64)).T @ np.abs(np.asarray(grads, np.float64))
    # Rounded to bfloat16 after a sum in float32, whose order, and so whose error, differs between machines.
    assert (np.abs(np.asarray(found, np.float64) - wanted) <= 2**-8 * np.abs(wanted) + count * 2**-24 * terms).all()


def kernels_of(jaxpr) -> list:
    """The calls of kernels in a program and in the programs within it, but not within kernels."""
    found = []
    for step in jaxpr.eqns:
        if step.primitive.name == "pallas_call":
            found.append(step)
            continue
        parts = [
            part for value in step.params.values() for part in (value if isinstance(value, tuple) else (value,))
        ]
        inner = [getattr(part, "jaxpr", part) for part in parts]
        found += [kernel for part in inner if hasattr(part, "eqns") for kernel in kernels_of(part)]
    return found


def test_the_gradient_of_the_joint_layer_comes_after_a_product(interpreted):  # noqa: F811
    """Its value would be the same without: only the program shows that a kernel gets an array it does not use."""
    agent = dataclasses.replace(SMALL, precision="bfloat16")
    state = agent.init(SPEC, jax.random.key(0))
    kernels = kernels_of(jax.make_jaxpr(agent.critic_step)(state, batch(), jax.random.key(1)).jaxpr)
    inputs = [len(kernel.invars) for kernel in kernels if "weight_kernel" in str(kernel.params)]
    assert set(inputs) == {2, 3} and inputs.count(3) == 1
