"""What critics know: their values of past actors and mixtures, beside what these reach."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
import numpy as np
import pytest

import fcritic
from fcritic import ensembles
from fcritic.agents import bellman
from fcritic.agents.bellman import corrections
from fcritic.agents.cloud import Cloud
from fcritic.config import TrainConfig
from fcritic.envs import task_spec
from fcritic.errors import UsageError
from fcritic.logs.metrics import read_rows
from fcritic.networks.critics import FunctionalCritic
from fcritic.networks.policies import DeterministicPolicy, FunctionPolicy
from fcritic.results import read as results
from fcritic.results.plots import behaviour_curves
from fcritic.training.device import Learning
from fcritic.training.evaluate import Evaluator
from fcritic.training.knowledge import _others, agreement, ranks
from fcritic.training.loop import train
from fcritic.training.replay import Normalizer
from fcritic.training.saving import load_state
from fcritic.types import Transition
from fcritic.view.inspection.inspect import told_in_training

KEY = jax.random.key(0)


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
        for kind, count in (("past", 3), ("mixtures", 3), ("others", 2)):  # two actors span no slice
            predicted, measured = (np.array(row[f"{name}_{kind}"]) for name in ("predicted", "measured"))
            assert len(predicted) == len(measured) == count
            corrected = np.array(row[f"predicted_{kind}_corrected"])
            for after, values in (("", predicted), ("_corrected", corrected)):
                found = agreement(values, measured)
                for name in ("rank", "slope", "error"):
                    expected = np.nan if found[name] is None else found[name]
                    np.testing.assert_allclose(row[f"{name}_{kind}{after}"], expected, rtol=1e-6)
            assert not (corrected == predicted).any()
        assert "rank_slice" not in row


def test_actors_of_other_seeds_see_as_in_their_own_run():
    """Three seeds with two actors each; observations are normalised by means 0, 10, 20 and deviations 1, 2, 4."""
    config = config_of(normalize=True, members=2)
    learning = Learning(config.agent, task_spec(config.task), 1, 10, True, 8.0)
    state = learning.start([0, 1, 2])
    mean, variance = np.array([[0.0], [10.0], [20.0]], np.float32), np.array([[1.0], [4.0], [16.0]], np.float32)
    state = eqx.tree_at(lambda s: (s.normalizer.mean, s.normalizer.variance), state, (mean, variance))
    policies, obs = _others(learning, 4, state), jnp.array([5.0])
    for seed in range(3):
        own = ensembles.member(state.normalizer, seed)
        for place in range(4):
            whose = (seed + 1 + place // 2) % 3
            sight = ensembles.member(state.normalizer, whose)
            actor = jax.tree.map(lambda leaf, at=(whose, place % 2): leaf[at], state.agent.actors.params)
            found = jax.tree.map(lambda leaf, seed=seed, place=place: leaf[seed, place], policies)
            np.testing.assert_allclose(found(own(obs)), actor(sight(obs)), rtol=1e-4, atol=1e-7)
            # so is its code, in the eyes of this seed's critics
            critics = ensembles.member(state.agent, seed).valued_by
            plain = FunctionPolicy(lambda _, s, a=actor, o=sight, n=own: (a(o(n.undo(s))),))
            np.testing.assert_allclose(critics.encode(found), critics.encode(plain), rtol=1e-3, atol=1e-4)
    few = _others(learning, 6, state)  # of four actors, two come again
    first, again = (jax.tree.map(lambda leaf, at=at: leaf[0, at], few.policy) for at in (1, 5))
    assert all(bool((a == b).all()) for a, b in zip(*map(jax.tree.leaves, (first, again)), strict=True))


def test_a_slice_covers_the_plane_through_three_actors():
    corners = {"at": jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [9.0, 9.0]])}
    cloud = Cloud(bank=2)
    found = cloud.asked(corners, cloud.begin(corners), 16, jax.random.key(0), False)
    at = np.asarray(found["slice"]["at"])
    assert set(found) == {"past", "slice"} and at.shape == (16, 2)
    # the first multiples: -0.5 + 2 frac(0.5 + 0.7548776662) and -0.5 + 2 frac(0.5 + 0.5698402910)
    np.testing.assert_allclose(at[0], [0.009755, -0.360319], atol=1e-5)
    quarters = {(x > 0.5, y > 0.5) for x, y in at.tolist()}
    assert len(quarters) == 4 and at.min() >= -0.5 and at.max() <= 1.5
    assert "slice" not in cloud.asked(ensembles.member(corners, np.arange(2)), cloud.begin(corners), 4, KEY, False)


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
    first, obs = agent.asked(state, 3, KEY)["past"], jnp.array([[0.5], [-1.0], [1.0]])
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


@pytest.mark.parametrize("prior_scale", [0.0, 1.0])
def test_corrected_values_are_exact_where_the_replay_says_them_whatever_the_critics_say(prior_scale, monkeypatch):
    """Rewards of 1 for ever are worth 1 / (1 - gamma); a reward of 0.8 a that ends the task is worth 0.8 pi(s)."""
    for name in ("RIDGE", "CAUTION"):
        monkeypatch.setattr(bellman, name, 1e-5)  # less is lost in what float32 rounds
    wide = {"joint_hidden": (64,), "state_action_hidden": (64,), "layer_norm": False}
    config = config_of(discount=0.5, members=3, prior_scale=prior_scale, **wide)
    learning = Learning(config.agent, task_spec(config.task), 1, 10, True, 8.0)
    state = ensembles.member(learning.start([0]).agent, 0)
    make = lambda key: DeterministicPolicy(1, (4,), 1, key=key, last_scale=1.0)
    policies, rng = ensembles.stack(make, 5, KEY), np.random.default_rng(0)
    starts = jnp.asarray(rng.uniform(-1, 1, (5, 1, 1)), jnp.float32)
    obs, act = (jnp.asarray(rng.uniform(-1, 1, (2000, 1)), jnp.float32) for _ in range(2))
    here = Transition(obs, act, jnp.ones(2000), jnp.ones(2000), obs)
    own = np.asarray(vmap(lambda policy, s: policy(s)[0])(policies, starts[:, 0]))
    predicted = np.asarray(config.agent.predicted(state, policies, starts[:, 0]))
    ends = here._replace(reward=0.8 * act[:, 0], discount=jnp.zeros(2000))
    for logged, exact in ((here, 2.0), (ends, 0.8 * own)):
        change = corrections(config.agent.equations(state, policies, starts, logged)).mean(axis=1)
        np.testing.assert_allclose(predicted + change, exact, atol=0.05)
        assert np.abs(predicted - exact).max() > 0.2


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


def test_plot_reads_and_draws_what_critics_know(asked, tmp_path):
    _, run = asked
    rows = [row for row in read_rows(run.metrics) if row["kind"] == "knowledge" and row["seed"] == 1]
    found = results.behaviour(run)
    for name in ("rank_past", "slope_mixtures", "error_others"):
        frames, values = found.measures[name][1]
        assert frames == [60, 120]
        np.testing.assert_array_equal(values, [row[name] for row in rows])
    assert found.measures["rank_slice"] == {}
    behaviour_curves([found], "knowledge", tmp_path / "knowledge.png")
    assert (tmp_path / "knowledge.png").stat().st_size > 5000
    untold = dataclasses.replace(found, measures={name: {} for name in found.measures})
    with pytest.raises(UsageError, match="train with --knowledge"):
        behaviour_curves([untold], "knowledge", tmp_path / "none.png")


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
    assert list(found["kinds"]) == ["past", "mixtures", "others"]
    for kind, signs in found["kinds"].items():
        assert signs["error"] == last[f"error_{kind}"]
        assert signs["corrected"]["error"] == last[f"error_{kind}_corrected"]
    agent.seed = 7
    assert told_in_training(agent) is None
