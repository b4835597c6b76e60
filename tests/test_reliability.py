"""The fast version of `fcritic bench reliability`: the same attacks, fewer of them."""

import dataclasses
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import equinox as eqx
import numpy as np
import pytest

from fcritic import envs
from fcritic.config import TrainConfig
from fcritic.errors import CheckpointError, Diverged
from fcritic.fingerprint import fingerprint
from fcritic.logs import read_rows
from fcritic.reliability import command_lines, disks, environments, forgeries, kills
from fcritic.reliability.small import small_config, train_until
from fcritic.runs import RunDirectory
from fcritic.train import FREE_FIELDS, Training, train

silent = lambda line: None


def all_passed(report: dict) -> bool:
    return report["of"] > 0 and report["passed"] == report["of"]


def test_a_difference_would_be_seen(tmp_path):
    """The fingerprint is not blind: one more iteration, or one bit in the replay, changes it."""
    config = small_config("td3")
    train_until(config, tmp_path / "a", 25)
    train_until(config, tmp_path / "b", 26)
    one, other = fingerprint(tmp_path / "a"), fingerprint(tmp_path / "b")
    assert one["frame"] != other["frame"]
    assert all(one[part] != other[part] for part in ("agent", "environments", "rollout", "replay"))


def test_killed_twice_and_continued_to_the_same_end():
    report = kills.check(2, silent)
    assert all_passed(report) and report["same_end"] and report["within_one_interval"], report


def test_mutants_and_the_hostile_corpus():
    report = forgeries.check(40, silent)
    assert all_passed(report), report["bad"]
    assert report["outcomes"]["refused"] > 80 and report["outcomes"]["loaded"] > 0
    assert not report["foreign_code_ran"] and report["memory_grown_mb"] < 500


def test_a_disk_that_fails_is_survived():
    report = disks.check(2, silent, kinds=("full",))
    assert all_passed(report), report


def test_random_command_lines():
    report = command_lines.check(150, silent)
    assert all_passed(report), report["bad"]
    assert report["exit_codes"]["2"] > 20 and report["exit_codes"]["0"] > 2


def test_memory_is_measured():
    """Growth is seen, and what is given back. In a process of its own: this one is large, and what else it holds
    may be freed or moved out meanwhile."""
    lines = (
        "import numpy as np",
        "from fcritic.reliability.memory import resident_mb",
        "before = resident_mb()",
        "block = np.ones(2**24)  # 128 MB",
        "grown = resident_mb() - before",
        "del block",
        "print(grown, resident_mb() - before)",
    )
    told = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    ).stdout
    grown, left = map(float, told.split())
    assert 100 < grown < 160 and left < 30


def test_the_newest_checkpoint_is_damaged(tmp_path, capsys):
    """The one before is taken, with a warning, and the end is the same; the damaged one is set aside."""
    config = dataclasses.replace(small_config("td3"), save_every=800)
    whole = train(config, tmp_path / "whole", quiet=True)
    train_until(config, tmp_path / "run", 50)
    run = RunDirectory(tmp_path / "run")
    newest = run.latest_checkpoint()
    (newest / "agent.safetensors").write_bytes(b"garbage")
    train(config, tmp_path / "run", quiet=True)
    assert "continuing from step-000000001600" in capsys.readouterr().err
    assert (run.checkpoints / f"damaged-{newest.name}").is_dir()
    assert fingerprint(tmp_path / "run") == fingerprint(whole.path)


def test_a_run_without_a_sound_checkpoint_is_not_begun_again(tmp_path):
    config = small_config("td3")
    train_until(config, tmp_path / "run", 30)
    run = RunDirectory(tmp_path / "run")
    (run.latest_checkpoint() / "manifest.json").write_text("{")
    before = run.metrics_path.read_bytes()
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used"):
        train_until(config, tmp_path / "run", 40)
    assert run.metrics_path.read_bytes() == before


def test_the_best_policies_are_kept_and_continued(tmp_path):
    config = dataclasses.replace(small_config("td3"), steps=2400, eval_every=400)
    run = train(config, tmp_path / "run", quiet=True)
    rows = [row for row in read_rows(run.metrics_path) if row["kind"] == "evaluation"]
    command = [sys.executable, "-m", "fcritic", "evaluate", str(run.path), "--best", "--episodes", "1", "--json"]
    outcome = json.loads(subprocess.check_output(command))
    for seed in outcome["seeds"]:
        own = [row for row in rows if row["seed"] == seed["seed"]]
        assert seed["best_frame"] == max(own, key=lambda row: row["mean_actor"])["env_steps"]


# Sick trainings


def poisoned(training: Training) -> None:
    """One parameter of the second seed is no number."""
    where = lambda state: state.agent.critics.params.network.layers[0].weight
    training.state = eqx.tree_at(where, training.state, where(training.state).at[1].set(float("nan")))


