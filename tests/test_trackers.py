"""Trackers get every number once: modules of their names record the calls, and the real ones take them too."""

import contextlib
import json
import os
from pathlib import Path
import sqlite3
import struct
import subprocess
import sys

import numpy as np
import pytest

from fcritic.cli.commands import train as train_command
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.logs.metrics import read_rows
from fcritic.runs.directory import RunDirectory
from fcritic.training.evaluate import Evaluation
from fcritic.training.report import Report

FAKE = """
import json, os
CALLS = {calls!r}
def record(*call):
    with open(CALLS, "a") as file:
        file.write(json.dumps(call) + "\\n")
class Run:
    def log(self, values, step):
        if {broken!r}:
            raise ConnectionError("no route")
        record("log", step, values)
def init(**told):
    record("init", told)
    return Run()
def finish():
    record("finish")
"""


@pytest.fixture
def tracker(tmp_path, monkeypatch):
    """Puts a module in the place of a tracker; reads the calls it got."""

    def put(name, broken=False):
        calls = tmp_path / "calls"
        (tmp_path / f"{name}.py").write_text(FAKE.format(calls=str(calls), broken=broken))
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return lambda: [json.loads(line) for line in calls.read_text().splitlines()]

    yield put
    for name in ("wandb", "trackio"):
        sys.modules.pop(name, None)


def report(out, **options):
    """What a training of two seeds tells in its first frames."""
    config = TrainConfig.of("td3", task="probe-both", seeds=2, seed=3, **options)
    with RunDirectory.create_or_open(out, config.to_json(), "") as run_directory:
        reporter = Report(config, run_directory, quiet=True)
        reporter.resume(0, None)
        reporter.losses(20, {"critic_loss": np.array([1.5, 2.5])}, 7)
        reporter.evaluation(40, [Evaluation(np.array([[1.0], [2.0]])), Evaluation(np.array([[3.0], [5.0]]))])
        reporter.close()


@pytest.mark.parametrize(("name", "mode"), [("wandb", None), ("wandb", "online"), ("trackio", None)])
def test_a_tracker_gets_every_number_once(tracker, name, mode, tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if mode:
        monkeypatch.setenv("WANDB_MODE", mode)
    calls = tracker(name)
    report(tmp_path / "a run", log=name)
    first, losses, evaluation, last = calls()
    assert first[0] == "init" and last == ["finish"]
    assert (first[1]["project"], first[1]["name"], first[1]["config"]["seed"]) == ("fcritic", "a run", 3)
    assert first[1].get("mode") == ((mode or "offline") if name == "wandb" else None)
    tags = lambda seed, loss: {f"seed-{seed}/train/critic_loss": loss, f"seed-{seed}/train/actor_updates": 7.0}
    assert losses == ["log", 20, tags(3, 1.5) | tags(4, 2.5)]
    assert evaluation[1] == 40 and evaluation[2]["seed-4/evaluation/mean_actor"] == 4.0
    assert [evaluation[2][f"seed-4/evaluation/actors/{place}"] for place in (0, 1)] == [3.0, 5.0]


def report_apart(out, name, **variables):
    """`report` in a process of its own, in which nothing else has imported the tracker."""
    code = f"from test_trackers import Path, report; report(Path({str(out)!r}), log={name!r})"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])} | variables
    subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, env=environment, check=True, timeout=120
    )


