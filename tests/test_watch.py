"""Watching runs: which there are, their states, hours and notes; hundreds of them in the first view."""

import fcntl
import json
import os
import time

import pytest
from watched_runs import MEAN, a_run, curve, episode, evaluation, only

from fcritic.disk import Place
from fcritic.runs.journal import Journal
from fcritic.view.watch import run as watched
from fcritic.view.watch.run import History
from fcritic.view.watch.server import Watcher


def test_runs_come_and_go(tmp_path, monkeypatch):
    monkeypatch.setattr("fcritic.view.watch.server.SCAN_EVERY", 0.0)
    watcher = Watcher(tmp_path)
    assert watcher.snapshot()["runs"] == []
    a_run(tmp_path / "deep" / "er" / "a", [evaluation(100)])
    answer = watcher.answer("", [MEAN], [])
    assert [run["name"] for run in answer["runs"]] == ["deep/er/a"] and answer["runs"][0]["state"] == "finished"
    a_run(tmp_path / "b", [evaluation(1)])
    later = watcher.answer(answer["revision"], [MEAN], [])
    assert [run["name"] for run in later["runs"]] == ["b"] and len(later["ids"]) == 2  # only what is new is told
    (tmp_path / "b" / "config.json").unlink()
    assert watcher.answer(later["revision"], [MEAN], [])["ids"] == answer["ids"]


def test_the_folder_may_be_a_run_itself_and_links_are_not_followed(tmp_path):
    a_run(tmp_path / "outside" / "secret", [evaluation(1)])
    inside = tmp_path / "inside"
    a_run(inside / "a", [evaluation(1)])
    (inside / "link").symlink_to(tmp_path / "outside")
    (inside / "a" / "metrics.jsonl").unlink()
    (inside / "a" / "metrics.jsonl").symlink_to(tmp_path / "outside" / "secret" / "metrics.jsonl")
    assert list(watched.runs(inside)) == ["a"]
    watcher = Watcher(inside)
    assert only(watcher)["state"] == "waiting" and curve(watcher) == {}
    assert only(Watcher(tmp_path / "outside" / "secret"))["name"] == "secret"


def test_runs_with_other_options_are_told_apart_and_seeds_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr("fcritic.view.watch.server.SCAN_EVERY", 0.0)
    for name, tau, seed, task in (
        ("a", 0.01, 0, "x"),
        ("b", 0.02, 0, "x"),
        ("c", 0.01, 1, "x"),
        ("d", 0.3, 0, "y"),
    ):
        agent = {"tau": tau, "encoder": {"probes": 4}}
        a_run(tmp_path / name, [evaluation(1)], agent=agent, seed=seed, task=task)
    watcher = Watcher(tmp_path)
    told = {run["name"]: run["variant"] for run in watcher.snapshot()["runs"]}
    assert told == {"a": "tau 0.01", "b": "tau 0.02", "c": "tau 0.01", "d": ""}
    answer = watcher.answer("", [MEAN], [])
    a_run(tmp_path / "e", [evaluation(1)], agent={"tau": 0.01, "encoder": {"probes": 8}}, task="x")
    later = {run["name"]: run["variant"] for run in watcher.answer(answer["revision"], [MEAN], [])["runs"]}
    assert later["e"] == "encoder.probes 8, tau 0.01" and later["b"] == "encoder.probes 4, tau 0.02"
    assert "d" not in later


def test_runs_that_differ_late_or_at_the_end_of_a_value_are_told_apart_and_older_ones_are_not(tmp_path):
    same = {"a": 1, "b": 2, "c": 3}
    for name, changes in {
        "1": {"z": "x" * 60 + "1"},
        "2": {"z": "x" * 60 + "2"},
        "3": {"a": 0, "b": 0, "c": 0},
    }.items():
        a_run(tmp_path / "new" / name, [evaluation(1)], agent={"d": 4, "z": "x"} | same | changes)
    a_run(tmp_path / "new" / "4", [evaluation(1)], agent={"d": 5, "z": "x", "a": 0, "b": 0, "c": 0})
    told = [run["variant"] for run in Watcher(tmp_path / "new").snapshot()["runs"]]
    assert len(set(told)) == 4
    a_run(tmp_path / "old" / "1", [evaluation(1)], agent=same)
    a_run(tmp_path / "old" / "2", [evaluation(1)], agent=same | {"new": None})
    assert {run["variant"] for run in Watcher(tmp_path / "old").snapshot()["runs"]} == {""}


