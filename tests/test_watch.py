"""Watching runs: only what was appended is read, whatever the files are; hundreds of runs in the first view."""

import fcntl
import json
import math
import os
from pathlib import Path
import time

import pytest

from fcritic.journal import Journal
from fcritic.logs import JSONLog
from fcritic.watch import scan
from fcritic.watch.history import History
from fcritic.watch.series import MOST_POINTS, Series
from fcritic.watch.tail import BLOCK, Cursor, Tail
from fcritic.watch.watcher import Watcher

MEAN = "evaluation/mean_actor"


def evaluation(frame, mean=1.0, seed=0, **more):
    values = {"mean_actor": mean, "best_actor": mean + 1, "actors": [mean - 1, mean + 1]}
    return {"seed": seed, "env_steps": frame, "kind": "evaluation"} | values | more


def episode(frame, total, seed=0):
    return {"seed": seed, "env_steps": frame, "kind": "episode", "env": 0, "return": total, "length": 10}


def a_run(folder: Path, rows=(), **config):
    folder.mkdir(parents=True)
    chosen = {"recipe": "fac", "task": "probe-both", "seeds": 1, "steps": 100} | config
    (folder / "config.json").write_text(json.dumps(chosen))
    (folder / "versions.json").write_text("{}")
    (folder / "lock").touch()
    log = JSONLog(folder / "metrics.jsonl")
    log.write(list(rows))
    return log


def only(watcher: Watcher) -> dict:
    (run,) = watcher.snapshot()["runs"]
    return run


def curve(watcher: Watcher, name=MEAN, since="") -> dict:
    answer = watcher.answer(since, [name], [])
    lines = [line for found in answer["curves"].values() for line in found.get(name, [])]
    return {seed: (frames, values) for seed, frames, values in lines}


def test_only_appended_bytes_are_read(tmp_path):
    log = a_run(tmp_path / "a", [evaluation(frame, seed=seed) for frame in range(500) for seed in (0, 1)])
    watcher = Watcher(tmp_path)
    watcher.snapshot()
    (run,) = watcher.runs.values()
    before, size = run.curves.tail.bytes_read, os.path.getsize(log.path)
    watcher.snapshot()
    assert run.curves.tail.bytes_read == before  # nothing new, nothing read
    log.write([evaluation(500, 7.0), episode(500, 3.0)])
    assert only(watcher)["frame"] == 500
    grown = os.path.getsize(log.path) - size
    assert run.curves.tail.bytes_read - before == grown + 256  # and the mark that shows it is the same file
    assert curve(watcher)[0][1][-1] == 7.0 and only(watcher)["rollout"] == 3.0


def test_a_curve_asked_for_late_is_read_from_the_beginning(tmp_path):
    rows = [{"seed": 0, "env_steps": frame, "kind": "train", "critic_loss": frame / 2} for frame in range(100)]
    log = a_run(tmp_path / "a", [evaluation(1), *rows])
    watcher = Watcher(tmp_path)
    first = watcher.answer("", [MEAN], [])
    assert "train/critic_loss" in first["metrics"]
    assert curve(watcher, "train/critic_loss")[0] == (list(range(100)), [frame / 2 for frame in range(100)])
    log.write([rows[5] | {"env_steps": 100}])
    assert curve(watcher, "train/critic_loss")[0][0][-1] == 100
    (run,) = watcher.runs.values()
    assert len({reader.cursor.offset for reader in run.curves.readers.values()}) == 1  # they read together now


def test_readers_that_were_together_part_without_loss(tmp_path):
    """Much is appended while nobody looks: the curve asked for runs ahead, the others must not miss a row."""
    log = a_run(tmp_path / "a", [evaluation(0), episode(0, 0.0)])
    watcher = Watcher(tmp_path)
    watcher.snapshot()
    for start in range(1, 12_001, 2000):
        frames = range(start, start + 2000)
        log.write(
            [row for frame in frames for row in (evaluation(frame, float(frame)), episode(frame, -float(frame)))]
        )
    (run,) = watcher.runs.values()
    run.curves.look()
    while run.curves.read([MEAN]):
        pass
    assert (
        run.curves.behind == os.path.getsize(log.path) - run.curves.readers["episode/return"].cursor.offset > 2**20
    )
    while run.curves.read():
        pass
    for name, sign in ((MEAN, 1), ("evaluation/best_actor", 1), ("episode/return", -1)):
        series = run.curves.readers[name].series[0]
        assert series.stride * len(series.frames) == pytest.approx(12_001, abs=series.stride)
        assert run.curves.readers[name].last[0][-1] == sign * 12_000 + (name == "evaluation/best_actor")
    log.write([evaluation(12_001, 1.0)])
    assert only(watcher)["frame"] == 12_001  # the mark of the place reached holds: nothing was read anew
    assert run.curves.readers[MEAN].series[0] is not None and run.curves.tail.bytes_read < 3.3 * os.path.getsize(
        log.path
    )


def test_a_rollback_is_noticed_even_if_the_file_is_longer_than_before(tmp_path):
    log = a_run(tmp_path / "a", [evaluation(frame, float(frame)) for frame in range(20)])
    watcher = Watcher(tmp_path)
    assert curve(watcher)[0][1] == list(range(20))
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.truncate(len(b"".join(lines[:10])))
    log.write([evaluation(frame, -float(frame)) for frame in range(10, 40)])
    assert curve(watcher)[0][1] == [*range(10), *(-frame for frame in range(10, 40))]
    log.truncate(len(lines[0]))
    assert curve(watcher)[0] == ([0], [0.0])
    other = tmp_path / "a" / "other"
    other.write_bytes(lines[3])
    os.replace(other, log.path)
    assert curve(watcher)[0] == ([3], [3.0])


