"""Trainings that diverge or meet a fault: noticed, never saved, and taken back where that is asked for."""

import dataclasses

import equinox as eqx
import numpy as np
import pytest

from benchmarks.attacks import environments
from benchmarks.attacks.small import small_config
from fcritic import envs
from fcritic.errors import CannotWrite, Diverged, EnvironmentFault, UsageError
from fcritic.logs.metrics import read_rows
from fcritic.runs import checkpoint
from fcritic.runs.directory import RunDirectory
from fcritic.training.loop import FREE_FIELDS, Training, train
from fcritic.training.saving import Checkpoints


def poisoned(training: Training) -> None:
    """One parameter of the second seed is no number."""
    where = lambda state: state.agent.critics.params.network.layers[0].weight
    state = training.device.state
    sick = eqx.tree_at(where, state, where(state).at[1].set(float("nan")))
    training.device.put(sick, training.device.memory)


def test_a_sick_training_is_noticed_within_one_log_interval_and_never_saved(tmp_path):
    config = dataclasses.replace(small_config("td3"), save_every=40)
    with RunDirectory.create_or_open(tmp_path / "run", config.to_json(), "test", FREE_FIELDS) as run:
        training = Training.begin(config, run, quiet=True)
        training.advance(40)
        newest = run.latest_checkpoint()
        poisoned(training)
        with pytest.raises(Diverged, match=r"seed 4 diverged by frame 1,640: .*; lower --learning-rate"):
            training.run()
        assert run.latest_checkpoint() == newest


