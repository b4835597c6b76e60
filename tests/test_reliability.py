"""The fast version of `fcritic bench reliability`: the same attacks, fewer of them."""

import dataclasses
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import pytest

from benchmarks.attacks import command_lines, disks, forgeries
from benchmarks.attacks.small import small_config, train_until
from fcritic.config import TrainConfig
from fcritic.errors import CheckpointError
from fcritic.logs.metrics import read_rows
from fcritic.runs.directory import RunDirectory
from fcritic.runs.fingerprint import fingerprint
from fcritic.startup import kills
from fcritic.training.loop import FREE_FIELDS, Training, train

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
        "from benchmarks.attacks.memory import resident_mb",
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
    (newest.path / "agent.safetensors").write_bytes(b"garbage")
    train(config, tmp_path / "run", quiet=True)
    assert "continuing from step-000000001600" in capsys.readouterr().err
    assert (run.checkpoints / f"damaged-{newest.name}").is_folder()
    assert fingerprint(tmp_path / "run") == fingerprint(whole.path)


def test_a_run_without_a_sound_checkpoint_is_not_begun_again(tmp_path):
    config = small_config("td3")
    train_until(config, tmp_path / "run", 30)
    run = RunDirectory(tmp_path / "run")
    (run.latest_checkpoint() / "manifest.json").path.write_text("{")
    before = run.metrics.path.read_bytes()
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used"):
        train_until(config, tmp_path / "run", 40)
    assert run.metrics.path.read_bytes() == before


def test_the_best_policies_are_kept_and_continued(tmp_path):
    config = dataclasses.replace(small_config("td3"), steps=2400, eval_every=400)
    run = train(config, tmp_path / "run", quiet=True)
    rows = [row for row in read_rows(run.metrics.path) if row["kind"] == "evaluation"]
    command = [sys.executable, "-m", "fcritic", "evaluate", str(run.path), "--best", "--episodes", "1", "--json"]
    outcome = json.loads(subprocess.check_output(command))
    for seed in outcome["seeds"]:
        own = [row for row in rows if row["seed"] == seed["seed"]]
        assert seed["best_frame"] == max(own, key=lambda row: row["mean_actor"])["env_steps"]


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
        assert done.returncode == 2 and "contains the code of its own task" in done.stderr, done.stderr
    assert not (tmp_path / "planted").exists()


def test_a_really_full_disk(tmp_path):
    """A file system of two megabytes is filled and emptied again while a training runs on it."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can make a small file system")
    try:
        config = dataclasses.replace(small_config("td3"), save_every=400)
        with RunDirectory.create_or_open(tmp_path / "run", config.to_json(), "test", FREE_FIELDS) as run:
            training = Training.begin(config, run, quiet=True)
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
