"""The loop as a whole: exact continuation, accounting, evaluation, and what a run directory holds."""

import dataclasses
import json
from pathlib import Path
import shutil

import equinox as eqx
import numpy as np
import pytest

from fcritic import envs
from fcritic.agents.cloud import Cloud
from fcritic.agents.fac import Explore
from fcritic.agents.fsac import FSAC
from fcritic.agents.recipes import find_recipe
from fcritic.agents.steering import Trust
from fcritic.config import TrainConfig
from fcritic.errors import Diverged, UsageError
from fcritic.logs.metrics import read_rows
from fcritic.networks.actor_encoder import EncoderConfig
from fcritic.runs.directory import RunDirectory
from fcritic.runs.fingerprint import fingerprint
from fcritic.training.evaluate import Evaluation, Evaluator
from fcritic.training.loop import Training, train
from fcritic.training.saving import load_policies
from fcritic.training.signals import Interrupted


@pytest.fixture(scope="module")
def config(tiny):
    """Two seeds with two environments each on a real task, a few dozen updates long."""
    return TrainConfig(
        agent=tiny,
        task="acrobot-swingup",
        action_repeat=20,  # episodes of 50 steps, so that several end
        envs=2,
        seeds=2,
        seed=3,
        steps=4800,  # 120 iterations of 40 frames
        warmup=800,
        replay=60,  # wraps around
        eval_every=2000,
        log_every=400,
        save_every=2400,
    )


@pytest.fixture(scope="module")
def originals(config, tmp_path_factory) -> dict[int, Path]:
    """Runs by their length in frames: all of `config`, and one that has learned a little."""
    folder = tmp_path_factory.mktemp("trained")
    lengths = {frames: dataclasses.replace(config, steps=frames) for frames in (config.steps, 1200)}
    command = "fcritic train --example"
    return {n: train(each, folder / str(n), command=command, quiet=True).path for n, each in lengths.items()}


@pytest.fixture
def copied(originals, tmp_path):
    """A copy of one of these runs, which a test may change."""
    return lambda frames: RunDirectory(shutil.copytree(originals[frames], tmp_path / "run"))


def stop_after(iterations: int, config, out) -> None:
    """Trains until a signal arrives in the middle."""
    with RunDirectory.create_or_open(out, config.to_json(), "test") as run:
        training = Training.begin(config, run, quiet=True)
        advance = training.iterate

        def iterate():
            advance()
            if training.progress.iteration == iterations:
                training.stop.number = 15

        training.iterate = iterate
        with pytest.raises(Interrupted):
            training.run()


BASELINES = {"actor_hidden": (8,), "critic_hidden": (9,), "batch_size": 5}
EVERY_PART = {
    "encoder": EncoderConfig(kind="behaviour", probes=4, code=4, width=8, shared=True),
    "cloud": Cloud(policies=2, rows=2, bank=3, every=3),
    "trust": Trust(behaviour=True, rest_above=1.5, refresh_above=1.2, region=1.0, every=7, rows=8, states=2),
    "prior_scale": 1.0,
}
"""Everything that the state of a functional agent may hold: a bank of past actors, their steering, priors."""
AGENTS = {
    "fac": lambda tiny: dataclasses.replace(tiny, explore=Explore(noise=0.1)),
    "fsac": lambda tiny: FSAC(
        members=2, critics=2, batch_size=5, actor_hidden=(8,), state_action_hidden=(7,), state_action_code=4,
        joint_hidden=(6,), **EVERY_PART,
    ),
    "sac": lambda tiny: dataclasses.replace(find_recipe("sac"), **BASELINES),
    "td3+": lambda tiny: dataclasses.replace(find_recipe("td3+"), **BASELINES),
}  # fmt: skip


