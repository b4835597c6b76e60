"""Checkpoints and folders of them: whole or absent, sound under damage and failing calls."""

import errno
import os

import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from fcritic.disk import Place
from fcritic.errors import CheckpointError, UsageError
from fcritic.runs import checkpoint


def groups(value=0.0):
    agent = {"weight": np.full(6, value, np.float32), "bias": np.zeros(3, np.float32)}
    return {"agent": agent, "replay": {}}


def test_files_are_plain_safetensors(tmp_path):
    checkpoint.save(tmp_path / "c", groups(2.5), {})
    theirs = safetensors_numpy.load_file(tmp_path / "c" / "agent.safetensors")
    np.testing.assert_array_equal(theirs["weight"], groups(2.5)["agent"]["weight"])


def test_some_groups_can_be_read_without_the_others(tmp_path):
    checkpoint.save(tmp_path / "c", groups(4), {})
    (tmp_path / "c" / "replay.safetensors").unlink()
    loaded, _ = checkpoint.load(tmp_path / "c", groups=iter(["agent"]))
    assert list(loaded) == ["agent"]
    with pytest.raises(CheckpointError):
        checkpoint.load(tmp_path / "c")


def test_what_cannot_be_stored_is_refused_before_writing(tmp_path):
    for bad in (np.array([object()]), np.array(["text"]), np.zeros(1, np.complex64)):
        with pytest.raises(TypeError, match="cannot be saved"):
            checkpoint.save(tmp_path / "c", {"agent": {"x": bad}}, {})
    for name in ("../agent", "a/b", "", ".hidden", "a\n"):
        with pytest.raises(ValueError, match="cannot name a group"):
            checkpoint.save(tmp_path / "c", {name: {}}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["truncate", "flip", "grow", "remove", "manifest flip", "no manifest"])
def test_damage_is_noticed_and_the_one_before_is_taken(tmp_path, damage):
    for step in (1, 2):
        checkpoint.save(tmp_path / f"step-{step:012d}", groups(step), {"step": step, "rate": 0.125})
    newest = tmp_path / "step-000000000002"
    path = newest / (checkpoint.MANIFEST if "manifest" in damage else "agent.safetensors")
    data = path.read_bytes()
    if damage == "truncate":
        path.write_bytes(data[:-1])
    elif damage == "grow":
        path.write_bytes(data + b"\0")
    elif damage == "flip":
        path.write_bytes(data[:-3] + bytes([data[-3] ^ 16]) + data[-2:])
    elif damage == "manifest flip":
        path.write_bytes(data.replace(b"0.125", b"0.225"))
    else:
        path.unlink()
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(newest)
    assert "\n" not in str(caught.value) and str(newest) in str(caught.value)
    with pytest.warns(UserWarning, match="step-000000000002"):
        assert checkpoint.latest(tmp_path).path == tmp_path / "step-000000000001"
    checkpoint.prune(tmp_path, 1)  # the damaged one must not push out the good one
    assert (tmp_path / "step-000000000001").exists()
    checkpoint.save(newest, groups(3), {"step": 3})  # and its place can be taken
    assert checkpoint.load(checkpoint.latest(tmp_path))[1] == {"step": 3}


@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_every_failing_call_leaves_the_older_one_intact(tmp_path, monkeypatch, call, number):
    path = tmp_path / "step-000000000001"
    checkpoint.save(path, groups(1), {"value": 1})
    real = getattr(os, call)
    for count in range(4):
        calls = []

        def failing(*arguments, calls=calls, count=count, **options):
            calls.append(arguments)
            if len(calls) == count + 1:
                raise OSError(number, os.strerror(number))
            return real(*arguments, **options)

        monkeypatch.setattr(os, call, failing)
        try:
            checkpoint.save(path, groups(2), {"value": 2})
        except UsageError as error:
            assert str(error).startswith(f"cannot write checkpoint to {path}: {os.strerror(number)}; ")
            assert str(error).endswith("another --out") and "\n" not in str(error)
        else:
            assert len(calls) <= count
        monkeypatch.undo()
        assert path.exists()  # at once, not only after a sweep
        checkpoint.sweep(tmp_path)
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
        loaded, facts = checkpoint.load(path)
        assert (loaded["agent"]["weight"] == facts["value"]).all()


def test_something_else_in_the_way_is_kept(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "folder"):
        with pytest.raises(UsageError, match="choose another --out"):
            checkpoint.save(path, groups(), {})
    assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "thesis.tex").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_prune_keeps_the_newest_and_what_was_set_aside(tmp_path):
    for step in range(6):
        checkpoint.save(tmp_path / f"step-{step:012d}", groups(step), {"step": step})
    (tmp_path / "notes.txt").write_text("mine")
    checkpoint.set_aside({Place.of(tmp_path) / "step-000000000001": CheckpointError("damaged")})
    assert [manifest["facts"]["step"] for manifest in checkpoint.prune(tmp_path, 2)] == [5, 4]
    assert sorted(path.name[-2:] for path in tmp_path.glob("step-*")) == ["04", "05"]
    assert (tmp_path / "damaged-step-000000000001").exists()
    assert (tmp_path / "notes.txt").exists()
    with pytest.raises(ValueError, match="at least one"):
        checkpoint.prune(tmp_path, 0)


def test_leftovers_are_ignored_then_swept(tmp_path):
    assert checkpoint.latest(tmp_path / "missing") is None
    checkpoint.sweep(tmp_path / "missing")
    checkpoint.save(tmp_path / "step-000000000001", groups(1), {})
    (tmp_path / "step-000000000002.tmp-77").mkdir()
    (tmp_path / "step-000000000002.tmp-77" / "agent.safetensors").write_bytes(b"half")
    (tmp_path / "step-0000000000003").mkdir()  # one digit too many
    assert checkpoint.latest(tmp_path).name == "step-000000000001"
    checkpoint.sweep(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["step-0000000000003", "step-000000000001"]
