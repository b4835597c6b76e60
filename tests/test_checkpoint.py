"""Checkpoints: exact, atomic under kill, sound under damage, deaf to hostile files."""

import errno
import hashlib
import json
import os
from pathlib import Path
import pickle
import random
import struct
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from fcritic import checkpoint
from fcritic.errors import CheckpointError, UsageError

ROOT = Path(__file__).parents[1]


def groups(value=0.0):
    agent = {"weight": np.full(6, value, np.float32), "bias": np.zeros(3, np.float32)}
    return {"agent": agent, "replay": {}}


def run_python(code, *arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def make_tree():
    key = jax.random.key(3)
    return {
        "agent": eqx.nn.Linear(3, 2, key=key),
        "keys": jax.random.split(key, 4),
        "other key": jax.random.key(5, impl="rbg"),
        "old key": jax.random.PRNGKey(1),
        "half": jnp.arange(7, dtype=jnp.bfloat16).reshape(7, 1) / 3,
        "flags": jnp.array([True, False]),
        "nothing": jnp.zeros((0, 4)),
        "scalar": jnp.array(jnp.nan),
        "host": (
            np.array([2**62, -1]),
            np.array([1e-320, -0.0]),
            np.arange(12.0).reshape(3, 4).T,
            np.uint64(2**63),
        ),
        "counter": np.array(7, np.uint32),
        "gap": None,
    }


def bits(tree):
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in checkpoint.flatten(tree).items()}


def test_round_trip_is_bit_exact(tmp_path):
    tree = make_tree()
    checkpoint.save(tmp_path / "c", {"agent": checkpoint.flatten(tree), "empty": {}}, {"best": 1 / 3, "n": 2**60})
    loaded, facts = checkpoint.load(tmp_path / "c")
    restored = checkpoint.unflatten(tree, loaded["agent"])
    assert bits(restored) == bits(tree)
    assert jax.tree.structure(restored) == jax.tree.structure(tree)
    assert jax.tree.map(type, restored) == jax.tree.map(type, tree)
    assert loaded["empty"] == {} and facts == {"best": 1 / 3, "n": 2**60}
    same_draw = [jax.random.normal(each["keys"][2], (3,)) for each in (tree, restored)]
    np.testing.assert_array_equal(*same_draw)
    assert jax.random.key_impl(restored["other key"]) == "rbg"
    restored["host"][0][:] = 0  # what numpy held must be writable again
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


def test_files_are_plain_safetensors(tmp_path):
    checkpoint.save(tmp_path / "c", groups(2.5), {})
    theirs = safetensors_numpy.load_file(tmp_path / "c" / "agent.safetensors")
    np.testing.assert_array_equal(theirs["weight"], groups(2.5)["agent"]["weight"])


def test_structs_are_enough_to_restore():
    make = lambda: {"net": eqx.nn.Linear(2, 2, key=jax.random.key(0)), "key": jax.random.key(1, impl="rbg")}
    restored = checkpoint.unflatten(jax.eval_shape(make), checkpoint.flatten(make()))
    assert bits(restored) == bits(make())
    assert isinstance(restored["net"].weight, jax.Array)


def test_names_are_readable_and_unique():
    net = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    names = list(checkpoint.flatten({"agent": eqx.filter(net, eqx.is_array)}))
    assert names[0] == "agent/layers/0/weight"
    assert list(checkpoint.flatten(jnp.zeros(2))) == ["value"]
    with pytest.raises(ValueError, match="both named a/b"):
        checkpoint.flatten({"a/b": np.zeros(1), "a": {"b": np.ones(1)}})
    with pytest.raises(TypeError, match="rate is a float"):
        checkpoint.flatten({"rate": 0.1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("a/bias"), "no array a/bias"),
        (lambda arrays: arrays.update(extra=np.zeros(1)), "an array extra"),
        (lambda arrays: arrays.update({"a/bias": np.zeros(4, np.float32)}), r"a/bias has shape \(4,\)"),
        (lambda arrays: arrays.update({"a/bias": np.zeros(3)}), "a/bias has dtype float64"),
        (lambda arrays: arrays.update(key=np.zeros(4, np.uint32)), r"key has shape \(4,\)"),
    ],
)
def test_first_mismatch_is_named(change, message):
    like = {"a": {"bias": jnp.zeros(3)}, "key": jax.random.key(0)}
    arrays = checkpoint.flatten(like)
    change(arrays)
    with pytest.raises(CheckpointError, match=message):
        checkpoint.unflatten(like, arrays)


def test_wide_numbers_are_never_rounded():
    arrays = {"value": np.array([2**40])}
    like = jax.ShapeDtypeStruct((1,), np.int64)
    with pytest.raises(CheckpointError, match="jax_enable_x64"):
        checkpoint.unflatten(like, arrays)


def test_what_cannot_be_stored_is_refused_before_writing(tmp_path):
    for bad in (np.array([object()]), np.array(["text"]), np.zeros(1, np.complex128)):
        with pytest.raises(TypeError, match="safetensors cannot hold"):
            checkpoint.save(tmp_path / "c", {"agent": {"x": bad}}, {})
    for name in ("../agent", "a/b", "", ".hidden", "a\n"):
        with pytest.raises(ValueError, match="cannot name a group"):
            checkpoint.save(tmp_path / "c", {name: {}}, {})
    assert list(tmp_path.iterdir()) == []


