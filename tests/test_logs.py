"""Metrics: valid JSON whatever the value, no row missing or doubled after a resume."""

import json
import math
import os
import struct
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from fcritic.errors import UsageError
from fcritic.logs.metrics import JSONLog, read_rows
from fcritic.logs.tensorboard import TensorBoardLog


def row(step, **values):
    return {"seed": 0, "env_steps": step, "kind": "train", **values}


def test_rows_are_valid_json_in_a_fixed_order(tmp_path):
    log = JSONLog(tmp_path / "new" / "metrics.jsonl")
    values = {
        "loss": jnp.float32(0.1),
        "bad": np.float64("nan"),
        "worse": [1.0, -math.inf, jnp.array(jnp.inf)],
        "returns": np.arange(2.0),
        "count": np.int64(2**53 + 1),
        "task": "walker",
    }
    log.write([{**values, "kind": "evaluation", "env_steps": np.int32(7), "seed": 3}])
    log.close()

    def refuse(word):
        raise AssertionError(word)

    text = log.path.read_text()
    plain = json.loads(text, parse_constant=refuse)  # strict: Python alone would accept NaN
    assert list(plain)[:3] == ["seed", "env_steps", "kind"] and text.count("\n") == 1
    assert plain["bad"] is None and plain["worse"] == [1.0, None, None]
    (read,) = read_rows(log.path)
    assert math.isnan(read["bad"]) and math.isnan(read["worse"][2])
    assert read["loss"] == float(np.float32(0.1)) and read["count"] == 2**53 + 1
    assert read["returns"] == [0.0, 1.0] and read["task"] == "walker"


def test_rows_are_there_without_closing(tmp_path):
    log = JSONLog(tmp_path / "m.jsonl")
    log.write([row(1), row(2)])
    assert [read["env_steps"] for read in read_rows(log.path)] == [1, 2]
    with pytest.raises(KeyError):
        log.write([row(3), {"seed": 0}])  # a bad row takes its batch with it, nothing is half written
    assert len(read_rows(log.path)) == 2