def test_a_sick_training_is_noticed_within_one_log_interval_and_never_saved(tmp_path):
    config = dataclasses.replace(small_config("td3"), save_every=40)
    with RunDirectory.create_or_open(tmp_path / "run", config.to_json(), "test", FREE_FIELDS) as run:
        training = Training(config, run, quiet=True)
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
        training = Training(config, run, quiet=True)
        training.advance(70)  # saved at 60
        keys = np.asarray(training.state.keys)
        poisoned(training)
        training.run()
        assert training.progress.rollbacks == 1
        assert not np.array_equal(np.asarray(training.state.keys), keys)
    assert "went back to frame 2,400, on with other random numbers" in capsys.readouterr().err
    rows = read_rows(run.metrics_path)
    assert [row["rollbacks"] for row in rows if row["kind"] == "rollback"] == [1]
    losses = [row["env_steps"] for row in rows if row["kind"] == "train" and row["seed"] == 3]
    assert losses == list(range(1200, 4801, 400))


def test_an_environment_that_fails_in_one_step_of_its_life_does_not_meet_it_again(tmp_path, monkeypatch):
    config = dataclasses.replace(small_config("td3"), task=environments.TASK, action_repeat=1, on_fault="rollback")
    config = dataclasses.replace(config, steps=160, warmup=40, save_every=40, eval_every=160, log_every=40)
    sick = envs.copy_seeds(config.seed_numbers, config.envs, "train")[1][0]
    monkeypatch.setenv("FCRITIC_SICK", f"{sick},50,raise")
    run = train(config, tmp_path / "run", quiet=True)
    (row,) = (row for row in read_rows(run.metrics_path) if row["kind"] == "rollback")
    assert row["env_steps"] == 80 and "joint fell off at step 49" in row["why"]


def test_a_fault_that_always_returns_ends_the_run(tmp_path):
    config = dataclasses.replace(small_config("td3"), on_fault="rollback")
    with RunDirectory.create_or_open(tmp_path / "run", config.to_json(), "test", FREE_FIELDS) as run:
        training = Training(config, run, quiet=True)
        training.advance(30)
        training.save()
        iterate = training._iterate

        def sick() -> None:
            iterate()
            poisoned(training)

        training._iterate = sick
        with pytest.raises(Diverged):
            training.run()
        assert training.progress.rollbacks == 3
        assert run.latest_checkpoint().name == "step-000000001200"


# Processes


def test_a_signal_saves_and_the_run_goes_on(tmp_path):
    """SIGTERM and SIGINT: exit code 128 + n, the command that continues, and nothing lost."""
    command = [sys.executable, "-m", "fcritic", "train", *kills.SMALL, "--out", str(tmp_path / "run")]
    environment = os.environ | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    for number in (signal.SIGTERM, signal.SIGINT):
        metrics = tmp_path / "run" / "metrics.jsonl"
        size = metrics.stat().st_size if metrics.exists() else 0
        with subprocess.Popen(
            [*command, "--steps", "900000"], env=environment, stderr=subprocess.PIPE, text=True
        ) as process:
            assert kills._wait_for_rows(process, metrics, size)
            process.send_signal(number)
            told = process.communicate(timeout=60)[1]
        assert process.returncode == 128 + number
        assert "continue with:" in told and "Traceback" not in told
        saved = int(RunDirectory(tmp_path / "run").latest_checkpoint().name.removeprefix("step-"))
        assert max(row["env_steps"] for row in read_rows(metrics)) <= saved


def test_a_run_cannot_bring_its_own_code(tmp_path):
    """A stranger's run whose task is a module that lies in it: refused, and not imported."""
    config = TrainConfig.of("td3", task="evil:Evil-v0")
    run = tmp_path / "run"
    RunDirectory.create_or_open(run, config.to_json(), "test").close()
    (run / "evil.py").write_text(f"open({str(tmp_path / 'planted')!r}, 'w')")
    for command in ("evaluate", "resume"):
        program = [sys.executable, "-m", "fcritic", command, "."]
        done = subprocess.run(
            program, cwd=run, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": f"{Path.cwd()}"}
        )
        assert done.returncode == 2 and "brings the code of its own task" in done.stderr, done.stderr
    assert not (tmp_path / "planted").exists()


def test_a_really_full_disk(tmp_path):
    """A file system of two megabytes is filled and emptied again while a training runs on it."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can make a small file system")
    try:
        config = dataclasses.replace(small_config("td3"), save_every=400)
        with RunDirectory.create_or_open(tmp_path / "run", config.to_json(), "test", FREE_FIELDS) as run:
            training = Training(config, run, quiet=True)
            training.advance(40)
            kept = run.latest_checkpoint()
            with (tmp_path / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
                while True:
                    filler.write(bytes(4096))
            training.advance(40)
            assert run.latest_checkpoint() == kept
            (tmp_path / "filler").unlink()
            training.run()
        train(config, tmp_path / "whole", quiet=True)
        assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "whole")
    finally:
        time.sleep(0.1)
        subprocess.run(["umount", str(tmp_path)], check=True)
