"""Experiments: what they ask for is valid, what is finished is not repeated, and a stop loses nothing."""

import dataclasses
import json
import shlex
import signal
import time

import pytest

from fcritic.cli.commands import TrainOptions
from fcritic.cli.dispatch import run as cli
from fcritic.cli.parsing import parse
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.experiments import local
from fcritic.experiments.catalog import EXPERIMENTS, find_experiment
from fcritic.experiments.progress import progress
from fcritic.experiments.spec import Experiment
from fcritic.runs.directory import RunDirectory
from fcritic.runs.fingerprint import fingerprint

EVERY_RUN = [(name, run) for name, experiment in EXPERIMENTS.items() for run in experiment.runs]


@pytest.mark.parametrize(("name", "run"), EVERY_RUN, ids=[f"{name}-{run.name}" for name, run in EVERY_RUN])
def test_the_command_of_a_run_makes_the_same_run(name, run):
    args = shlex.split(run.command())[2:]
    parsed = parse(TrainOptions, args, "train", TrainOptions(TrainConfig.of(run.recipe))).config
    assert parsed == run.config()


def test_runs_of_one_name_are_one_run_up_to_its_length():
    """Experiments share folders, so that what one has trained the other need not."""
    seen = {}
    for _, run in EVERY_RUN:
        config = dataclasses.replace(run.config(), steps=1)
        assert seen.setdefault(run.name, config) == config, run.name


def test_the_ablations_of_the_mission_are_there():
    labels = {run.method for _, run in EVERY_RUN}
    assert labels >= {"plain critics", "without the second term", "mean of critics"}
    assert labels >= {"own encoders", "probe tokens", "frozen probes", "n = 1", "n = 2", "n = 5", "G = 1", "G = 5"}


def test_unknown_names_and_budgets_are_one_line():
    with pytest.raises(UsageError, match="did you mean figure-2"):
        find_experiment("figure2")
    assert [local.parse_budget(text) for text in ("25m", "1.5h", "90s", "90", None)] == [1500, 5400, 90, 90, None]
    for text in ("", "m", "-5m", "nan", "5x", "inf"):
        with pytest.raises(UsageError, match="--budget must be a time"):
            local.parse_budget(text)


# Running

SMALL = find_experiment("quick").runs[0]


def small(steps, **changes):
    return Experiment("small", "for a test", (dataclasses.replace(SMALL, steps=steps, **changes),))


def test_a_budget_stops_a_run_cleanly_and_it_goes_on_to_the_same_end(tmp_path):
    said = []
    options = (*SMALL.options, ("eval_every", 10**6), ("log_every", 10**5))
    long = small(200_000, options=options)
    (todo,) = progress(long, tmp_path)
    assert todo.state == "waiting" and todo.frames_left == 200_000
    begun, warmup = todo, dict(SMALL.options)["warmup"]
    # In the first nothing can begin, in the second it should. Short, since all of it is trained twice.
    for seconds in (0.5, 7.0, 14.0, 60.0):
        assert local.run_all([begun], local.Budget(seconds), said.append) == []
        (begun,) = progress(long, tmp_path)
        assert seconds > 0.5 or begun.frame == 0
        if begun.frame > warmup:
            break
    assert begun.state == "begun" and warmup < begun.frame < 200_000
    assert local.run_all([begun], local.Budget(0.0), said.append) == []
    assert "the budget is spent" in said[-1]
    end = begun.frame + 500
    ended = small(end, options=options)
    assert local.run_all(progress(ended, tmp_path), local.Budget(None), said.append) == []
    (done,) = progress(ended, tmp_path)
    assert done.state == "finished" and local.run_all([done], local.Budget(None), said.append) == []
    again = local.run_all(progress(ended, tmp_path / "whole"), local.Budget(None), said.append)
    assert again == []
    assert fingerprint(tmp_path / SMALL.name) == fingerprint(tmp_path / "whole" / SMALL.name)


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path, monkeypatch):
    todo = progress(small(1500), tmp_path)
    monkeypatch.setattr(local.sys, "executable", "false")
    said = []
    assert local.run_all(todo, local.Budget(None), said.append) == [f"{SMALL.name}: exit code 1"]
    assert "failed" in said[-1]


def test_the_command_line(tmp_path, capsys):
    assert cli(["experiment", "list", "--json"]) == 0
    assert {fact["name"] for fact in json.loads(capsys.readouterr().out)} == set(EXPERIMENTS)
    assert cli(["experiment", "status", "quick", "--dir", str(tmp_path), "--only", "td3", "--json"]) == 0
    (state,) = json.loads(capsys.readouterr().out)
    assert state["state"] == "waiting" and state["frame"] == 0
    assert cli(["experiment", "rum", "quick"]) == 2
    assert "did you mean run" in capsys.readouterr().err
    assert cli(["experiment", "run", "quick", "--only", "nobody", "--dir", str(tmp_path)]) == 2


def test_ctrl_c_lets_the_run_save(tmp_path, monkeypatch):
    """The executor passes the wish to stop on, and waits for the checkpoint."""
    (todo,) = progress(small(200_000, options=(*SMALL.options, ("eval_every", 10**6))), tmp_path)

    def interrupted(process, budget):
        while not RunDirectory(todo.path).newest_frame():
            assert process.poll() is None
            time.sleep(0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        local.run_one(todo, local.Budget(None))
    frame = RunDirectory(todo.path).newest_frame()
    assert frame > 0 and frame % 500  # not only a periodic save
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