def test_torn_last_line_is_not_a_row(tmp_path):
    path = tmp_path / "m.jsonl"
    log = JSONLog(path)
    log.write([row(1), row(2, note="é" * 5000)])
    whole = path.read_bytes()
    log.close()
    second = whole.index(b"\n") + 1
    for cut in (second, second + 1, second + 9000, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert [read["env_steps"] for read in read_rows(path)] == [1]
        log = JSONLog(path)  # an append must not run into the torn line
        log.write([row(3)])
        log.close()
        assert [read["env_steps"] for read in read_rows(path)] == [1, 3]
    path.write_bytes(b'{"seed"')
    assert read_rows(path) == []


def test_damage_inside_is_named(tmp_path):
    path = tmp_path / "m.jsonl"
    for bad in (b"{nonsense}\n", b"[1]\n", b"\xff\n"):
        path.write_bytes(b'{"seed": 0}\n' + bad + b'{"seed": 0}\n')
        with pytest.raises(UsageError, match="line 2 is not a row"):
            read_rows(path)
    with pytest.raises(UsageError, match="cannot read"):
        read_rows(tmp_path / "missing.jsonl")


def test_resume_gives_the_same_bytes_as_no_interruption(tmp_path):
    rows = [row(step, loss=step / 7) for step in range(20)]
    straight = JSONLog(tmp_path / "a.jsonl")
    straight.write(rows)

    log = JSONLog(tmp_path / "b.jsonl")
    log.write(rows[:8])
    position = log.position()
    assert position == os.path.getsize(log.path)
    log.write(rows[8:13])  # after the checkpoint: lost by the kill
    with log.path.open("ab") as file:
        file.write(b'{"seed": 0, "env_st')
    resumed = JSONLog(log.path)
    resumed.truncate(position)
    assert resumed.position() == position
    resumed.write(rows[8:])
    assert resumed.path.read_bytes() == straight.path.read_bytes()
    resumed.truncate(0)
    assert resumed.path.read_bytes() == b""


def test_a_file_that_lost_or_changed_rows_is_refused(tmp_path):
    log = JSONLog(tmp_path / "m.jsonl")
    log.write([row(1), row(2)])
    before = log.path.read_bytes()
    with pytest.raises(UsageError, match="rows are missing"):
        log.truncate(len(before) + 1)
    with pytest.raises(UsageError, match="no row that ends at byte"):
        log.truncate(len(before) - 3)
    assert log.path.read_bytes() == before


class FullDisk:
    """A file that takes a few bytes of a write and then has no space."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        if not self.room:
            raise OSError(28, "No space left on device")
        taken = self.file.write(data[: self.room])
        self.room -= taken
        return taken

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_full_disk_leaves_whole_rows(tmp_path):
    log = JSONLog(tmp_path / "m.jsonl")
    log.write([row(1)])
    before = log.path.read_bytes()
    real, log._file = log._file, FullDisk(log._file, room=60)
    with pytest.raises(UsageError, match="No space left on device; free some space") as caught:
        log.write([row(2), row(3)])
    assert "\n" not in str(caught.value)
    assert log.path.read_bytes() == before
    log._file = real
    log.write([row(4)])  # once there is space again, the rows that waited come first
    assert [each["env_steps"] for each in read_rows(log.path)] == [1, 2, 3, 4]


def test_a_file_in_the_way_is_one_line(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="cannot write metrics"):
        JSONLog(tmp_path / "file" / "m.jsonl")
    with pytest.raises(UsageError, match="cannot write TensorBoard events"):
        TensorBoardLog(tmp_path / "file").write([row(1, loss=1.0)])


def events(folder):
    """All events under a folder in the order in which TensorBoard reads them."""
    found = []
    for path in sorted(folder.glob("events.*")):
        data = path.read_bytes()
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            found.append(Event.FromString(data[12 : 12 + size]))
            data = data[16 + size :]
    return found


def points(found):
    return [(value.tag, event.step, value.simple_value) for event in found for value in event.summary.value]


def test_tensorboard_tags_seeds_and_lists(tmp_path):
    log = TensorBoardLog(tmp_path)
    assert list(tmp_path.iterdir()) == []  # nothing until there is something to show
    log.write([row(5, loss=jnp.float32(0.5), returns=[1.0, 2.0], task="walker"), row(5, loss=0.25) | {"seed": 3}])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seed-0", "seed-3"]
    expected = [("train/loss", 5, 0.5), ("train/returns/0", 5, 1.0), ("train/returns/1", 5, 2.0)]
    assert points(events(tmp_path / "seed-0")) == expected  # flushed, not only closed
    assert points(events(tmp_path / "seed-3")) == [("train/loss", 5, 0.25)]
    log.close()
    log.close()


def test_tensorboard_hides_what_came_after_the_checkpoint(tmp_path):
    first = TensorBoardLog(tmp_path)
    first.write([row(step, loss=float(step)) for step in (10, 20, 30)])
    first.close()
    second = TensorBoardLog(tmp_path, resume_step=20)
    second.write([row(30, loss=30.0)])
    second.close()
    shown = []
    for event in events(tmp_path / "seed-0"):  # TensorBoard's rule
        if event.session_log.status == SessionLog.START:
            shown = [point for point in shown if point[1] < event.step]
        shown += points([event])
    assert [step for _, step, _ in shown] == [10, 20, 30]


WRITE_EVENTS = """
import sys
{before}
from fcritic.logs.tensorboard import TensorBoardLog
log = TensorBoardLog(sys.argv[1])
log.write([{{"seed": 0, "env_steps": 5, "kind": "train", "loss": 0.5}}])
log.close()
import tensorboardX.writer as writer
print("torch" in sys.modules, writer.numpy_compatible.__name__)
import torch
"""


@pytest.mark.parametrize(
    ("before", "told", "imported"),
    [("", "False ndarray", "after tensorboardX"), ("import torch", "True Tensor", "before tensorboardX")],
)
def test_tensorboard_does_not_import_torch(tmp_path, before, told, imported):
    """It takes seconds where it is installed; whoever imports it by himself gets it, before and after."""
    package = tmp_path / "path" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import sys\nfrom pathlib import Path\nclass Tensor: pass\n"
        "when = 'after' if 'tensorboardX' in sys.modules else 'before'\n"
        f"Path({str(tmp_path / 'imported')!r}).write_text(f'{{when}} tensorboardX')\n"
    )
    path = os.pathsep.join([str(package.parent), *sys.path])
    code = WRITE_EVENTS.format(before=before)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "events")],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == told
    assert (tmp_path / "imported").read_text() == imported
    assert points(events(tmp_path / "events" / "seed-0")) == [("train/loss", 5, 0.5)]
