"""A forger's hands: changes files of a run and signs what was changed, as anyone can who can write there."""

from collections.abc import Callable
import hashlib
import json
from pathlib import Path
import struct
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from fcritic.runs import checkpoint

GROUPS = ("agent", "rollout", "environments", "best")


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, the newest last."""
    return sorted((run / "checkpoints").glob("step-*"))


def newest(run: Path) -> Path:
    """The newest checkpoint."""
    return checkpoints(run)[-1]


def foreign_code(planted: Path) -> bytes:
    """A pickle, written by hand since the product has no pickle, that touches a file when it is read."""
    command = f"touch {planted}".encode()
    return b"cposix\nsystem\n(S'" + command + b"'\ntR."


def header(text: bytes) -> bytes:
    """The beginning of a safetensors file."""
    return struct.pack("<Q", len(text)) + text


def write_manifest(folder: Path, manifest: dict) -> None:
    """A manifest that matches its own hash."""
    manifest["sha256"] = checkpoint._manifest_hash(manifest)
    (folder / checkpoint.MANIFEST).write_text(json.dumps(manifest))


def change_manifest(folder: Path, change: Callable[[dict], object]) -> None:
    """Changes the manifest of a checkpoint."""
    manifest = json.loads((folder / checkpoint.MANIFEST).read_bytes())
    change(manifest)
    write_manifest(folder, manifest)


def forge(folder: Path, group: str, data: bytes) -> None:
    """Puts data in the place of a group, with a manifest that vouches for it."""
    (folder / f"{group}.safetensors").write_bytes(data)
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    change_manifest(folder, lambda manifest: manifest["groups"].update({group: entry}))


def change_arrays(folder: Path, group: str, change: Callable[[str, np.ndarray], np.ndarray]) -> None:
    """Changes the arrays of a group by name, and signs."""
    path = folder / f"{group}.safetensors"
    arrays = {name: np.array(array) for name, array in load_file(path).items()}
    save_file({name: np.ascontiguousarray(change(name, array)) for name, array in arrays.items()}, path)
    forge(folder, group, path.read_bytes())


def change_config(run: Path, name: str, value: Any) -> None:
    """Sets a field of the configuration, whose name may have dots."""
    config = json.loads((run / "config.json").read_bytes())
    inner = config
    *above, last = name.split(".")
    for part in above:
        inner = inner[part]
    inner[last] = value
    (run / "config.json").write_text(json.dumps(config))


def sign(folder: Path) -> None:
    """Makes a checkpoint's manifest vouch for whatever is in its files."""
    path = folder / checkpoint.MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        for group, entry in manifest["groups"].items():
            data = (folder / f"{group}.safetensors").read_bytes()
            entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        write_manifest(folder, manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # nothing left to sign
        return