def test_learning_rate_one_is_noticed(tmp_path):
    """Values explode long before they are infinite: the first row beyond the limit is the last one."""
    config = small_config("sac")
    agent = dataclasses.replace(config.agent, learning_rate=1.0, critic_hidden=(64, 64), batch_size=32)
    config = dataclasses.replace(config, agent=agent, steps=12_000, eval_every=12_000)
    with pytest.raises(Diverged, match=r"seed \d diverged by frame .*: its mean value .* is beyond ") as caught:
        train(config, tmp_path / "run", quiet=True)
    rows = [row for row in read_rows(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "train"]
    limit = float(str(caught.value).split("is beyond ")[1].split()[0])
    assert limit >= 100 * 1 / (1 - 0.99)  # rewards of 20 frames are added, so it may be more
    beyond = {row["env_steps"] for row in rows if abs(row["critic_value"]) > limit}
    assert beyond == {max(row["env_steps"] for row in rows)}


def test_going_back_repeats_neither_the_fault_nor_the_rows(tmp_path, capsys):
    config = dataclasses.replace(small_config("td3"), on_fault="rollback")
    with RunDirectory.create_or_open(tmp_path / "run", config.to_json(), "test", FREE_FIELDS) as run:
        training = Training.begin(config, run, quiet=True)
        training.advance(70)  # saved at 60
        keys = np.asarray(training.device.state.keys)
        poisoned(training)
        training.run()
        assert training.progress.rollbacks == 1
        assert not np.array_equal(np.asarray(training.device.state.keys), keys)
    assert "went back to frame 2,400, on with other random numbers" in capsys.readouterr().err
    rows = read_rows(run.metrics.path)
    assert [row["rollbacks"] for row in rows if row["kind"] == "rollback"] == [1]
    losses = [row["env_steps"] for row in rows if row["kind"] == "train" and row["seed"] == 3]
    assert losses == list(range(1200, 4801, 400))


def test_an_environment_that_fails_in_one_step_of_its_life_does_not_meet_it_again(tmp_path, monkeypatch):
    config = dataclasses.replace(small_config("td3"), task=environments.TASK, action_repeat=1, on_fault="rollback")
    config = dataclasses.replace(config, steps=160, warmup=40, save_every=40, eval_every=160, log_every=40)
    sick = envs.copy_seeds(config.seed_numbers, config.envs, "train")[1][0]
    monkeypatch.setenv("FCRITIC_SICK", f"{sick},50,raise")
    run = train(config, tmp_path / "run", quiet=True)
    (row,) = (row for row in read_rows(run.metrics.path) if row["kind"] == "rollback")
    assert row["env_steps"] == 80 and "joint fell off at step 49" in row["why"]


def test_a_fault_that_always_returns_ends_the_run(tmp_path):
    config = dataclasses.replace(small_config("td3"), on_fault="rollback")
    with RunDirectory.create_or_open(tmp_path / "run", config.to_json(), "test", FREE_FIELDS) as run:
        training = Training.begin(config, run, quiet=True)
        training.advance(30)
        training.save()
        iterate = training.iterate

        def sick() -> None:
            iterate()
            poisoned(training)

        training.iterate = sick
        with pytest.raises(Diverged):
            training.run()
        assert training.progress.rollbacks == 3
        assert run.latest_checkpoint().name == "step-000000001200"


# Faults that end a run


def faulty(tmp_path, monkeypatch, at: int, **changes):
    """A training one of whose environments raises in the step of its life numbered `at`, before any checkpoint."""
    config = dataclasses.replace(small_config("td3"), task=environments.TASK, action_repeat=1)
    config = dataclasses.replace(config, steps=160, warmup=40, save_every=1000, eval_every=160, log_every=40)
    config = dataclasses.replace(config, **changes)
    sick = envs.copy_seeds(config.seed_numbers, config.envs, "train")[1][0]
    monkeypatch.setenv("FCRITIC_SICK", f"{sick},{at},raise")
    return config


@pytest.mark.parametrize("at", [12, 30], ids=["in the warm-up", "while learning"])
def test_a_fault_before_the_first_checkpoint_loses_nothing_but_episodes(tmp_path, monkeypatch, at):
    config = faulty(tmp_path, monkeypatch, at)
    with pytest.raises(
        EnvironmentFault, match=rf"joint fell off.*; all up to frame {2 * (at - 1)} is saved, a res"
    ):
        train(config, tmp_path / "run", quiet=True)
    run = RunDirectory(tmp_path / "run")
    assert run.newest_frame() == 2 * (at - 1)
    monkeypatch.setenv("FCRITIC_SICK", "-,0,-")
    train(config, run.path, quiet=True)
    episodes = [row for row in read_rows(run.metrics.path) if row["kind"] == "episode"]
    assert max(row["env_steps"] for row in episodes) > 140
    losses = [
        row["env_steps"] for row in read_rows(run.metrics.path) if row["kind"] == "train" and row["seed"] == 3
    ]
    assert losses == [80, 120, 160]
    record = checkpoint.verify(run.latest_checkpoint(), [])["facts"]
    assert (record["iteration"], record["replay"]["written"]) == (80, 79)  # no step was stored twice, none left out


def test_a_fault_of_an_evaluation_saves_too(tmp_path, monkeypatch):
    config = faulty(tmp_path, monkeypatch, 10**6, eval_every=80)

    def fail(*_):
        raise UsageError("the episodes do not end")

    monkeypatch.setattr("fcritic.training.evaluate.Evaluator.evaluate", fail)
    with pytest.raises(UsageError, match="do not end; all up to frame 80 is saved"):
        train(config, tmp_path / "run", quiet=True)


def test_what_cannot_be_saved_is_told(tmp_path, monkeypatch):
    config = faulty(tmp_path, monkeypatch, 1)
    with pytest.raises(EnvironmentFault, match="there is no checkpoint: a resume begins at frame 0"):
        train(config, tmp_path / "first", quiet=True)
    config = faulty(tmp_path, monkeypatch, 30)
    monkeypatch.setattr(Checkpoints, "save", lambda *_: (_ for _ in ()).throw(CannotWrite("the disk is full")))
    with pytest.raises(EnvironmentFault, match=r"there is no checkpoint \(the disk is full\): a resume begins"):
        train(config, tmp_path / "second", quiet=True)


def test_a_run_without_a_checkpoint_says_that_it_begins_again(tmp_path, capsys):
    config = dataclasses.replace(small_config("td3"), steps=400, save_every=10**6)
    run = RunDirectory.create_or_open(tmp_path / "run", config.to_json(), "test")
    run.close()
    train(config, run.path)
    told = capsys.readouterr().err
    assert f"note: {run.path} has no checkpoint yet (--save-every 1,000,000); beginning at frame 0" in told
    run.checkpoints.remove()
    train(config, run.path, quiet=True)
    assert "has no checkpoint: its last process ended before the first one" in capsys.readouterr().err
    train(config, tmp_path / "new")
    assert "checkpoint" not in capsys.readouterr().err


def test_an_agent_that_leaves_its_bounds_is_told_before_its_step_is_taken(tmp_path, monkeypatch):
    config = small_config("td3")
    monkeypatch.setattr("fcritic.training.device.Device.act", lambda *_: np.full((2, 2, 1), 1.5, np.float32))
    with pytest.raises(
        UsageError, match=r"TD3\.act returned the action 1\.5; clip its actions to \[-1, 1\]; all up"
    ):
        train(config, tmp_path / "run", quiet=True)
    assert RunDirectory(tmp_path / "run").newest_frame() == config.warmup