@pytest.mark.parametrize("name", AGENTS)
def test_a_stopped_and_continued_training_is_the_uninterrupted_one(config, tiny, tmp_path, name):
    """Bit for bit: parameters, optimiser, replay, keys, simulators in mid-episode, counters and metrics.

    What the other recipes change is in shapes and numbers; `fcritic bench reliability` has them too.
    """
    agent = AGENTS[name](tiny)
    actions = "uniform" if name == "fac" else "policy"
    config = dataclasses.replace(config, agent=agent, warmup_actions=actions, knowledge=2 * agent.keeps_past)
    whole = train(config, tmp_path / "whole", quiet=True)
    for stop in (7, 93):  # in the warm-up; in mid-episode, after the ring has wrapped
        stop_after(stop, config, tmp_path / "parts")
    parts = train(config, tmp_path / "parts", quiet=True)
    assert fingerprint(whole.path) == fingerprint(parts.path)
    assert whole.metrics.path.read_bytes() == parts.metrics.path.read_bytes()
    assert agent.keeps_past == any(row["kind"] == "knowledge" for row in read_rows(whole.metrics.path))


def test_rows_tell_frames_and_kinds(copied):
    run = copied(4800)
    rows = read_rows(run.metrics.path)
    assert {row["seed"] for row in rows} == {3, 4}
    evaluations = [row for row in rows if row["kind"] == "evaluation" and row["seed"] == 3]
    assert [row["env_steps"] for row in evaluations] == [2000, 4000, 4800]
    assert all(len(row["actors"]) == 3 for row in evaluations)
    episodes = [row for row in rows if row["kind"] == "episode" and row["seed"] == 4]
    assert [row["env_steps"] for row in episodes] == [2000, 2000, 4000, 4000]  # 50 actions of 20 frames, twice
    assert all(row["length"] == 50 for row in episodes)
    losses = [row for row in rows if row["kind"] == "train" and row["seed"] == 3]
    assert [row["env_steps"] for row in losses] == list(range(1200, 4801, 400))
    assert [row["actor_updates"] for row in losses[:2]] == [10, 20]
    assert all(np.isfinite(row["critic_loss"]) for row in losses)
    assert "fcritic train --example" in (run.path / "command.txt").read_text()
    assert json.loads((run.path / "versions.json").read_text())["jax"]
    assert list((run.path / "tensorboard").glob("seed-*/events*"))


def test_a_longer_run_continues_a_shorter_one_and_another_config_is_refused(config, copied):
    out = copied(4800).path
    longer = train(dataclasses.replace(config, steps=5200), out, quiet=True)
    assert longer.latest_checkpoint().name == "step-000000005200"
    before = list(longer.checkpoints.entries())
    with pytest.raises(UsageError, match="envs was 2, now 1"):
        train(dataclasses.replace(config, envs=1, steps=5200), out, quiet=True)
    assert list(longer.checkpoints.entries()) == before


def test_a_saved_policy_acts_as_it_did(config, copied):
    """Evaluating a checkpoint gives the numbers of the evaluation that training made at the same frame."""
    run = copied(4800)
    last = [row for row in read_rows(run.metrics.path) if row["kind"] == "evaluation"][-2:]
    policies, normalizer, facts = load_policies(config, run.latest_checkpoint())
    again = Evaluator(config, 1).evaluate(policies, normalizer, str(facts["env_steps"]))
    assert [row["actors"] for row in last] == [result.actors.tolist() for result in again]


def test_evaluation_is_repeatable_and_on_episodes_of_its_own(config, copied):
    run = copied(1200)
    policies, normalizer, _ = load_policies(config, run.latest_checkpoint())
    evaluator = Evaluator(config, 2)
    one, other, again = (evaluator.evaluate(policies, normalizer, salt)[0].returns for salt in ("a", "b", "a"))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert one.shape == (3, 2)
    train_seeds = {seed for row in envs.copy_seeds([3, 4], 6, "train") for seed in row}
    assert not train_seeds & {seed for row in envs.copy_seeds([3, 4], 6, "evaluation a") for seed in row}