def test_kill_at_random_moments_leaves_a_loadable_newest(tmp_path):
    """A process that saves, replaces and prunes without pause is killed a dozen times."""
    code = """
        import os, random, signal, sys, time
        from pathlib import Path
        import numpy as np
        from fcritic import checkpoint

        folder, done = Path(sys.argv[1]), Path(sys.argv[2])
        values = lambda step: {"agent": {"x": np.full(20_000, step)}, "replay": {"y": np.full(50_000, step)}}

        def work(step):
            checkpoint.sweep(folder)
            while True:
                step += 1
                for _ in range(2):  # the second replaces the first
                    checkpoint.save(folder / f"step-{step:012d}", values(step), {"step": step})
                    done.write_text(str(step).zfill(12))
                checkpoint.prune(folder, 1, set())

        step = 0
        for round in range(12):
            child = os.fork()
            if child == 0:
                work(step)
            time.sleep(random.Random(round).uniform(0.02, 0.3))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            checkpoint.sweep(folder)
            newest = checkpoint.latest(folder)
            assert newest is not None or not done.exists()
            if newest:
                loaded, facts = checkpoint.load(newest)
                text = done.read_text() if done.exists() else ""
                assert facts["step"] >= int(text or step), (facts, text)
                assert (loaded["replay"]["y"] == facts["step"]).all()
                step = facts["step"]
            assert not list(folder.glob("*.tmp-*"))
        print("steps", step)
        """
    result = run_python(code, tmp_path / "checkpoints", tmp_path / "done")
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.split()[1]) > 5
    assert "UserWarning" not in result.stderr  # not even one damaged folder


def test_kill_before_every_call_that_changes_the_disk(tmp_path):
    """Die before the n-th sync, rename or removal, for every n, with a single checkpoint at stake."""
    code = """
        import os, signal, sys
        from pathlib import Path
        import numpy as np
        from fcritic import checkpoint

        folder = Path(sys.argv[1])
        path = folder / "step-000000000001"
        save = lambda value: checkpoint.save(path, {"agent": {"x": np.full(9, value)}}, {"value": value})

        def die_before(call, left):
            def wrapped(*arguments, **options):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*arguments, **options)
            return wrapped

        save(0)
        value, outcomes = 0, []
        for count in range(100):
            child = os.fork()
            if child == 0:
                left = [count]
                for name in ("fsync", "rename", "mkdir", "unlink", "rmdir", "open"):
                    setattr(os, name, die_before(getattr(os, name), left))
                save(count + 1)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            checkpoint.sweep(folder)
            loaded, facts = checkpoint.load(checkpoint.latest(folder))
            assert facts["value"] in (value, count + 1), (facts, value, count)
            assert (loaded["agent"]["x"] == facts["value"]).all()
            outcomes.append(facts["value"] == count + 1)
            value = facts["value"]
            if status == 0:
                break
        assert status == 0 and outcomes[-1]
        print(outcomes.count(False), outcomes.count(True))
        """
    result = run_python(code, tmp_path)
    assert result.returncode == 0, result.stderr
    before, after = map(int, result.stdout.split())
    assert before >= 6 and after >= 2  # deaths on both sides of the commit


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
        assert checkpoint.latest(tmp_path) == tmp_path / "step-000000000001"
    checkpoint.prune(tmp_path, 1)  # the damaged one must not push out the good one
    assert (tmp_path / "step-000000000001").exists()
    checkpoint.save(newest, groups(3), {"step": 3})  # and its place can be taken
    assert checkpoint.load(checkpoint.latest(tmp_path))[1] == {"step": 3}


def forge(directory, data, group="agent", **changes):
    """A checkpoint whose manifest vouches for ``data``: what an attacker who can write would make."""
    directory.mkdir(exist_ok=True)
    if "/" not in group:
        (directory / f"{group}.safetensors").write_bytes(data)
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest = {"format": checkpoint.FORMAT, "facts": {}, "groups": {group: entry}} | changes
    manifest["sha256"] = checkpoint._manifest_hash(manifest)
    (directory / checkpoint.MANIFEST).write_text(json.dumps(manifest))
    return directory