def test_the_real_tracker_takes_these_calls(tmp_path, capfd):
    records = pytest.importorskip("wandb.proto.wandb_internal_pb2", reason="Weights & Biases is not installed")
    (tmp_path / "home").mkdir()
    home = {name: str(tmp_path / "home") for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    report_apart(tmp_path / "run", "wandb", WANDB_MODE="offline", WANDB_ERROR_REPORTING="false", **home)
    assert "wandb" not in "".join(capfd.readouterr())
    assert not list((tmp_path / "home").rglob("wandb"))
    assert "failed" not in (tmp_path / "run" / "journal.jsonl").read_text()
    (written,) = (tmp_path / "run").glob("wandb-*/wandb/offline-run-*/*.wandb")
    assert {step: told(items) for step, items in history(written.read_bytes(), records)} == NUMBERS


def history(content, records):
    """The rows in a file of Weights & Biases: 7 bytes, then a checksum, a length, a kind and a record each."""
    at = 7
    while at < len(content):
        _, size, kind = struct.unpack_from("<IHB", content, at)
        assert kind == 1  # whole: the file is shorter than a block
        record = records.Record.FromString(content[at + 7 : at + 7 + size])
        at += 7 + size
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            values = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}
            yield record.history.step.num, values


def told(values):
    return {name: value for name, value in values.items() if not name.startswith("_")}


NUMBERS = {
    20: {
        f"seed-{seed}/train/{name}": value
        for seed, loss in ((3, 1.5), (4, 2.5))
        for name, value in (("critic_loss", loss), ("actor_updates", 7))
    },
    40: {
        f"seed-{seed}/evaluation/{name}": value
        for seed, low, high in ((3, 1, 2), (4, 3, 5))
        for name, value in (
            ("mean_actor", (low + high) / 2),
            ("best_actor", high),
            ("best_actor_index", 1),
            ("actor_spread", (high - low) / 2),
            ("actors/0", low),
            ("actors/1", high),
            ("episodes_per_actor", 1),
        )
    },
}
"""What `report` tells, by its frame."""


def test_the_real_trackio_takes_these_calls(tmp_path, capfd):
    """Trackio decides where its files are when it is imported."""
    pytest.importorskip("trackio", reason="Trackio is not installed")
    report_apart(tmp_path / "run", "trackio", TRACKIO_DIR=str(tmp_path / "home"), HF_HUB_OFFLINE="1")
    assert "Trackio" not in capfd.readouterr().out  # between lines of JSON, perhaps
    assert "failed" not in (tmp_path / "run" / "journal.jsonl").read_text()
    with contextlib.closing(sqlite3.connect(tmp_path / "home" / "fcritic.db")) as database:
        rows = database.execute("select run_name, step, metrics from metrics").fetchall()
    assert {name for name, _, _ in rows} == {"run"}
    assert {step: json.loads(metrics) for _, step, metrics in rows} == NUMBERS


def test_the_real_tensorboard_reads_what_is_written(tmp_path):
    module = "tensorboard.backend.event_processing.event_accumulator"
    reader = pytest.importorskip(module, reason="TensorBoard is not installed")
    report(tmp_path / "run")
    for seed in (3, 4):
        found = reader.EventAccumulator(str(tmp_path / "run" / "tensorboard" / f"seed-{seed}"))
        found.Reload()
        tags = found.Tags()["scalars"]
        read = {(f"seed-{seed}/{tag}", each.step): each.value for tag in tags for each in found.Scalars(tag)}
        prefix = f"seed-{seed}/"
        expected = {
            (name, frame): value
            for frame, values in NUMBERS.items()
            for name, value in values.items()
            if name.startswith(prefix)
        }
        assert read == expected


def test_a_tracker_that_fails_is_given_up(tracker, tmp_path, capfd):
    calls = tracker("trackio", broken=True)
    report(tmp_path / "run", log="trackio")
    line = "trackio failed: ConnectionError: no route; training goes on without trackio"
    assert capfd.readouterr().err.count(line) == 1
    assert [call[0] for call in calls()] == ["init", "finish"]
    assert line in (tmp_path / "run" / "journal.jsonl").read_text()
    assert len(read_rows(tmp_path / "run" / "metrics.jsonl")) == 4


def test_a_tracker_that_is_not_installed_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    train = lambda name: train_command(["--task", "probe-both", "--log", name, "--out", str(tmp_path / "run")])
    with pytest.raises(UsageError, match=r"--log wandb needs a package .*: pip install wandb, or --log files"):
        train("wandb")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="--log must be one of"):
        train("wandbb")
