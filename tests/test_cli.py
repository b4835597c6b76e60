"""The command line as a user meets it: train, continue, evaluate, describe, plot, and what is left on disk."""

import json
import os
from pathlib import Path
import shlex
import shutil
import signal
import subprocess
import sys
import time

import jax
import pytest

from fcritic.cli import commands
from fcritic.cli.dispatch import run
from fcritic.config import TrainConfig
from fcritic.logs.metrics import read_rows
from fcritic.runs import checkpoint
from fcritic.runs.directory import RunDirectory

ROOT = Path(__file__).parents[1]
CONTRACT = shlex.split("--recipe fac-small --task probe-both --envs 2 --steps 400 --seeds 2 --seed 5")
SMALL = shlex.split(
    "--members 2 --batch-size 16 --actor-hidden 8 --state-action-hidden 8 --joint-hidden 8 --replay 1000 "
    "--encoder.probes 4 --encoder.width 8 --encoder.code 8 --warmup 100 --eval-every 200 --log-every 100"
)


def contents(folder):
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def train_command(out, *more):
    return ["train", *CONTRACT, *SMALL, "--out", str(out), *more]


def start(*args):
    """The same command in a process of its own."""
    fast = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command, pipe = [sys.executable, "-m", "fcritic", *args], subprocess.PIPE
    return subprocess.Popen(command, env=os.environ | fast, stdout=pipe, stderr=pipe, text=True)