def test_a_half_written_line_waits_for_its_end(tmp_path):
    log = a_run(tmp_path / "a", [evaluation(1)])
    line = json.dumps(evaluation(2, 5.0)).encode() + b"\n"
    watcher = Watcher(tmp_path)
    with log.path.open("ab", buffering=0) as file:
        for byte in (line[:30], line[30:-1]):
            file.write(byte)
            assert curve(watcher)[0][0] == [1]
        file.write(line[-1:])
    assert curve(watcher)[0] == ([1, 2], [1.0, 5.0]) and only(watcher)["notes"] == []


def test_runs_come_and_go(tmp_path, monkeypatch):
    monkeypatch.setattr("fcritic.watch.watcher.SCAN_EVERY", 0.0)
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
    assert list(scan.runs(inside)) == ["a"]
    watcher = Watcher(inside)
    assert only(watcher)["state"] == "waiting" and curve(watcher) == {}
    assert only(Watcher(tmp_path / "outside" / "secret"))["name"] == "secret"


def hostile_lines():
    good = json.dumps(evaluation(5, 3.0)).encode()
    yield b'{"seed": 0, "env_steps": 1, "kind": "evaluation", "mean_actor": "<script>"}'
    yield b'{"seed": 0, "env_steps": 1, "kind": "evaluation", "mean_actor": 1.2.3e}'
    yield b'{"seed": [0], "env_steps": 1, "kind": "evaluation", "mean_actor": 1}'
    yield b'{"seed": 0, "env_steps": 1e999, "kind": "evaluation", "mean_actor": 1}'
    yield b'"kind": "evaluation"' + b"[" * 100_000
    yield b'{"kind": "evaluation", "seed": 0, "env_steps": 2, "mean_actor": 1\xff\xfe}'
    yield b'{"kind": "evaluation", "mean_actor": ' + b"9" * 5000 + b"}"
    yield good[:-1] + b', "x": ' + b"1" * (BLOCK // 2) + b"}"
    yield good


def test_hostile_rows_cost_nothing_and_are_counted(tmp_path):
    log = a_run(tmp_path / "a")
    log.path.write_bytes(b"\n".join(hostile_lines()) + b"\n")
    watcher = Watcher(tmp_path)
    assert curve(watcher)[0] == ([5], [3.0])
    assert only(watcher)["notes"] == ["unreadable rows: 8"]


def test_values_that_are_no_numbers_are_gaps(tmp_path):
    log = a_run(tmp_path / "a", [evaluation(1, math.nan), evaluation(2, 4.0)])
    with log.path.open("ab") as file:
        file.write(b'{"kind": "evaluation", "seed": 0, "env_steps": 3, "mean_actor": NaN}\n')
        file.write(b'{"seed": 0, "env_steps": 4, "kind": "evaluation", "mean_actor": 1e999}\n')
        file.write(
            b'{"kind":  "evaluation", "seed": 0, "env_steps": 3, "mean_actor": 1}\n'
        )  # not ours: not looked at
    assert curve(Watcher(tmp_path))[0] == ([1, 2, 3, 4], [None, 4.0, None, None])


def test_a_line_without_end_takes_one_block_of_memory(tmp_path):
    import tracemalloc

    path = tmp_path / "metrics.jsonl"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.truncate(40 * 2**20)  # zeros
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast\n")
    tail, cursor, found = Tail(path), Cursor(), []
    tail.look()
    tracemalloc.start()
    while (block := tail.next(cursor)) is not None:
        found.append(block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert b"".join(found) == b"first\nlast\n" and cursor.passed == 1 and peak < 4 * BLOCK


def test_too_many_seeds_and_names_are_not_kept(tmp_path):
    rows = [evaluation(1, seed=seed, **{f"value{seed}": 1.0}) for seed in range(3000)]
    a_run(tmp_path / "a", rows)
    watcher = Watcher(tmp_path)
    assert len(curve(watcher)) == 64
    (run,) = watcher.runs.values()
    for number in range(3000):
        run.curves.names.add(f"evaluation/value{number}")
        run.curves.want(f"evaluation/value{number}")
    assert len(run.curves.readers) == 40


def test_curves_have_a_bounded_length_and_keep_their_mean():
    series = Series()
    count = 40 * MOST_POINTS
    for place in range(count):
        series.add(place, math.sin(place / 1000))
    frames, values = series.thinned(100)
    assert len(series.frames) < MOST_POINTS and len(frames) <= 100 and frames == sorted(frames)
    for frame, value in zip(frames[:-1], values[:-1], strict=True):
        assert value == pytest.approx(math.sin(frame / 1000), abs=0.01)
    whole = Series()
    whole.extend(list(range(count)), [1.0] * count)
    assert len(whole.frames) < MOST_POINTS and set(whole.values) == {1.0}


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
        assert scan._cannot_be_locked(tmp_path / "a" / "lock")
    assert not scan._cannot_be_locked(tmp_path / "a" / "lock")
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
    monkeypatch.setattr("fcritic.watch.watcher.FIRST_BUDGET", 60.0)
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
    monkeypatch.setattr("fcritic.watch.watcher.FIRST_BUDGET", 0.0)
    hasty = Watcher(tmp_path).answer("", [MEAN], [])  # without time to read any row, all runs are there still
    assert {run["frame"] for run in hasty["runs"]} == {1_000_000} and hasty["behind"] == hasty["size"]
