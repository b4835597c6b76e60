"""Checkpoints that cannot run code, cannot be half written and say so when they are damaged.

A checkpoint is a folder with one safetensors file per group of arrays (agent, replay, environments)
and a ``manifest.json`` with sizes and hashes. It is written under a temporary name, forced to disk and
renamed, so a folder with the final name is always whole. Nothing here unpickles anything.
"""

from collections.abc import Iterable, Mapping
import errno
import hashlib
import json
import os
from pathlib import Path
import re
import shutil
import stat
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from fcritic.errors import CheckpointError, cannot_write
from fcritic.trees import Arrays

FORMAT = 1
MANIFEST = "manifest.json"
_MANIFEST_LIMIT = 64 * 2**20  # bytes; a manifest holds facts, not data
_DTYPES = {"bool", "float16", "bfloat16", "float32", "float64", "complex64"} | {
    f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)
}
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
STEP_NAME = re.compile(r"step-[0-9]{12}")
"""The name of a checkpoint among others of a run: its frame."""


# Writing


def save(directory: str | Path, groups: Mapping[str, Arrays], facts: dict) -> None:
    """Write a checkpoint at ``directory`` so that it is there whole or not at all.

    ``facts`` is what JSON can hold. A failed write takes its temporary folder away, leaves every
    earlier checkpoint as it was and raises a ``UsageError`` of one line.
    """
    directory = Path(directory)
    _check_names(groups)
    facts = json.loads(json.dumps(facts))  # fails here, before the disk is touched, if it is no JSON
    temporary = directory.with_name(f"{directory.name}.tmp-{os.getpid()}")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        if temporary.exists():  # of a dead process that had our number
            shutil.rmtree(temporary)
        temporary.mkdir()
        _fill(temporary, groups, facts)
        _move_into_place(temporary, directory)
    except OSError as error:
        raise cannot_write("checkpoint", directory, error) from error
    finally:  # after a success there is nothing left of it
        shutil.rmtree(temporary, ignore_errors=True)


def _check_names(groups: Mapping[str, Arrays]) -> None:
    for group, arrays in groups.items():
        if not _GROUP.fullmatch(group):
            raise ValueError(f"{group!r} cannot name a group: use letters, digits, - and _")
        for name, array in arrays.items():
            if name == "__metadata__":
                raise ValueError("an array cannot be named __metadata__: safetensors keeps that name")
            if array.dtype.name not in _DTYPES:
                raise TypeError(f"{group}: {name} has dtype {array.dtype}, which safetensors cannot hold")


