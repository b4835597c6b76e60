"""`fcritic inspect` as a command: what it finds in a run, and a page that is safe."""

import contextlib
import dataclasses
import io
import json
import shutil
import subprocess

import numpy as np
import pytest
import scipy.stats
from test_inspection import TASK, agent_of

from fcritic.api.load import load
from fcritic.cli.dispatch import run as command
from fcritic.config import TrainConfig
from fcritic.logs.metrics import read_rows
from fcritic.runs import checkpoint
from fcritic.runs.directory import RunDirectory
from fcritic.training.loop import Training, train
from fcritic.view.inspection.inspect import _probes, page
from fcritic.view.inspection.replayed import Replayed


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run with two checkpoints and a name that is markup."""
    out = tmp_path_factory.mktemp("runs") / "<script>document.title='owned'<"
    config = TrainConfig(agent_of(), recipe="fac", task=TASK, seeds=2, seed=4, steps=2000, warmup=1000, replay=20)
    with RunDirectory.create_or_open(out, config.to_json(), "") as directory:
        training = Training.begin(config, directory, quiet=True)
        for _ in range(2):
            training.advance(3)
            training.save()
        training.close()
    return out


@pytest.fixture(scope="module")
def findings(saved, tmp_path_factory):
    """What the command printed and wrote."""
    out, printed, told = tmp_path_factory.mktemp("pages") / "new" / "page.html", io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
        assert command(["inspect", str(saved), "--quick", "--seed", "5", "--out", str(out), "--json"]) == 0
    assert "running 29 policies: 29 of 29 episodes" in told.getvalue()
    report = json.loads(printed.getvalue())
    assert page(report) == out.read_text()
    return report


def test_the_command_tells_what_it_found(findings):
    assert (findings["agent"]["seed"], findings["agent"]["frame"], findings["agent"]["critics"]) == (5, 6, 3)
    assert len(findings["slice"]["plain"]) == 25 and len(findings["probes"]) == 3
    assert findings["embedding"]["frames"] == [3, 6]
    assert findings["names"]["observation_names"] == ["observation[0]"]
    assert findings["names"]["action_names"] == ["action[0]"]
    early, late = findings["embedding"]["critics"][0]["points"]
    np.testing.assert_allclose(early, late, atol=1e-5)  # nothing was learned between
    on_line = findings["line"]
    assert on_line["x"] == [-0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5]
    for name in ("plain", "discounted"):
        assert on_line[name][::2] == findings["slice"][name][5:10]  # the row y = 0
    mean = np.mean(findings["slice"]["predicted"], axis=0)
    expected = scipy.stats.spearmanr(mean, findings["slice"]["discounted"]).statistic
    assert findings["slice"]["agreement"]["mean"]["rank"] == pytest.approx(expected)


def test_actions_at_probe_states_are_the_actors_own_in_the_tasks_units(tmp_path):
    """The pendulum's torques lie between -2 and 2."""
    config = TrainConfig(agent_of(shared=True), recipe="fac", task="Pendulum-v1", replay=10)
    with RunDirectory.create_or_open(tmp_path / "run", config.to_json(), "") as directory:
        training = Training.begin(config, directory, quiet=True)
        training.save()
        training.close()
    agent = load(tmp_path / "run")
    (found, *_) = _probes(agent, np.zeros((1, 3), np.float32), (2, 0, 1))
    torques = np.array([each["actions"] for each in found["top"]])
    states = np.array([each["state"] for each in found["top"]], np.float32)
    assert torques.shape == (5, 3, 1)
    np.testing.assert_allclose(torques[:, 0], agent.act(states, 2), rtol=1e-5)
    np.testing.assert_allclose(torques[:, 2], agent.act(states, 1), rtol=1e-5)


def test_coverage_and_delta_are_what_the_training_measures(tmp_path):
    """A run that measured them at its last evaluation has the same numbers in its row, to the last digits."""
    agent = agent_of(shared=True)
    options = {"task": TASK, "seeds": 2, "steps": 40, "warmup": 20, "eval_every": 40, "replay": 100}
    trust = dataclasses.replace(agent.trust, measure=True, rows=30, states=4)
    run = train(
        TrainConfig(dataclasses.replace(agent, trust=trust), recipe="fac", **options), tmp_path / "run", quiet=True
    )
    row = [row for row in read_rows(run.metrics.path) if row["kind"] == "behaviour"][-1]
    replayed = Replayed.of(load(run.path, row["seed"]))
    assert replayed is not None
    found = replayed.trust()
    for name in ("trust", "outside", "drift", "drift_printed"):
        np.testing.assert_allclose(found[name], row[f"{name}_by_actor"], rtol=1e-4, atol=1e-6)
    assert (found["rows"], found["states"]) == (30, 4)
    assert command(["export", str(run.path), "--out", str(tmp_path / "given")]) == 0
    assert Replayed.of(load(tmp_path / "given")) is None


def test_mistakes_are_one_line(saved, capsys):
    for options, message in (
        (["--grid", "8"], "--grid must be 5, 9, 13"),
        (["--actors", "0", "1", "7"], "--actors names actor 7; this agent has actors 0 to 2"),
        (["--seed", "9"], "has no seed 9; it has 4 to 5"),
        (["--episodes", "0"], "--episodes must be at least 1, not 0"),
        (["--gird", "9"], "did you mean --grid?"),
    ):
        assert command(["inspect", str(saved), *options]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("number", [np.nan, -np.inf, 3e38, 1e20])
def test_numbers_that_no_page_can_show_are_one_line(saved, tmp_path, capsys, number):
    """Checkpoints of a stranger who has signed them."""
    copy = tmp_path / "copy"
    shutil.copytree(saved, copy)
    for path in (copy / "checkpoints").iterdir():
        groups, facts = checkpoint.load(path)
        for name, array in groups["agent"].items():
            if name.startswith("agent/critics/params/head") and array.dtype == np.float32:
                array[:] = number
        checkpoint.save(path, groups, facts)
    assert command(["inspect", str(copy), "--quick", "--out", str(tmp_path / "page.html")]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("fcritic: ") and ("NaN or infinit" in line or "the file is damaged" in line)
    assert not (tmp_path / "page.html").exists()


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_the_page_draws_without_errors_and_shows_names_as_text(findings, tmp_path):
    findings["agent"]["recipe"] = "</script><img src=x onerror=document.title='owned'>"
    path = tmp_path / "page.html"
    path.write_text(page(findings))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    options.append(f"--user-data-dir={tmp_path / 'profile'}")
    done = subprocess.run([CHROMIUM, *options, path.as_uri()], capture_output=True, timeout=60)
    drawn, log = done.stdout.decode(), done.stderr.decode()
    assert "CONSOLE" not in log, log
    assert "<title>inspect &lt;script&gt;document.title='owned'&lt;</title>" in drawn
    assert "&lt;/script&gt;&lt;img" in drawn and "<img" not in drawn
    assert drawn.count("<svg") == 8 and drawn.count("<circle") > 60
    assert ">observation[0]</th>" in drawn and ">action[0] of actor 2 (-1 to 1)</th>" in drawn


@pytest.mark.slow
def test_the_page_is_not_written_through_a_link(saved, tmp_path, capsys):
    """In a run of a stranger, where its name leads to a file of the user's."""
    (tmp_path / "keep").write_text("mine")
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    (run / "inspect.html").symlink_to(tmp_path / "keep")
    assert command(["inspect", str(run), "--quick"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "inspect.html is a link, not a plain file" in line
    assert (tmp_path / "keep").read_text() == "mine"