def test_hours_leave_out_pauses_and_frames_that_were_taken_again():
    history = History()
    lines = [(0, 0, "begin"), (3600, 10, None), (7200, 20, "end"), (90_000, 15, "begin"), (93_600, 30, None)]
    for time_, frame, event in lines:
        entry = {"time": time_, "env_steps": frame} | ({"event": event} if event else {})
        history.add(json.dumps(entry).encode())
    assert history.elapsed == 3 * 3600
    assert (history.frames, history.hours) == ([0, 10, 15, 30], [0, 1, 2, 3])
    assert history.speed(running=True) == pytest.approx(15 / 3600)
    history.take(b'{"time": 1e999, "env_steps": 3}\n[]\n\xff\n{"time": "a"}\n')
    assert history.elapsed == 3 * 3600


def test_a_long_journal_is_sampled_but_misses_no_event():
    lines = [{"time": 10.0 * place, "env_steps": place} for place in range(5000)]
    lines[0]["event"] = "begin"
    lines[1234] |= {"event": "warning", "what": "<b>"}
    lines[3000]["event"] = "begin"  # the ten seconds before it do not count
    history = History()
    history.take(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert history.warned == 1 and history.elapsed == 49_990 - 10
    assert list(history.warnings) == [{"time": 12_340.0, "frame": 1234.0, "what": "<b>"}]


def test_the_state_is_that_of_lock_and_journal(tmp_path):
    log = a_run(tmp_path / "a", [evaluation(50)])
    journal = tmp_path / "a" / "journal.jsonl"
    state = lambda: only(Watcher(tmp_path))["state"]
    assert state() == "stopped"
    written = Journal(journal)
    written.begin(0)
    assert state() == "stopped"  # nothing is noted before there is progress
    written.progress(10)
    assert state() == "killed"
    with (tmp_path / "a" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert state() == "running"
        assert (Place(tmp_path / "a") / "lock").is_locked()
    assert not (Place(tmp_path / "a") / "lock").is_locked()
    with pytest.raises(ValueError), written:
        raise ValueError("the sky fell")
    assert state() == "failed" and only(Watcher(tmp_path))["notes"] == ["the sky fell"]
    written.begin(50)
    with written:
        written.progress(60)
    assert state() == "stopped"
    log.write([evaluation(100)])
    assert state() == "finished"


def test_a_silent_run_and_its_warnings_are_noted(tmp_path):
    log = a_run(tmp_path / "a", [evaluation(50), {"seed": 0, "env_steps": 5, "kind": "fault", "what": "x"}])
    journal = Journal(tmp_path / "a" / "journal.jsonl")
    journal.begin(0)
    journal.warn("the disk is full")
    os.utime(log.path, (time.time() - 3600,) * 2)
    with (tmp_path / "a" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = only(Watcher(tmp_path))
    assert run["notes"] == ["skipped faults: 1", "warnings: 1", "silent: it holds its lock but writes no rows"]
    assert run["warnings"][0]["what"] == "the disk is full"


def test_two_hundred_runs_of_a_million_frames_in_the_first_view(tmp_path, monkeypatch):
    """One file of realistic rows under two hundred names. Processor time, as others may use the machine."""
    monkeypatch.setattr("fcritic.view.watch.server.FIRST_BUDGET", 60.0)
    one = a_run(tmp_path / "run-0", steps=1_000_000, seeds=4)
    names = ("critic_loss", "critic_spread", "critic_value", "target_value", "actor_grad_norm", "actor_value")
    losses = dict.fromkeys(names, 1.23456789012345e-05)
    rows = []
    for frame in range(1000, 1_000_001, 1000):
        for seed in range(4):
            rows += [episode(frame, frame / 7, seed)]
            rows += [{"seed": seed, "env_steps": frame, "kind": "train"} | losses]
            rows += [evaluation(frame, float(frame), seed, actors=[frame / 9] * 10)] if frame % 10_000 == 0 else []
    one.write(rows)
    for number in range(1, 200):
        a_run(tmp_path / f"run-{number}", steps=1_000_000, seeds=4)
        (tmp_path / f"run-{number}" / "metrics.jsonl").unlink()
        os.link(one.path, tmp_path / f"run-{number}" / "metrics.jsonl")
    watcher, start = Watcher(tmp_path), time.process_time()
    answer = watcher.answer("", [MEAN], [])
    assert time.process_time() - start < 4.0  # 1 alone; twice that in a worker full of compiled programs
    assert len(rows) == 8400 and os.path.getsize(one.path) > 1.6e6
    assert {run["frame"] for run in answer["runs"]} == {1_000_000} and len(answer["runs"]) == 200
    assert all(len(found[MEAN]) == 4 and found[MEAN][0][1][-1] == 1e6 for found in answer["curves"].values())
    assert len(answer["curves"]) == 200 and len(json.dumps(answer)) < 3e6
    monkeypatch.setattr("fcritic.view.watch.server.FIRST_BUDGET", 0.0)
    hasty = Watcher(tmp_path).answer("", [MEAN], [])  # without time to read any row, all runs are there still
    assert {run["frame"] for run in hasty["runs"]} == {1_000_000} and hasty["behind"] == hasty["size"]