def _fill(folder: Path, groups: Mapping[str, Arrays], facts: dict) -> None:
    entries = {}
    for group, arrays in groups.items():
        path = folder / f"{group}.safetensors"
        # safetensors copies raw memory, so a strided view would be written wrongly.
        whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        try:
            save_file(whole, path)
        except SafetensorError as error:
            raise _as_os_error(error) from error
        with path.open("rb") as file:
            os.fsync(file.fileno())
            entries[group] = {"bytes": path.stat().st_size, "sha256": _hash(file)}
    manifest = {"format": FORMAT, "facts": facts, "groups": entries}
    with (folder / MANIFEST).open("w", encoding="utf-8") as file:
        json.dump(manifest | {"sha256": _manifest_hash(manifest)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    fsync_folder(folder)


def _as_os_error(error: SafetensorError) -> OSError:
    number = re.search(r"os error ([0-9]+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))


def _move_into_place(temporary: Path, directory: Path) -> None:
    replaced = directory.with_name(f"{temporary.name}-replaced")
    if os.path.lexists(directory):
        is_ours = STEP_NAME.fullmatch(directory.name) or (directory / MANIFEST).exists()
        if directory.is_symlink() or not directory.is_dir() or not is_ours:
            raise FileExistsError(errno.EEXIST, "something that is no checkpoint has that name")
        os.rename(directory, replaced)  # a kill right after this is undone by ``retention.sweep``
    try:
        os.rename(temporary, directory)
    except OSError:
        if replaced.exists():
            os.rename(replaced, directory)
        raise
    fsync_folder(directory.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def fsync_folder(folder: Path) -> None:
    """Force the names in a folder to disk: without it a rename may be lost with the power."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _hash(file: Any) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _manifest_hash(manifest: dict) -> str:
    content = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# Reading


def load(directory: str | Path, groups: Iterable[str] | None = None) -> tuple[dict[str, dict], dict]:
    """The groups of arrays (all of them, or those named) and the facts of a checkpoint.

    Manifest, sizes and hashes are verified before a tensor is read; any fault is a ``CheckpointError``.
    """
    directory = Path(directory)
    wanted = None if groups is None else list(groups)
    manifest = verify(directory, wanted)
    names = manifest["groups"] if wanted is None else wanted
    return {group: _read_group(directory, group) for group in names}, manifest["facts"]


def verify(directory: str | Path, groups: Iterable[str] | None = None) -> dict:
    """The manifest of a checkpoint, once all of it (or the groups named) proves to be what was saved."""
    directory = Path(directory)
    try:
        manifest = _read_manifest(directory)
        for group in manifest["groups"] if groups is None else groups:
            if group not in manifest["groups"]:
                raise CheckpointError(f"{directory} has no group {group}; it is of another kind of run")
            _verify_file(directory, f"{group}.safetensors", manifest["groups"][group])
    except OSError as error:
        raise _damaged(directory, f"{error.filename or 'a file'}: {error.strerror}") from error
    return manifest


def _damaged(directory: Path, why: str) -> CheckpointError:
    why = " ".join(why.split())  # one line, whatever a library had to say
    return CheckpointError(f"checkpoint {directory} cannot be used: {why}; take an earlier one or delete it")


def _check_plain(directory: Path, path: Path, is_kind: Any) -> os.stat_result:
    status = os.lstat(path)  # not stat: a link could lead anywhere
    if not is_kind(status.st_mode):
        raise _damaged(directory, f"{path.name} is a link or not a plain file or folder")
    return status


def _read_manifest(directory: Path) -> dict:
    _check_plain(directory, directory, stat.S_ISDIR)
    path = directory / MANIFEST
    if _check_plain(directory, path, stat.S_ISREG).st_size > _MANIFEST_LIMIT:
        raise _damaged(directory, f"{MANIFEST} is too large to be one")
    try:
        manifest = json.loads(path.read_bytes())
        if manifest["format"] != FORMAT:
            raise _damaged(directory, f"format {manifest['format']!r:.20}, this version reads {FORMAT}")
        if manifest["sha256"] != _manifest_hash(manifest):
            raise _damaged(directory, f"{MANIFEST} does not match its own hash")
        sound = isinstance(manifest["facts"], dict) and all(
            _GROUP.fullmatch(group) and entry.keys() == {"bytes", "sha256"}
            for group, entry in manifest["groups"].items()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(directory, f"{MANIFEST} cannot be read") from error
    if not sound:
        raise _damaged(directory, f"{MANIFEST} names files that no checkpoint has")
    return manifest


def _verify_file(directory: Path, name: str, entry: dict) -> None:
    size = _check_plain(directory, directory / name, stat.S_ISREG).st_size
    if size != entry["bytes"]:
        raise _damaged(directory, f"{name} has {size} bytes, not {entry['bytes']}")
    with (directory / name).open("rb") as file:
        if _hash(file) != entry["sha256"]:
            raise _damaged(directory, f"{name} does not match its hash")


def _read_group(directory: Path, group: str) -> dict[str, np.ndarray]:
    try:
        return load_file(directory / f"{group}.safetensors", backend="pread")
    except Exception as error:  # a forged header can fail in many ways, all of them mean the same
        raise _damaged(directory, f"{group}.safetensors: {error}") from error