class Planted:
    """Unpickling this makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_hostile_files_are_refused_and_run_nothing(tmp_path):
    mark = tmp_path / "planted"
    planted = pickle.dumps(Planted(mark))
    header = lambda text: struct.pack("<Q", len(text)) + text
    tensor = '{"x":{"dtype":"%s","shape":%s,"data_offsets":%s}}'
    cases = {
        "pickle": planted,
        "empty": b"",
        "huge header": struct.pack("<Q", 2**63) + b"{}",
        "long header": struct.pack("<Q", 99_000_000) + b"{}",
        "object dtype": header((tensor % ("O", "[1]", "[0,8]")).encode()) + bytes(8),
        "outside": header((tensor % ("F32", "[4]", "[0,16]")).encode()) + bytes(8),
        "overflow": header((tensor % ("F32", f"[{2**62},{2**62}]", "[0,8]")).encode()) + bytes(8),
        "deep": header(b"[" * 100_000),
    }
    for name, data in cases.items():
        with pytest.raises(CheckpointError) as caught:
            checkpoint.load(forge(tmp_path / name, data))
        assert "\n" not in str(caught.value), name
    manifests = [planted, b"[" * 100_000, b"[]", b"{}", b"null", b'{"format": 1}', b"\xff\xfe", b"9" * 9_000]
    for data in manifests:
        (tmp_path / "empty" / checkpoint.MANIFEST).write_bytes(data)
        with pytest.raises(CheckpointError):
            checkpoint.load(tmp_path / "empty")
    assert not mark.exists()


def test_names_and_links_cannot_lead_outside(tmp_path):
    good = safetensors_numpy.save({"x": np.zeros(2)})
    (tmp_path / "secret.safetensors").write_bytes(good)
    for name in ("../secret", "/tmp/secret", "a/../../secret"):
        with pytest.raises(CheckpointError, match="names files"):
            checkpoint.load(forge(tmp_path / "c", good, group=name))
    with pytest.raises(CheckpointError, match="has no group"):
        checkpoint.load(forge(tmp_path / "c", good), groups=["../secret"])
    linked = forge(tmp_path / "linked", good)
    (linked / "agent.safetensors").unlink()
    (linked / "agent.safetensors").symlink_to(tmp_path / "secret.safetensors")
    (tmp_path / "folder link").symlink_to(forge(tmp_path / "real", good))
    os.mkfifo(forge(tmp_path / "pipe", good, group="other") / "agent.safetensors")
    forge(tmp_path / "pipe", good, group="other", groups={"agent": {"bytes": 0, "sha256": ""}})
    for name in ("linked", "folder link", "pipe"):
        with pytest.raises(CheckpointError, match="is a link or not a plain file"):
            checkpoint.load(tmp_path / name)
    for entry in ([], "text", {"bytes": 1}):
        with pytest.raises(CheckpointError):
            checkpoint.load(forge(tmp_path / "c", good, groups={"agent": entry}))


def test_a_thousand_mutants_give_a_typed_error_or_the_same_arrays(tmp_path):
    generator = random.Random(0)
    good = safetensors_numpy.save({"x": np.arange(4.0), "y": np.zeros((2, 3), np.uint32)})
    for _ in range(1000):
        data = bytearray(good)
        for _ in range(generator.randint(1, 4)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        try:
            loaded, _ = checkpoint.load(forge(tmp_path / "c", bytes(data)))
        except CheckpointError as error:
            assert "\n" not in str(error)
        else:
            assert all(isinstance(array, np.ndarray) for array in loaded["agent"].values())


def test_disk_full_leaves_the_older_one_intact(tmp_path):
    """A real refusal by the operating system: files may not grow past 64 kB."""
    code = """
        import resource, sys
        from pathlib import Path
        import numpy as np
        from fcritic import checkpoint
        from fcritic.errors import UsageError

        folder = Path(sys.argv[1])
        checkpoint.save(folder / "step-000000000001", {"agent": {"x": np.arange(9)}}, {"step": 1})
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        for step in (1, 2):
            try:
                large = {"agent": {"x": np.arange(9)}, "replay": {"y": np.zeros(100_000)}}
                checkpoint.save(folder / f"step-{step:012d}", large, {})
            except UsageError as error:
                print(error)
        """
    result = run_python(code, tmp_path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 2 and all("File too large; raise the file size limit" in line for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000001"]
    assert checkpoint.load(checkpoint.latest(tmp_path))[1] == {"step": 1}


@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_every_failing_call_leaves_the_older_one_intact(tmp_path, monkeypatch, call, number):
    path = tmp_path / "step-000000000001"
    checkpoint.save(path, groups(1), {"value": 1})
    real = getattr(os, call)
    for count in range(4):
        calls = []

        def failing(*arguments, calls=calls, count=count):
            calls.append(arguments)
            if len(calls) == count + 1:
                raise OSError(number, os.strerror(number))
            return real(*arguments)

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


def test_prune_keeps_the_newest_and_the_protected(tmp_path):
    for step in range(6):
        checkpoint.save(tmp_path / f"step-{step:012d}", groups(step), {})
    (tmp_path / "notes.txt").write_text("mine")
    checkpoint.prune(tmp_path, 2, {tmp_path / "step-000000000001"})
    assert sorted(path.name[-2:] for path in tmp_path.glob("step-*")) == ["01", "04", "05"]
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


def test_some_groups_can_be_read_without_the_others(tmp_path):
    checkpoint.save(tmp_path / "c", groups(4), {})
    (tmp_path / "c" / "replay.safetensors").unlink()
    loaded, _ = checkpoint.load(tmp_path / "c", groups=iter(["agent"]))
    assert list(loaded) == ["agent"]
    with pytest.raises(CheckpointError):
        checkpoint.load(tmp_path / "c")
