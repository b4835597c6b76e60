"""Results that others wait for without using them: values and gradients are as if nobody waited."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import quick_jit
from test_losses import start
from test_precision import SMALL, SPEC, interpreted  # noqa: F401
from test_precision import batch as a_batch

from fcritic.agents import base, optimisers
from fcritic.agents.base import update
from fcritic.kernels import fused_blocks, order


@pytest.mark.parametrize("value", [1.0, np.nan, np.inf])
def test_zero_whatever_it_comes_after(value):
    assert float(order.zero_after(jnp.full((3, 5), value), interpret=True)) == 0.0
    each = jax.vmap(lambda rows: order.zero_after(rows, interpret=True))(jnp.full((4, 3, 5), value))
    np.testing.assert_array_equal(each, np.zeros(4))


def test_it_is_computed_from_what_it_comes_after():
    """Otherwise nothing would wait."""
    jaxpr = jax.make_jaxpr(lambda rows: order.zero_after(rows * 2, interpret=True))(jnp.ones((3, 5))).jaxpr
    kernel = next(step for step in jaxpr.eqns if step.primitive.name == "pallas_call")
    assert kernel.invars == next(step for step in jaxpr.eqns if step.primitive.name == "mul").outvars


def test_rows_pass_unchanged_and_the_vector_gets_nothing():
    rows, vector, along = (
        jax.random.normal(jax.random.key(k), shape) for k, shape in enumerate([(6, 4), (3,), (6, 4)])
    )

    def total(rows, vector):
        return (order.told(rows, vector, True) * along).sum() + (vector**2).sum()

    value, (of_rows, of_vector) = jax.value_and_grad(total, argnums=(0, 1))(rows, vector)
    np.testing.assert_allclose(value, (rows * along).sum() + (vector**2).sum(), rtol=1e-6)
    np.testing.assert_array_equal(of_rows, along)
    np.testing.assert_array_equal(of_vector, 2 * vector)


def test_gradients_of_heads_are_the_same_later(tiny, spec, monkeypatch):
    grads = start(tiny, spec).critics.params
    bfloat16 = jnp.dtype("bfloat16")
    assert optimisers.heads_later(grads, bfloat16) is grads  # nothing is gained on a CPU
    monkeypatch.setattr(optimisers, "on_gpu", lambda: True)
    monkeypatch.setattr(fused_blocks, "INTERPRET", True)
    assert optimisers.heads_later(grads, jnp.dtype("float32")) is grads  # nor without kernels
    later = optimisers.heads_later(grads, bfloat16)
    assert later is not grads
    jax.tree.map(np.testing.assert_array_equal, later, grads)
    blind = dataclasses.replace(tiny, functional=False)
    plain = start(blind, spec).critics.params
    assert optimisers.heads_later(plain, bfloat16) is plain


def test_an_iteration_that_is_written_out_for_a_gpu_is_the_same(tiny, spec, batch, monkeypatch):
    """No loop over critic updates, and all of it in a loop of one round, how many being told at run time."""
    agent = dataclasses.replace(tiny, precision="float32")
    batches = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1], 2 * leaf, leaf + 1]), batch)
    state = start(agent, spec)
    run = lambda *given: update(agent, given[0], batches, jax.random.key(3), (True,), given[1])
    iterate = lambda: quick_jit(lambda *given: run(*given))
    loops = lambda: str(iterate().trace(state, jnp.asarray(1)).jaxpr).count("while[")
    assert loops() == 0
    wanted = iterate()(state, jnp.asarray(1))
    monkeypatch.setattr(base, "on_gpu", lambda: True)
    assert loops() == 1
    written_out = iterate()
    found = written_out(state, jnp.asarray(1))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), found, wanted)
    untouched = written_out(state, jnp.asarray(0))[0]
    jax.tree.map(np.testing.assert_array_equal, untouched, state)


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


def test_an_update_waits_where_it_should(interpreted, monkeypatch):  # noqa: F811
    """Values would be the same without: only the program shows who is handed what he does not use."""
    monkeypatch.setattr(optimisers, "on_gpu", lambda: True)
    agent = dataclasses.replace(SMALL, precision="bfloat16")
    state = agent.init(SPEC, jax.random.key(0))
    kernels = kernels_of(jax.make_jaxpr(agent.critic_step)(state, a_batch(), jax.random.key(1)).jaxpr)
    zeros = [kernel for kernel in kernels if "zero_kernel" in str(kernel.params)]
    weights = [kernel for kernel in kernels if "weight_kernel" in str(kernel.params)]
    assert len(zeros) == 2  # after the last block on the way back, and before the heads' optimiser
    assert (
        sorted(len(kernel.invars) for kernel in weights)[-1] == 3
    )  # that of the joint layer comes after a product
    assert all(len(kernel.invars) in (2, 3) for kernel in weights)
