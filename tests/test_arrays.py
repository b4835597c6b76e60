"""Trees to named arrays, named arrays to files and back: bit for bit, and whatever is wrong is said."""

import json
import struct

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from fcritic.errors import CheckpointError
from fcritic.runs import arrays as files
from fcritic.runs import checkpoint


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
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in files.flatten(tree).items()}


def test_round_trip_is_bit_exact(tmp_path):
    tree = make_tree()
    checkpoint.save(tmp_path / "c", {"agent": files.flatten(tree), "empty": {}}, {"best": 1 / 3, "n": 2**60})
    loaded, facts = checkpoint.load(tmp_path / "c")
    restored = files.unflatten(tree, loaded["agent"])
    assert bits(restored) == bits(tree)
    assert jax.tree.structure(restored) == jax.tree.structure(tree)
    assert jax.tree.map(type, restored) == jax.tree.map(type, tree)
    assert loaded["empty"] == {} and facts == {"best": 1 / 3, "n": 2**60}
    same_draw = [jax.random.normal(each["keys"][2], (3,)) for each in (tree, restored)]
    np.testing.assert_array_equal(*same_draw)
    assert jax.random.key_impl(restored["other key"]) == "rbg"
    restored["host"][0][:] = 0  # what numpy held must be writable again
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


def test_structs_are_enough_to_restore():
    make = lambda: {"net": eqx.nn.Linear(2, 2, key=jax.random.key(0)), "key": jax.random.key(1, impl="rbg")}
    restored = files.unflatten(jax.eval_shape(make), files.flatten(make()))
    assert bits(restored) == bits(make())
    assert isinstance(restored["net"].weight, jax.Array)


def test_names_are_readable_and_unique():
    net = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    names = list(files.flatten({"agent": eqx.filter(net, eqx.is_array)}))
    assert names[0] == "agent/layers/0/weight"
    assert list(files.flatten(jnp.zeros(2))) == ["value"]
    with pytest.raises(ValueError, match="both named a/b"):
        files.flatten({"a/b": np.zeros(1), "a": {"b": np.ones(1)}})
    with pytest.raises(TypeError, match="rate is a float"):
        files.flatten({"rate": 0.1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("a/bias"), "no array a/bias"),
        (lambda arrays: arrays.update(extra=np.zeros(1)), "an array 'extra'"),
        (lambda arrays: arrays.update({"a/bias": np.zeros(4, np.float32)}), r"a/bias has shape \(4,\)"),
        (lambda arrays: arrays.update({"a/bias": np.zeros(3)}), "a/bias has dtype float64"),
        (lambda arrays: arrays.update(key=np.zeros(4, np.uint32)), r"key has shape \(4,\)"),
    ],
)
def test_first_mismatch_is_named(change, message):
    like = {"a": {"bias": jnp.zeros(3)}, "key": jax.random.key(0)}
    arrays = files.flatten(like)
    change(arrays)
    with pytest.raises(CheckpointError, match=message):
        files.unflatten(like, arrays)


def test_wide_numbers_are_never_rounded():
    arrays = {"value": np.array([2**40])}
    like = jax.ShapeDtypeStruct((1,), np.int64)
    with pytest.raises(CheckpointError, match="jax_enable_x64"):
        files.unflatten(like, arrays)


# Files


ARRAYS = {
    "weights": np.arange(12, dtype=np.float32).reshape(3, 4),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 5), np.uint8),
    "flags": np.array([True, False]),
    "short": np.arange(3).astype(ml_dtypes.bfloat16),
    "strided": np.arange(24, dtype=np.float64).reshape(4, 6)[::2, 1::2],
}


def test_a_file_holds_what_was_put_into_it():
    found = files.decode(files.encode(ARRAYS))
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.writeable
    known = {name: array for name, array in ARRAYS.items() if name != "short"}  # others read no bfloat16
    for name, array in safetensors_numpy.load(files.encode(known)).items():
        np.testing.assert_array_equal(array, found[name])


def forged(entries, data=b"", length=None):
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        forged({}, length=10**6),
        forged({}, length=2**63),
        forged([]),
        forged({"x": ENTRY | {"dtype": "O"}}, bytes(8)),
        forged({"x": {"dtype": "F8_E5M2", "shape": [8], "data_offsets": [0, 8]}}, bytes(8)),
        forged({"x": ENTRY | {"shape": [-2]}}, bytes(8)),
        forged({"x": ENTRY | {"shape": [3]}}, bytes(8)),
        forged({"x": ENTRY | {"shape": [2**62, 2**62]}}, bytes(8)),
        forged({"x": ENTRY, "y": ENTRY}, bytes(8)),
        forged({"x": ENTRY | {"data_offsets": [8, 16]}}, bytes(16)),
        forged({"x": ENTRY}, bytes(9)),
        forged({"x": ENTRY}, bytes(7)),
        forged({"x": {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]}}, bytes(8)),
        struct.pack("<Q", 100_000) + b"[" * 100_000,
        struct.pack("<Q", 5 * 2**20) + b"{}" + b" " * (5 * 2**20),
    ],
)
def test_what_is_not_a_file_of_arrays_is_a_value_error(data):
    with pytest.raises(ValueError, match=r"it is not a file of arrays|its header is longer"):
        files.decode(data)


def test_a_file_larger_than_the_shapes_is_not_read(tmp_path):
    """Its manifest vouches for it; the configuration does not."""
    checkpoint.save(tmp_path / "c", {"agent": {"x": np.zeros(2**20)}}, {})
    with pytest.raises(CheckpointError, match=r"8,388,688 bytes, more than the 4,194,312 expected"):
        checkpoint.load(tmp_path / "c", ["agent"], {"agent": {"x": np.zeros(1)}})
    with pytest.raises(CheckpointError, match="x has shape"):
        checkpoint.load(tmp_path / "c", ["agent"], {"agent": {"x": np.zeros(2**20 - 1)}})
