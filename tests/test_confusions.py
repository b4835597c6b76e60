"""What new users stumbled over: words of other libraries, numbers as they write them, names of places."""

import dataclasses
import time

import gymnasium
import numpy as np
from own_code import own_home
import pytest

import fcritic
from fcritic.cli import progress
from fcritic.cli.commands import TrainOptions
from fcritic.cli.dispatch import run
from fcritic.cli.parsing import parse
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.runs.directory import RunDirectory
from fcritic.training.loop import Training

__all__ = ["own_home"]

SMALL = {"batch_size": 5, "actor_hidden": (8,), "critic_hidden": (9,), "warmup": 20, "replay": 60}


def options(*words):
    return parse(TrainOptions, list(words), "train", TrainOptions(TrainConfig.of("td3"))).config


def test_a_whole_number_may_be_written_as_people_do():
    assert options("--steps", "1e6").steps == 1_000_000 and options("--steps=2.5e5").steps == 250_000
    assert options("--steps", "1_000_000", "--replay", "1E4").replay == 10_000
    assert options("--tau", "1e-3").agent.tau == 0.001 and options("--value-limit", "1e3").value_limit == 1000.0
    assert options("--actor-hidden", "64", "32").agent.actor_hidden == (64, 32)
    with pytest.raises(UsageError, match=r"--steps must be a whole number, not '1\.5'"):
        options("--steps", "1.5")
    assert fcritic.configure("td3", steps=1e6).steps == 1_000_000
    with pytest.raises(UsageError, match=r"steps cannot be 1\.5"):
        fcritic.configure("td3", steps=1.5)


@dataclasses.dataclass(frozen=True)
class Wordy:
    """Options of a command."""

    often: int = 1
    """How often, which takes a second line to say: its break
    is one of the source."""


def test_a_help_breaks_its_lines_where_the_terminal_ends(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit):
        parse(Wordy, ["--help"], "train")
    assert "to say: its break is one of the source. (default: 1)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("--env", "did you mean --task?"),
        ("--total-timesteps", "did you mean --steps?"),
        ("--total_timesteps=3", "did you mean --steps?"),
        ("--lr", "did you mean --learning-rate?"),
        ("--gamma", "did you mean --discount?"),
        ("--num-envs", "did you mean --envs?"),
        ("--stps", "did you mean --steps?"),
        ("--probes", "did you mean --encoder.probes?"),
        ("--device", "JAX chooses the device: set JAX_PLATFORMS=cpu or JAX_PLATFORMS=cuda"),
        ("--tensorboard-log", "every run writes its rows for TensorBoard, too: tensorboard --logdir runs"),
        ("--optimizer", "see fcritic train --help"),
        ("--frobnicate", "see fcritic train --help"),
    ],
)
def test_a_hint_knows_the_field_or_says_nothing(word, hint):
    with pytest.raises(UsageError) as error:
        parse(TrainOptions, [word, "x"], "train", TrainOptions(TrainConfig.of("fac-small")))
    assert str(error.value) == f"unknown option {word.partition('=')[0]}; {hint}" or (
        "JAX" in hint and hint in str(error.value)
    )


def test_the_same_hints_in_python():
    for word, hint in [("env", "task"), ("total_timesteps", "steps"), ("lr", "learning_rate")]:
        with pytest.raises(UsageError, match=f"unknown option {word}; did you mean {hint}"):
            fcritic.configure("td3", **{word: 1})


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """A run that has saved a checkpoint before it learned anything."""
    config = fcritic.configure("td3", "Pendulum-v1", **SMALL)
    folder = tmp_path_factory.mktemp("runs") / "run"
    with RunDirectory.create_or_open(folder, config.to_json(), "") as directory:
        training = Training.begin(config, directory, quiet=True)
        training.save()
        training.close()
    return folder


def test_an_agent_is_told_in_five_lines(untrained):
    told = str(fcritic.load(untrained)).splitlines()
    assert told[0] == "TrainedAgent td3 on Pendulum-v1" and len(told) == 5
    assert "observations of size 3, actions of size 1" in told[2] and str(untrained) in told[4]


def test_what_every_run_writes_needs_no_option(capsys):
    assert run(["train", "--task", "Pendulum-v1", "--log", "tensorboard"]) == 2
    said = capsys.readouterr().err
    assert "--log must be one of 'files', 'wandb', 'trackio', not 'tensorboard'; every run writes its rows" in said


