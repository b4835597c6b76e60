"""Reading the rows of runs: only what was appended, whatever is in the file, in bounded memory."""

import json
import math
import os

import pytest
from watched_runs import MEAN, a_run, curve, episode, evaluation, only

from fcritic.view.watch.reading import BLOCK, MOST_POINTS, Cursor, Series, Tail
from fcritic.view.watch.server import Watcher


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
