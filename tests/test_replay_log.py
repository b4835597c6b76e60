"""The replay on disk: only new rows are written, old files go, damage and failures are noticed."""

import errno
import os
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from fcritic.errors import CannotWrite, CheckpointError
from fcritic.runs import replay_log
from fcritic.runs.replay_log import Piece, Record, ReplayLog, parse_pieces
from fcritic.training.saving import ring_rows

SHAPE = (2, 3, 4)


def rows(first, last):
    """Rows that tell their step."""
    steps = np.arange(first, last, dtype=np.float32)
    return np.broadcast_to(steps[:, None, None, None], (last - first, *SHAPE)).copy()


@pytest.fixture
def log(tmp_path):
    return ReplayLog(tmp_path / "replay", SHAPE, capacity=40)  # files of 5 steps


def test_only_new_rows_are_written(log):
    log.append(0, rows(0, 3))
    before = (log.folder / "rows-000000000000.f32").read_bytes()
    log.append(3, rows(3, 12))
    after = (log.folder / "rows-000000000000.f32").read_bytes()
    assert after.startswith(before) and len(after) == 5 * 4 * 24
    assert [piece[:2] for piece in log.pieces(0)] == [(0, 5), (5, 5), (10, 2)]
    np.testing.assert_array_equal(log.read(log.pieces(7), 7), rows(7, 12))


def test_an_older_checkpoint_reads_its_own_part(log):
    log.append(0, rows(0, 3))
    old = log.pieces(0)
    log.append(3, rows(3, 12))
    np.testing.assert_array_equal(log.read(old, 0), rows(0, 3))
    log.resume(old)  # and going back to it cuts off the rest
    assert (log.folder / "rows-000000000000.f32").stat().st_size == 3 * 4 * 24
    log.append(3, rows(3, 9))
    np.testing.assert_array_equal(log.read(log.pieces(0), 0), rows(0, 9))
    log.forget(log.pieces(0))
    assert sorted(path.name[-8:-4] for path in log.folder.iterdir()) == ["0000", "0005"]


def test_another_process_continues_with_the_same_hashes(log):
    log.append(0, rows(0, 8))
    later = ReplayLog(log.folder, SHAPE, capacity=40)
    later.resume(log.pieces(0))
    later.append(8, rows(8, 9))
    log.append(8, rows(8, 9))
    assert later.pieces(0) == log.pieces(0)


def test_files_that_nobody_needs_go(log):
    log.append(0, rows(0, 23))
    log.forget(log.pieces(12))
    assert sorted(path.name[-8:-4] for path in log.folder.iterdir()) == ["0010", "0015", "0020"]
    np.testing.assert_array_equal(log.read(log.pieces(12), 12), rows(12, 23))


def test_a_gap_begins_a_new_file(log):
    """A ring that was overwritten between two saves has lost what was never written."""
    log.append(0, rows(0, 2))
    log.append(10, rows(10, 13))
    assert [piece.first for piece in log.pieces(10)] == [10]
    with pytest.raises(CheckpointError, match="gaps"):
        log.read(log.pieces(0), 0)


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "link"])
def test_damage_is_noticed(log, damage):
    log.append(0, rows(0, 4))
    path = log.folder / "rows-000000000000.f32"
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[17] ^= 4
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-1])
    else:
        path.unlink()
        if damage == "link":
            (log.folder / "elsewhere").write_bytes(data)
            path.symlink_to(log.folder / "elsewhere")
    with pytest.raises(CheckpointError) as caught:
        log.read(log.pieces(0), 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call", range(6))
def test_a_failed_append_changes_nothing(log, monkeypatch, call):
    log.append(0, rows(0, 3))
    pieces, calls, real = log.pieces(0), [], os.fsync

    def failing(handle):
        calls.append(handle)
        if len(calls) == call + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", failing)
    try:
        log.append(3, rows(3, 17))
    except CannotWrite as error:
        assert "No space left" in str(error)
        assert log.pieces(0) == pieces
        np.testing.assert_array_equal(log.read(pieces, 0), rows(0, 3))
    else:
        assert len(calls) <= call
        return
    monkeypatch.undo()
    log.append(3, rows(3, 17))  # once there is space again
    np.testing.assert_array_equal(log.read(log.pieces(0), 0), rows(0, 17))


def test_rows_that_vanish_under_a_running_training_are_not_papered_over(log):
    log.append(0, rows(0, 3))
    os.truncate(log.folder / "rows-000000000000.f32", 7)
    with pytest.raises(CannotWrite, match="rows that were written are gone"):
        log.append(3, rows(3, 4))


@pytest.mark.parametrize(
    "data", [None, 5, [5], [[1, 2]], [["0", 1, "x"]], [[-1, 1, "x"]], [[0, True, "x"]], [[0, 1, 2]]]
)
def test_a_manifest_that_lies_is_refused(data):
    with pytest.raises(CheckpointError):
        parse_pieces(data)


@pytest.mark.parametrize("claimed", [(0, 11), (1, 9), (8, 9), (9, 9), (3, 12), (-1, 9), ("0", 9), (True, 11)])
def test_a_checkpoint_that_forgets_rows_is_refused(claimed):
    """The replay holds the last ten rows, or all of them where there are fewer."""
    record = lambda oldest, written: {"replay": {"oldest": oldest, "written": written, "pieces": []}}
    for honest in ((0, 0), (0, 9), (0, 10), (1, 11)):
        assert Record.of(record(*honest), 10)[:2] == honest
    with pytest.raises(CheckpointError, match="does not fit this run's --replay"):
        Record.of(record(*claimed), 10)


def test_pieces_must_follow_each_other(log):
    log.append(0, rows(0, 9))
    first, second = log.pieces(0)
    for pieces in ([second, first], [first, first], [second], [Piece(0, 99, "x")]):
        with pytest.raises(CheckpointError):
            log.read(pieces, 0)


@pytest.mark.parametrize(("first", "last"), [(0, 5), (3, 10), (6, 16), (9, 10)])
def test_rows_leave_a_ring_in_their_order(monkeypatch, first, last):
    monkeypatch.setattr("fcritic.training.saving._BLOCK", 4)
    ring = np.zeros((2, 10, 3, 4), np.float32)
    for step in range(max(0, last - 10), last):
        ring[:, step % 10] = step
    np.testing.assert_array_equal(ring_rows(jnp.asarray(ring), first, last), rows(first, last))


def test_files_per_ring_bounds_what_is_kept_too_long():
    log = ReplayLog(Path("x"), SHAPE, capacity=1000)
    assert log._steps_per_file == 1000 // replay_log.FILES_PER_RING