def printed(capsys, *args):
    """The JSON that a command prints, and nothing else."""
    capsys.readouterr()
    assert run([*map(str, args), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def wait_for(condition, process, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "the training does not get there"
        time.sleep(0.02)


def checkpoint_frames(folder):
    names = [path.name for path in (folder / "checkpoints").glob("step-*")]
    return sorted(int(name.removeprefix("step-")) for name in names if "tmp" not in name)


@pytest.fixture(scope="module", autouse=True)
def as_outside_the_tests():
    """Ranks may be promoted, as they are for users; programs run so briefly that optimising them takes longer."""
    jax.config.update("jax_disable_most_optimizations", True)
    with jax.numpy_rank_promotion("allow"):
        yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One finished run that tests only read."""
    out = tmp_path_factory.mktemp("runs") / "first run"
    assert run(train_command(out)) == 0
    return out


@pytest.fixture
def copied(trained, tmp_path):
    """A finished run that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def test_a_run_leaves_what_the_contract_names(trained):
    files = {"config.json", "command.txt", "versions.json", "metrics.jsonl", "journal.jsonl", "lock"}
    names = files | {"checkpoints", "replay", "tensorboard"}
    assert {path.name for path in trained.iterdir()} == names
    config = RunDirectory.open_existing(trained).config
    asked = {"recipe": "fac-small", "task": "probe-both", "envs": 2, "steps": 400, "seeds": 2, "seed": 5}
    assert {name: config[name] for name in asked} == asked
    assert config["agent"]["members"] == 2 and config["agent"]["encoder"]["probes"] == 4
    assert checkpoint_frames(trained) == [400]
    assert "fcritic train --recipe fac-small" in (trained / "command.txt").read_text()
    assert {path.name for path in (trained / "tensorboard").iterdir()} == {"seed-5", "seed-6"}


def test_without_options_a_cpu_gets_a_job_of_minutes(monkeypatch):
    """As `make train`: the recipe, the task and the frames; what is said are the resolved values."""
    calls = []
    monkeypatch.setattr("fcritic.training.loop.train", lambda *args: calls.append(args))
    monkeypatch.setattr("fcritic.results.read.summary", lambda _: {"recipe": "", "task": ""})
    monkeypatch.setattr("fcritic.results.read.summary_text", lambda _: "")
    for args in ([], ["--task", "Pendulum-v1"], ["--recipe=sac", "--steps", "7"]):
        assert run(["train", *args, "--json"]) == 0
    names = ("recipe", "task", "action_repeat", "steps", "warmup", "eval_every")
    found = [tuple(config.to_json()[name] for name in names) for config, *_ in calls]
    assert found[0] == ("fac-small", "cartpole-swingup", 4, 56_000, 2_000, 8_000)
    assert found[1] == ("fac-small", "Pendulum-v1", 1, 56_000, 2_000, 8_000)
    assert found[2] == ("sac", "cartpole-swingup", 4, 7, 2_000, 8_000)
    assert calls[0][1] == "runs/fac-small-cartpole-swingup-0"
    chosen = "--recipe fac-small --action-repeat 4 --steps 56000 --warmup 2000 --eval-every 8000"
    said = [args[5] for args in calls]
    assert said[0] == f"by default on a CPU: {chosen}"
    assert said[2] == "by default on a CPU: --action-repeat 4 --warmup 2000 --eval-every 8000"


def test_what_the_device_has_chosen_is_said_and_recorded(trained, tmp_path, capsys):
    out = tmp_path / "run"
    args = [word for word in train_command(out) if word not in ("--recipe", "fac-small")]
    assert run(args) == 0
    assert "by default on a CPU: --recipe fac-small --action-repeat 1\n" in capsys.readouterr().err
    assert (out / "config.json").read_bytes() == (trained / "config.json").read_bytes()


def test_on_a_gpu_the_defaults_are_the_papers(monkeypatch):
    monkeypatch.setattr("fcritic.cli.commands.on_gpu", lambda: True)
    assert commands.default_config([]) == TrainConfig.of("fac")


def test_the_journal_tells_when_it_began_and_ended(trained):
    lines = [json.loads(line) for line in (trained / "journal.jsonl").read_text().splitlines()]
    assert [line.get("event") for line in lines if "event" in line] == ["begin", "end"]
    assert (lines[0]["env_steps"], lines[-1]["env_steps"]) == (0, 400) and "what" not in lines[-1]
    assert 0 < lines[-1]["time"] - lines[0]["time"] < 600


def test_every_row_says_whose_it_is(trained):
    rows = read_rows(trained / "metrics.jsonl")
    assert all(list(row)[:3] == ["seed", "env_steps", "kind"] for row in rows)
    frames = {kind: {row["env_steps"] for row in rows if row["kind"] == kind} for kind in ("train", "evaluation")}
    assert frames == {"train": {200, 300, 400}, "evaluation": {200, 400}}
    episodes = [row for row in rows if row["kind"] == "episode"]
    assert len(episodes) == 2 * 400 and all(row["length"] == 1 for row in episodes)  # one frame, one episode
    assert {(row["seed"], row["kind"]) for row in rows} == {
        (s, k) for s in (5, 6) for k in ("episode", "behaviour", "first_reward", *frames)
    }


def test_evaluate_keeps_three_figures_apart(trained, capsys):
    before = contents(trained)
    outcome = printed(capsys, "evaluate", trained, "--episodes", 3)
    assert outcome["env_steps"] == 400 and outcome["episodes_per_actor"] == 3
    assert [seed["seed"] for seed in outcome["seeds"]] == [5, 6]
    for seed in outcome["seeds"]:
        assert len(seed["actors"]) == 2 and seed["episodes_per_actor"] == 3
        assert seed["mean_actor"] == pytest.approx(sum(seed["actors"]) / 2)
        assert seed["best_actor"] == max(seed["actors"]) == seed["actors"][seed["best_actor_index"]]
        rows = read_rows(trained / "metrics.jsonl")
        episodes = [row["return"] for row in rows if row["kind"] == "episode" and row["seed"] == seed["seed"]]
        assert seed["rollout"] == pytest.approx(sum(episodes[-10:]) / 10)
    for name in ("mean_actor", "best_actor", "rollout"):
        assert outcome[name] == pytest.approx(sum(seed[name] for seed in outcome["seeds"]) / 2)
    assert printed(capsys, "evaluate", trained, "--episodes", 3) == outcome
    assert contents(trained) == before
    assert run(["evaluate", str(trained), "--episodes", "1"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("mean actor", "best actor", "rollout", "seed 6 actors", "frame 400"))


def test_described_parameters_are_those_of_a_real_agent(trained, capsys):
    groups, _ = checkpoint.load(RunDirectory(trained).checkpoint_path(400), ["agent"])
    sizes = {name: array.size // 2 for name, array in groups["agent"].items()}  # of one seed
    size = lambda part: sum(size for name, size in sizes.items() if name.startswith(f"agent/{part}"))
    counts = printed(capsys, "describe", *CONTRACT, *SMALL)["parameters"]
    parts = {"actors": "actors/params/", "critics": "critics/params/", "critics.encoder": "critics/params/encoder/"}
    parts |= {"critics.head": "critics/params/head/", "targets": "targets/"}
    parts |= {f"targets.{name}": f"targets/{name}/" for name in ("state_action", "joint")}
    assert counts == {name: size(part) for name, part in parts.items()}


def test_plot_draws_a_picture(copied, tmp_path, capsys):
    outcome = printed(capsys, "plot", copied)
    assert (copied / "curve.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert outcome["picture"] == str(copied / "curve.png")
    curve = outcome["runs"][0]
    assert curve["mean_actor"].keys() == curve["best_actor"].keys() == curve["rollout"].keys() == {"5", "6"}
    assert curve["mean_actor"]["5"][0] == [200, 400]
    other = tmp_path / "new" / "two.svg"
    assert run(["plot", str(copied), str(copied), "--out", str(other)]) == 0
    assert "<svg" in other.read_text() and capsys.readouterr().out == f"wrote {other}\n"


def test_a_finished_run_is_left_as_it_is(copied, capsys):
    before = contents(copied)
    assert run(train_command(copied)) == 0
    captured = capsys.readouterr()
    assert "at frame 400" in captured.err and "fcritic evaluate" in captured.out
    after = contents(copied)
    calls, now = (found.pop(str(copied / "command.txt")).count(b"\n") for found in (before, after))
    assert now == calls + 1
    assert after == before
    assert run(["resume", str(copied), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_resume_makes_a_run_longer(copied, capsys):
    before = (copied / "metrics.jsonl").read_bytes()
    outcome = printed(capsys, "resume", copied, "--steps", 600)
    assert [seed["env_steps"] for seed in outcome["seeds"]] == [600, 600]
    assert (copied / "metrics.jsonl").read_bytes().startswith(before)
    assert checkpoint_frames(copied) == [400, 600] and RunDirectory(copied).config["steps"] == 600
    assert printed(capsys, "evaluate", copied, "--episodes", 1)["env_steps"] == 600


def test_a_damaged_checkpoint_costs_only_what_came_after_the_one_before(copied, capsys):
    assert run(["resume", str(copied), "--steps", "500", "--quiet"]) == 0
    rows = read_rows(copied / "metrics.jsonl")
    newest = RunDirectory(copied).checkpoint_path(500)
    (newest.path / "agent.safetensors").write_bytes(b"damage")
    capsys.readouterr()
    assert run(["resume", str(copied), "--quiet"]) == 0
    assert "step-000000000500 cannot be used" in capsys.readouterr().err
    checkpoint.verify(newest)
    assert read_rows(copied / "metrics.jsonl") == rows


def test_a_terminated_training_is_saved_and_resumes(tmp_path, capsys):
    out = tmp_path / "run"
    with start(*train_command(out, "--steps", "1000000", "--save-every", "50", "--quiet")) as process:
        wait_for(lambda: checkpoint_frames(out), process)
        process.terminate()
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    frame = checkpoint_frames(out)[-1]
    assert stderr == f"stopped at frame {frame:,}; continue with: python -m fcritic resume {out}\n"
    assert run(["resume", str(out), "--steps", str(frame + 100)]) == 0
    assert f"continuing {out} at frame {frame:,}" in capsys.readouterr().err
    check_episodes(out, frame + 100)


def test_a_killed_training_continues_by_the_same_command(tmp_path, capsys):
    out = tmp_path / "run"
    command = train_command(out, "--save-every", "50")
    with start(*command, "--quiet") as process:
        wait_for(lambda: checkpoint_frames(out), process)
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    frame = checkpoint_frames(out)[-1]
    assert frame < 400 and run(command) == 0
    assert f"continuing {out} at frame {frame:,}" in capsys.readouterr().err
    check_episodes(out, 400)


def check_episodes(out, last):
    """No frame is missing and none is there twice."""
    rows = [row for row in read_rows(out / "metrics.jsonl") if row["kind"] == "episode"]
    places = [(row["seed"], row["env"], row["env_steps"]) for row in rows]
    expected = [(seed, env, frame) for seed in (5, 6) for env in (0, 1) for frame in range(2, last + 1, 2)]
    assert sorted(places) == expected
