"""Arithmetic counted in programs whose cost is known, and what the console says of it."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from fcritic.agents.fac import FAC
from fcritic.config import TrainConfig
from fcritic.training.console import duration
from fcritic.training.cost import _cheaper, flops_per_iteration
from fcritic.training.flops import count_flops
from fcritic.types import EnvSpec

MATRIX, VECTOR = jnp.ones((30, 20)), jnp.ones(20)


def test_products_are_counted_by_hand():
    assert count_flops(lambda a, b: a @ b, MATRIX, VECTOR) == 2 * 30 * 20
    assert count_flops(jax.vmap(lambda row: row @ MATRIX), jnp.ones((7, 30))) == 2 * 7 * 30 * 20


def test_loops_count_every_turn_and_branches_the_dearest():
    loop = lambda x: jax.lax.scan(lambda carry, _: (MATRIX.T @ (MATRIX @ carry), None), x, length=5)[0]
    assert count_flops(jax.jit(loop), VECTOR) == 5 * 2 * (2 * 30 * 20)
    branch = lambda x: jax.lax.cond(x[0] > 0, lambda y: MATRIX @ y, lambda y: jnp.zeros(30), x)
    assert count_flops(branch, VECTOR) == 2 * 30 * 20


def test_a_gradient_costs_its_forward_pass_and_the_way_back():
    loss = lambda weight: ((weight @ VECTOR) ** 2).sum()
    assert count_flops(jax.grad(loss), MATRIX) == 2 * (2 * 30 * 20)


@pytest.fixture(scope="module")
def paper() -> int:
    return flops_per_iteration(FAC(), EnvSpec(17, 6))


def test_the_papers_agent_costs_half_a_teraflop_per_iteration(paper):
    """An independent prototype of these sizes counted 0.55 TFLOP."""
    assert 0.5e12 < paper < 0.6e12


def test_a_shared_encoder_costs_a_quarter_and_more_critic_steps_cost_more(paper):
    shared = dataclasses.replace(FAC(), encoder=dataclasses.replace(FAC().encoder, shared=True))
    assert flops_per_iteration(shared, EnvSpec(17, 6)) < 0.25 * paper
    assert flops_per_iteration(dataclasses.replace(FAC(), critic_steps=1), EnvSpec(17, 6)) < 0.4 * paper


def test_a_long_job_is_told_what_would_be_cheaper():
    text = _cheaper(TrainConfig(FAC()), EnvSpec(17, 6))
    assert "--members 4 (17% of the arithmetic)" in text
    assert "--encoder.shared (23% of the arithmetic)" in text


def test_durations_read_well():
    assert [duration(s) for s in (3, 99, 600, 12_345, 1e6)] == ["3 s", "99 s", "10 min", "3 h 26 min", "11.6 days"]
