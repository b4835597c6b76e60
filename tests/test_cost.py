"""Arithmetic counted in programs whose cost is known, and what the console says of it."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from fcritic.agents.fac import FAC
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.study.execute import Budget, RunProgress, require_agreed_runs
from fcritic.study.spec import Run
from fcritic.training import cost
from fcritic.training.console import duration
from fcritic.training.cost import cheaper_line, count_flops, estimated_seconds, flops_per_iteration, rough_seconds
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
    text = cheaper_line(TrainConfig(FAC()), EnvSpec(17, 6))
    assert "--members 4 (17% of the arithmetic)" in text
    assert "--encoder.shared (23% of the arithmetic)" in text


@pytest.fixture
def slow_machine(monkeypatch):
    """As fast as two CPU cores that reach 130 GFLOP per second in a large product."""
    monkeypatch.setattr(cost, "_product_rate", lambda dtype: 130e9)


def test_the_papers_agent_is_estimated_to_take_half_a_year_on_two_cores(slow_machine):
    half_a_year = estimated_seconds(TrainConfig(FAC()), EnvSpec(17, 6)) / 86_400
    assert 120 < half_a_year < 240
    half_done = estimated_seconds(TrainConfig(FAC()), EnvSpec(17, 6), begun=505_000) / 86_400
    assert half_done == pytest.approx(half_a_year / 2, rel=0.01)


def test_the_bound_that_spares_counting_is_one():
    for recipe in ("fac", "fac-small", "sac", "td3+"):
        agent = TrainConfig.of(recipe).agent
        assert cost._most_flops(agent, EnvSpec(5, 1)) > flops_per_iteration(agent, EnvSpec(5, 1))


def test_nothing_is_counted_for_a_small_job(monkeypatch):
    """It would make each start a second longer."""
    monkeypatch.setattr(cost, "flops_per_iteration", None)
    small = TrainConfig.of("fac-small", steps=56_000, action_repeat=4, warmup=2_000)
    assert estimated_seconds(small, EnvSpec(5, 1)) is None


@pytest.mark.parametrize(
    ("recipe", "milliseconds"),
    [("sac", 6.4), ("td3", 5.1), ("sac+", 197), ("td3+", 185), ("fac", 7558), ("fac-small", 14)],
)
def test_what_is_said_without_counting_is_near_what_was_recorded(recipe, milliseconds):
    """Times of an iteration in benchmarks/results/speed/README.md."""
    config = TrainConfig.of(recipe, steps=20_000, warmup=10_000, seeds=2)
    learning = 2 * (config.iterations - config.warmup_iterations) * milliseconds / 1000
    assert 0.5 < rough_seconds(config, EnvSpec(17, 6)) / learning < 2.5
    assert rough_seconds(config, EnvSpec(17, 6), begun=config.iterations) == 0


@pytest.fixture
def days(tmp_path):
    """Two runs of an experiment, each of which would take most of a day by its environment alone."""
    run = lambda seeds: Run("td3", "probe-both", envs=1, seeds=seeds, steps=60_000_000)
    return [RunProgress(run(seeds), tmp_path / str(seeds), 0) for seeds in (1, 2)]


def test_an_experiment_of_days_needs_a_word_or_a_budget(days, slow_machine, monkeypatch):
    monkeypatch.setattr(cost, "flops_per_iteration", lambda *_: 0)
    require_agreed_runs(days[:1], Budget(None), yes=False)
    with pytest.raises(UsageError, match=r"-1-td3, with the runs before it, is .* 33 h 20 min .* add --yes"):
        require_agreed_runs(days, Budget(None), yes=False)
    require_agreed_runs(days, Budget(None), yes=True)
    require_agreed_runs(days, Budget(3600.0), yes=False)


def test_durations_read_well():
    assert [duration(s) for s in (3, 99, 600, 12_345, 1e6)] == ["3 s", "99 s", "10 min", "3 h 26 min", "11.6 days"]
