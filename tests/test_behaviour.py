"""What agents do: measured by hand, logged by a real training, drawn by the command."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_train import stop_after

from fcritic.agents.recipes import find_recipe
from fcritic.cli.dispatch import run as command
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.logs.metrics import JSONLog, read_rows
from fcritic.results import read as results
from fcritic.runs.directory import RunDirectory
from fcritic.runs.fingerprint import fingerprint
from fcritic.runs.replay_log import Record, ReplayLog
from fcritic.training.behaviour import cells, diversity, saturation
from fcritic.training.loop import train
from fcritic.types import EnvSpec


def test_diversity_by_hand():
    """Three actors at two states: distances 5, 0, 5 at the first and 1, 3, 2 at the second."""
    actions = jnp.array([[[0.0, 0.0], [0.0, 0.0]], [[3.0, 4.0], [1.0, 0.0]], [[0.0, 0.0], [3.0, 0.0]]])
    assert float(diversity(actions)) == pytest.approx((5 + 0 + 5 + 1 + 3 + 2) / 6)


def test_saturation_by_hand():
    assert float(saturation(jnp.array([[[1.0, -1.0], [0.5, 0.985]], [[-0.995, 0.0], [0.0, 0.2]]]))) == 3 / 8


def test_cells_are_boxes_between_halves_and_three_quarters_of_powers_of_two():
    together = [(1.0, 1.49), (-0.5, -0.74), (2.0, 2.99), (0.0, 0.0078), (0.0, -0.0078), (0.0, -0.0)]
    apart = [(1.0, 1.5), (0.99, 1.0), (0.5, -0.5), (0.0, 0.0079), (2.9, 3.0), (0.25, 0.4)]
    numbers = np.array(together + apart, np.float32)  # each pair as the first number of two observations
    rows = np.zeros((1, 2 * len(numbers), 1, 2 * 2 + 1 + 2), np.float32)
    rows[0, :, 0, 0] = numbers.ravel()
    rows[0, :, 0, 1] = 0.3
    rows[0, :, 0, 2:] = np.random.default_rng(0).normal(size=rows[0, :, 0, 2:].shape)  # no part of the observation
    found = cells(jnp.asarray(rows), EnvSpec(2, 1)).reshape(-1, 2)
    assert (found[:, 0] == found[:, 1]).tolist() == [True] * len(together) + [False] * len(apart)


def test_cells_of_one_hot_states_never_coincide():
    rows = np.zeros((1, 2500, 1, 2 * 2500 + 3), np.float32)
    rows[0, np.arange(2500), 0, np.arange(2500)] = 1.0
    assert len(np.unique(cells(jnp.asarray(rows), EnvSpec(2500, 1)))) == 2500


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two seeds of a plain ensemble with priors in a river of three states, whose end pays 1."""
    small = {"members": 3, "batch_size": 8, "actor_hidden": (8,), "joint_hidden": (8,), "critic_steps": 1}
    options = {"functional": False, "prior_scale": 1.0}
    config = TrainConfig(
        dataclasses.replace(find_recipe("fac-small"), **small, **options),
        recipe="fac-small",
        task="riverswim-3",
        seeds=2,
        seed=5,
        steps=120,
        warmup=40,
        warmup_actions="policy",
        eval_every=40,
        log_every=50,
        first_reward_above=0.5,
    )
    return train(config, tmp_path_factory.mktemp("behaviour") / "run", quiet=True), config


def test_a_training_tells_what_its_agents_do(trained):
    run, _ = trained
    rows = [row for row in read_rows(run.metrics.path) if row["kind"] == "behaviour"]
    assert [(row["seed"], row["env_steps"]) for row in rows] == [(s, f) for f in (40, 80, 120) for s in (5, 6)]
    for row in rows:
        assert 1 <= row["coverage"] <= 3 and 0 <= row["diversity"] <= 2
        assert len(row["disagreement_by_actor"]) == 3
        assert row["disagreement"] == pytest.approx(np.mean(row["disagreement_by_actor"]), rel=1e-5)
    assert rows[0]["diversity"] < rows[-1]["diversity"]  # actors begin near zero, all alike


