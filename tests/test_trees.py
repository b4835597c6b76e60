"""Trees to named arrays and back: bit for bit, and a mismatch is named."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic.errors import CheckpointError
from fcritic.runs import checkpoint, trees


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
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in trees.flatten(tree).items()}


def test_round_trip_is_bit_exact(tmp_path):
    tree = make_tree()
    checkpoint.save(tmp_path / "c", {"agent": trees.flatten(tree), "empty": {}}, {"best": 1 / 3, "n": 2**60})
    loaded, facts = checkpoint.load(tmp_path / "c")
    restored = trees.unflatten(tree, loaded["agent"])
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
    restored = trees.unflatten(jax.eval_shape(make), trees.flatten(make()))
    assert bits(restored) == bits(make())
    assert isinstance(restored["net"].weight, jax.Array)


def test_names_are_readable_and_unique():
    net = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    names = list(trees.flatten({"agent": eqx.filter(net, eqx.is_array)}))
    assert names[0] == "agent/layers/0/weight"
    assert list(trees.flatten(jnp.zeros(2))) == ["value"]
    with pytest.raises(ValueError, match="both named a/b"):
        trees.flatten({"a/b": np.zeros(1), "a": {"b": np.ones(1)}})
    with pytest.raises(TypeError, match="rate is a float"):
        trees.flatten({"rate": 0.1})


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
    arrays = trees.flatten(like)
    change(arrays)
    with pytest.raises(CheckpointError, match=message):
        trees.unflatten(like, arrays)


def test_wide_numbers_are_never_rounded():
    arrays = {"value": np.array([2**40])}
    like = jax.ShapeDtypeStruct((1,), np.int64)
    with pytest.raises(CheckpointError, match="jax_enable_x64"):
        trees.unflatten(like, arrays)
