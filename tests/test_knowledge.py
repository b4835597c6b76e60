"""What critics know: their values of past actors and mixtures, beside what these reach."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcritic
from fcritic import ensembles
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.logs.metrics import read_rows
from fcritic.networks.critics import FunctionalCritic
from fcritic.networks.policies import DeterministicPolicy
from fcritic.results import read as results
from fcritic.training.evaluate import Evaluator
from fcritic.training.knowledge import agreement, ranks
from fcritic.training.loop import train
from fcritic.training.replay import Normalizer
from fcritic.training.saving import load_state
from fcritic.view.inspection.inspect import told_in_training


def config_of(**options) -> TrainConfig:
    sizes = {"actor_hidden": (8,), "state_action_hidden": (8,), "joint_hidden": (8,), "batch_size": 8}
    encoder = {"kind": "behaviour", "probes": 4, "code": 4, "width": 8}
    often = {"steps": 120, "warmup": 40, "eval_every": 60, "normalize": False}
    cloud = {"policies": 3, "rows": 2, "bank": 4, "every": 10}
    options = {"members": 2, "encoder": encoder, "cloud": cloud} | sizes | often | options
    return fcritic.configure("fac-small", "probe-both", **options)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    config = config_of(knowledge=3, seeds=2)
    return config, train(config, tmp_path_factory.mktemp("knowledge") / "run", quiet=True)


def test_ranks_share_the_mean_of_their_places():
    np.testing.assert_array_equal(ranks(np.array([3.0, 1.0, 3.0, 7.0])), [2.5, 1.0, 2.5, 4.0])


def test_a_seed_has_a_row_at_each_evaluation_once_there_is_a_past(asked):
    _, run = asked
    rows = [row for row in read_rows(run.metrics) if row["kind"] == "knowledge"]
    assert [(row["env_steps"], row["seed"]) for row in rows] == [(60, 0), (60, 1), (120, 0), (120, 1)]
    for row in rows:
        assert len(row["predicted"]) == len(row["measured"]) == 6
        for kind, part in (("past", slice(0, 3)), ("mixtures", slice(3, 6))):
            found = agreement(np.array(row["predicted"])[part], np.array(row["measured"])[part])
            for name in ("rank", "slope", "error"):
                expected = np.nan if found[name] is None else found[name]
                np.testing.assert_allclose(row[f"{name}_{kind}"], expected, rtol=1e-6)


def test_to_ask_changes_nothing_of_the_training(asked, tmp_path):
    config, run = asked
    silent = dataclasses.replace(config, knowledge=0)
    other = train(silent, tmp_path / "run", quiet=True)
    states = [
        load_state(each, path.latest_checkpoint())[0].agent for each, path in ((config, run), (silent, other))
    ]
    assert all(bool((a == b).all()) for a, b in zip(*map(jax.tree.leaves, states), strict=True))
    kinds = {row["kind"] for row in read_rows(other.metrics)}
    assert "knowledge" not in kinds


def test_predictions_are_the_critics_mean_of_the_banks_actors(asked):
    config, run = asked
    agent = config.agent
    state = load_state(config, run.latest_checkpoint())[0].agent
    state = ensembles.member(state, 0)
    policies, obs = agent.past(state, 3, jax.random.key(0)), jnp.array([[0.5], [-1.0], [1.0]])
    first = ensembles.member(policies, np.arange(3))
    stored = int(agent.cloud.stored(state.bank))
    assert stored == 4
    critics = state.critics.params
    found = agent.predicted(state, first, obs)
    for number, slot in enumerate((0, 1, 2)):  # 0, 4/3 and 8/3, rounded down
        policy = ensembles.member(state.bank.stored, slot)
        each = [
            FunctionalCritic(critics.encoder, ensembles.member(critics.head, i))(
                policy, obs[number], policy(obs[number])
            )
            for i in range(agent.critic_count)
        ]
        np.testing.assert_allclose(found[number], np.mean(each), rtol=1e-4, atol=1e-6)


def test_measured_returns_are_discounted_as_critics_count(asked):
    """Where each of five steps pays 1: 1 + 0.8 + ... + 0.8^4."""
    config = config_of(steps=40, discount=0.8)
    actors = ensembles.stack(
        lambda key: DeterministicPolicy(1, (4,), 1, key=key, last_scale=1.0), 2, jax.random.key(1)
    )
    policies = jax.tree.map(lambda leaf: leaf[None], actors)
    evaluator = Evaluator(dataclasses.replace(config, task="probe-terminate"), 1)
    normalizer = jax.tree.map(lambda leaf: leaf[None], Normalizer.identity(1))
    played = evaluator.play(policies, normalizer, "test")
    np.testing.assert_allclose(played.discounted, [[3.3616, 3.3616]], rtol=1e-5)
    np.testing.assert_allclose(played.returns, [[5.0, 5.0]])
    evaluator.close()


def test_plot_reads_the_rank_on_past_actors(asked):
    _, run = asked
    rows = [row for row in read_rows(run.metrics) if row["kind"] == "knowledge" and row["seed"] == 1]
    frames, values = results.behaviour(run).measures["knowledge"][1]
    assert frames == [60, 120]
    np.testing.assert_array_equal(values, [row["rank_past"] for row in rows])


def test_without_a_past_nobody_can_be_asked():
    for recipe in ("fac-small", "sac"):
        with pytest.raises(UsageError, match=r"keep some: --cloud\.bank 32"):
            fcritic.configure(recipe, "probe-both", knowledge=4)


def test_inspect_shows_what_was_told_last(asked):
    _, run = asked
    last = [row for row in read_rows(run.metrics) if row["kind"] == "knowledge" and row["seed"] == 1][-1]
    agent: Any = SimpleNamespace(directory=run.path, seed=1)
    found = told_in_training(agent)
    assert found is not None and found["frame"] == 120
    assert found["error_past"] == last["error_past"] and found["error_mixtures"] == last["error_mixtures"]
    agent.seed = 7
    assert told_in_training(agent) is None
