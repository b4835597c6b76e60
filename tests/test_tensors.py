"""Safetensors read with our own eyes: the same arrays as the library's, and refusal before memory is asked for."""

import json
import os
import struct

import ml_dtypes
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from fcritic import disk
from fcritic.disk import NotPlain, open_plain, read_json, require_memory
from fcritic.errors import UsageError
from fcritic.runs import tensors

ARRAYS = {
    "weights": np.arange(12, dtype=np.float32).reshape(3, 4),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 5), np.uint8),
    "flags": np.array([True, False]),
    "short": np.arange(3).astype(ml_dtypes.bfloat16),
    "strided": np.arange(24, dtype=np.float64).reshape(4, 6)[::2, 1::2],
}


def read(path, data, verify=None):
    path.write_bytes(data)
    with open_plain(path) as file:
        return tensors.decode(file, verify)


def test_the_same_as_the_library(tmp_path):
    data = tensors.encode(ARRAYS)
    ours = read(tmp_path / "x", data)
    assert ours.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert ours[name].dtype == array.dtype and ours[name].shape == array.shape
        np.testing.assert_array_equal(ours[name], array)
    known = {name: array for name, array in ARRAYS.items() if name != "short"}  # the library reads no bfloat16
    for name, array in safetensors_numpy.load(tensors.encode(known)).items():
        np.testing.assert_array_equal(array, ours[name])


def forged(entries, data=b"", length=None):
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "ended early"),
        (forged({}, length=10**6), "header is longer"),
        (forged([]), "no object"),
        (forged({"x": ENTRY | {"dtype": "O"}}, bytes(8)), "has the type 'O'"),
        (forged({"x": ENTRY | {"shape": [-2]}}, bytes(8)), "has the shape"),
        (forged({"x": ENTRY | {"shape": [3]}}, bytes(8)), "does not fit its place"),
        (forged({"x": ENTRY, "y": ENTRY}, bytes(8)), "overlap or leave gaps"),
        (forged({"x": ENTRY | {"data_offsets": [8, 16]}}, bytes(16)), "overlap or leave gaps"),
        (forged({"x": ENTRY}, bytes(9)), "not as long as the file"),
        (forged({"x": ENTRY | {"more": 1}}, bytes(8)), "is not described"),
        (forged({"x": {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]}}, bytes(8)), "has the shape"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, data, says):
    with pytest.raises((ValueError, NotPlain), match=says):
        read(tmp_path / "x", data)


def test_the_reader_is_asked_before_memory_is(tmp_path, monkeypatch):
    def never(*arguments):
        raise AssertionError("memory was asked for")

    def refuse(description):
        assert description["weights"].shape == (3, 4)
        raise UsageError("not this one")

    monkeypatch.setattr(np, "empty", never)
    with pytest.raises(UsageError, match="not this one"):
        read(tmp_path / "x", tensors.encode(ARRAYS), refuse)


def test_more_than_there_is_is_refused_at_once():
    with pytest.raises(UsageError, match=r"a replay needs 1,048,576.0 GiB of memory"):
        require_memory(2**50, "a replay")
    require_memory(2**20, "a replay")


def test_only_plain_files_are_opened(tmp_path):
    (tmp_path / "file").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    assert read_json(tmp_path / "file") == {}
    for name, says in {"link": "is a link", "pipe": "not a plain file", ".": "not a plain file"}.items():
        with pytest.raises(NotPlain, match=says):
            read_json(tmp_path / name)
    (tmp_path / "file").write_bytes(b" " * (disk.JSON_LIMIT + 1))
    with pytest.raises(NotPlain, match="more than the 4,194,304 expected"):
        read_json(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"[" * 200_000)
    with pytest.raises(ValueError, match="nested"):
        read_json(tmp_path / "file")