def test_a_name_like_nothing_in_the_file_is_answered_with_what_there_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arm.py").write_text("from gymnasium import make as build\n\n\ndef easy(): ...\ndef hard(): ...\n")
    assert run(["check", "arm.py:create"]) == 2
    assert capsys.readouterr().err == "fcritic: arm.py has no create; it has easy, hard\n"
    assert run(["check", "arm.py:esy"]) == 2
    assert "arm.py has no esy; did you mean easy?" in capsys.readouterr().err


def test_the_card_of_an_export_names_its_own_folder(untrained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["export", str(untrained), "--out", "pendulum-agent", "--episodes", "1"]) == 0
    card = (tmp_path / "pendulum-agent" / "README.md").read_text()
    assert "    fcritic evaluate pendulum-agent\n" in card and "    fcritic replay pendulum-agent --out" in card


def test_without_a_checkpoint_it_is_told_when_the_first_one_comes(tmp_path, capsys):
    config = fcritic.configure("td3", "probe-both", **SMALL, save_every=3000)
    with RunDirectory.create_or_open(tmp_path / "run", config.to_json(), ""):
        assert run(["evaluate", str(tmp_path / "run")]) == 2
        said = capsys.readouterr().err
        assert "it is still training and saves first at frame 3,000 (--save-every)" in said
    assert run(["evaluate", str(tmp_path / "run")]) == 2
    assert "has no checkpoint yet; continue it with fcritic resume" in capsys.readouterr().err


def test_another_size_of_observations_is_called_so(untrained):
    with pytest.raises(UsageError) as error:
        fcritic.load(untrained, task="Hopper-v5")
    assert "sees observations of 3 numbers, and an observation of Hopper-v5 has 11; name the task" in str(
        error.value
    )


class Sized(gymnasium.Env):
    """As many numbers as its class says."""

    size = 3
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (self.size,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.size, np.float32), {}

    def step(self, action):
        return np.zeros(self.size, np.float32), 0.0, False, True, {}


def test_a_run_whose_task_has_grown_is_told_so(tmp_path, monkeypatch):
    options = {"recipe": "td3", **SMALL, "task": Sized, "out": str(tmp_path / "run"), "quiet": True}
    fcritic.train_agent(steps=30, **options)
    monkeypatch.setattr(Sized, "size", 4)
    with pytest.raises(UsageError, match=r"sees observations of 3 numbers, and an observation of .* has 4"):
        fcritic.train_agent(steps=60, **options)


def test_a_plot_of_what_an_export_does_not_keep_says_why(untrained, tmp_path, capsys):
    out = str(tmp_path / "agent")
    assert run(["export", str(untrained), "--out", out, "--episodes", "1"]) == 0
    for what in ("diversity", "first-reward"):
        assert run(["plot", out, "--what", what]) == 2
        assert f"which keeps its evaluations and no rows about {what}; plot the run" in capsys.readouterr().err


def test_a_run_that_was_moved_with_its_code_finds_it(tmp_path, monkeypatch, capsys):
    """And only where its user has named the code at its new place."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    (before / "robot.py").write_text("import gymnasium\n\ndef make():\n    return gymnasium.make('Pendulum-v1')\n")
    monkeypatch.chdir(before)
    fcritic.train_agent("td3", "robot.py:make", "runs/one", quiet=True, steps=40, eval_every=40, **SMALL)
    monkeypatch.chdir(tmp_path)
    before.rename(after)
    robot = after / "robot.py"
    assert run(["evaluate", "after/runs/one", "--episodes", "1"]) == 2
    assert f"wants to run {robot}:make of {robot}; if you know and trust" in capsys.readouterr().err
    assert run(["check", f"{robot}:make", "--steps", "30"]) == 0
    assert run(["evaluate", "after/runs/one", "--episodes", "1"]) == 0
    assert run(["resume", "after/runs/one", "--steps", "60", "--quiet"]) == 0
    assert fcritic.load("after/runs/one").frame == 60
    robot.unlink()
    capsys.readouterr()
    assert run(["evaluate", "after/runs/one"]) == 2
    said = capsys.readouterr().err
    assert "robot.py:make, but there is no file" in said and "nor is it in a folder above" in said


def test_a_long_block_says_that_it_works_also_in_a_pipe(capsys, monkeypatch):
    monkeypatch.setitem(progress.EVERY, False, 0.05)
    with progress.alive("riverswim: computing"):
        time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "riverswim: computing ..." and len(lines) >= 3 and "so far" in lines[1]
    with progress.alive("riverswim: computing", quiet=True):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
