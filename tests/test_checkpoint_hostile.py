"""Checkpoints that somebody forged: refused with a typed error, and nothing in them runs."""

import hashlib
import json
import os
from pathlib import Path
import pickle
import random
import struct

import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from fcritic.errors import CheckpointError
from fcritic.runs import checkpoint


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
    for name in ("../secret", "/secret", "a/../../secret"):
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
        with pytest.raises(CheckpointError, match=r"is a link|not a plain file"):
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