def test_a_run_with_priors_continues_exactly(trained, tmp_path):
    """Bit for bit, with what is told of behaviour and first rewards."""
    whole, config = trained
    stop_after(71, config, tmp_path / "parts")
    parts = train(config, tmp_path / "parts", quiet=True)
    assert fingerprint(whole.path) == fingerprint(parts.path)
    assert whole.metrics.path.read_bytes() == parts.metrics.path.read_bytes()


def test_the_first_reward_is_told_once_at_the_frame_of_the_replay(trained):
    """The replay holds all steps of these short runs: its first reward of 1 is where the row says."""
    run, config = trained
    told = {row["seed"]: row for row in read_rows(run.metrics.path) if row["kind"] == "first_reward"}
    found = results.behaviour(run)
    facts = (run.latest_checkpoint() / "manifest.json").read_json()["facts"]
    log = ReplayLog(run.replay, facts["row"], config.replay)
    rewards = log.rows(Record.of(facts, config.replay))[..., 0, 3 + 1]  # (steps, seeds)
    for index, seed in enumerate(config.seed_numbers):
        hits = np.flatnonzero(rewards[:, index] > 0.5)
        if hits.size:
            assert found.first_reward[seed] == told[seed]["env_steps"] == hits[0] + 1
            assert told[seed]["reward"] == 1.0
        else:
            assert found.first_reward[seed] in (None, 120)  # the last step is not in the replay yet
    assert told


def test_a_log_knows_whose_first_reward_it_holds(tmp_path):
    log = JSONLog(tmp_path / "metrics.jsonl")
    row = {"seed": 4, "env_steps": 1, "kind": "first_reward", "reward": 1.0}
    log.write([row, row | {"seed": 6, "kind": "train", "note": "first_reward"}, row | {"seed": 7}])
    (tmp_path / "metrics.jsonl").open("ab").write(b'{"first_reward"\n["first_reward"]\n')
    assert log.seeds_with("first_reward") == {4, 7}
    log.close()


ASKED_FOR = results.TRUST
"""Measures that are logged where an option asks for them."""


@pytest.mark.parametrize(
    "what", ["returns", *(name for name in results.MEASURES if name not in ASKED_FOR), "first-reward"]
)
def test_plot_draws_it(trained, what, tmp_path, capsys):
    run, _ = trained
    out = tmp_path / "picture.png"
    assert command(["plot", str(run.path), "--what", what, "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert out.stat().st_size > 5000
    if what in results.MEASURES:
        frames, values = told["runs"][0]["measures"][what]["5"]
        assert frames == [40, 80, 120] and len(values) == 3


def test_plot_says_what_cannot_be_drawn(trained, tmp_path, capsys):
    run, _ = trained
    assert command(["plot", str(run.path), "--what", "coverge"]) == 2
    assert "--what must be one of" in capsys.readouterr().err
    lonely = RunDirectory(tmp_path / "lonely")
    lonely.path.mkdir()
    (lonely.path / "config.json").write_text('{"recipe": "sac", "task": "trap"}')
    rows = [row for row in read_rows(run.metrics.path) if row["kind"] == "behaviour"]
    log = JSONLog(lonely.metrics.path)
    log.write([{name: value for name, value in row.items() if name != "diversity"} for row in rows])
    log.close()
    assert command(["plot", str(lonely.path), "--what", "diversity"]) == 2
    assert "one actor alone has no diversity" in capsys.readouterr().err
    assert command(["plot", str(lonely.path), "--what", "coverage"]) == 0


def test_thresholds_must_be_numbers():
    with pytest.raises(UsageError, match="--first-reward-above must be a finite number"):
        TrainConfig.of("sac", first_reward_above=float("nan"))


def test_baselines_tell_how_far_their_critics_differ(spec, batch):
    agent = dataclasses.replace(find_recipe("sac"), actor_hidden=(8,), critic_hidden=(9,))

    @jax.jit
    def both(state):
        act = jax.vmap(state.actor.params)(batch.obs)
        one = lambda i: jax.vmap(jax.tree.map(lambda leaf: leaf[i], state.critics.params))(batch.obs, act)
        return agent.disagreement(state, batch.obs), one(0), one(1)

    found, first, second = both(agent.init(spec, jax.random.key(0)))
    np.testing.assert_allclose(found, [np.abs(first - second).mean() / 2], rtol=1e-4, atol=1e-7)