def test_mean_and_best_actor_by_hand():
    result = Evaluation(np.array([[1.0, 3.0], [10.0, 20.0]]))
    assert result.actors.tolist() == [2.0, 15.0]
    assert (result.mean_actor, result.best_actor) == (8.5, 15.0)
    assert result.to_json()["best_actor_index"] == 1


def test_lengths_and_successes_by_hand():
    told = Evaluation(np.zeros((2, 2)), np.array([[1.0, 3.0], [10.0, 20.0]]), np.array([[0.0, 1.0], [1.0, 1.0]]))
    assert told.to_json().items() >= {"length": 8.5, "lengths": [2.0, 15.0], "success": 0.75}.items()
    assert told.to_json()["successes"] == [0.5, 1.0]
    untold = dataclasses.replace(told, successes=np.full((2, 2), np.nan)).to_json()
    assert "success" not in untold and untold["length"] == 8.5


def test_an_unusable_task_leaves_nothing_behind(config, tmp_path):
    with pytest.raises(UsageError, match="did you mean"):
        train(dataclasses.replace(config, task="acrobat-swingup"), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_configs_survive_json(config):
    again = TrainConfig.from_json(json.loads(json.dumps(config.to_json())))
    assert again == config and hash(again) == hash(config)
    with pytest.raises(UsageError, match=r"unknown field agent\.taux; did you mean tau"):
        data = config.to_json()
        TrainConfig.from_json(data | {"agent": data["agent"] | {"taux": 1}})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("envs", "2"),
        ("envs", True),
        ("envs", 10**9),
        ("task", 5),
        ("recency", None),
        ("on_fault", "pray"),
        ("agent", 1),
    ],
)
def test_a_forged_config_is_refused(config, field, value):
    with pytest.raises(UsageError) as caught:
        TrainConfig.from_json(config.to_json() | {field: value})
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("members", 10**6),
        ("members", 2.5),
        ("actor_hidden", ["8"]),
        ("actor_hidden", 8),
        ("actor_hidden", [8] * 99),
    ],
)
def test_a_forged_agent_is_refused(config, field, value):
    data = config.to_json()
    with pytest.raises(UsageError, match=field.replace("_", "[-_]")):
        TrainConfig.from_json(data | {"agent": data["agent"] | {field: value}})


def test_frames_are_summed_over_environments_and_repeats(config):
    assert (config.frames_per_iteration, config.iterations, config.warmup_iterations) == (40, 120, 20)
    assert config.updates_per_frame == pytest.approx((3 / 40, 1 / 40))
    assert dataclasses.replace(config, steps=4801).iterations == 121


def test_a_run_cannot_be_cut_short(config, copied):
    run = copied(1200)
    before = (run.path / "config.json").read_bytes()
    with pytest.raises(UsageError, match="already at frame 1,200"):
        train(dataclasses.replace(config, steps=800), run.path, quiet=True)
    assert (run.path / "config.json").read_bytes() == before


def test_a_run_from_before_an_option_existed_continues(config, copied):
    run = copied(1200)
    stored = run.config
    del stored["agent"]["explore"], stored["recency"]
    (run.path / "config.json").write_text(json.dumps(stored))
    longer = dataclasses.replace(config, steps=1600)
    assert train(longer, run.path, quiet=True).latest_checkpoint().name == "step-000000001600"


def test_a_diverged_seed_is_named_and_the_checkpoint_stays(config, copied):
    run = copied(1200)
    with run:
        run.lock()
        training = Training.begin(config, run, quiet=True)
        where = lambda state: state.agent.actors.params.network.layers[-1].bias
        state = training.device.state
        sick = eqx.tree_at(where, state, where(state).at[1].set(float("nan")))
        training.device.put(sick, training.device.memory)
        with pytest.raises(Diverged, match=r"seed 4 diverged by frame 1,200.*lower --learning-rate"):
            training.run()
    assert run.latest_checkpoint().name == "step-000000001200"
