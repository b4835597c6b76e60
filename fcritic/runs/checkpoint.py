"""Checkpoints that cannot run code, cannot be half written and say so when they are damaged.

A checkpoint is a folder with one safetensors file per group of arrays (agent, rollout, environments, best) and a
``manifest.json`` with sizes and hashes. It is written under a temporary name, forced to disk and renamed, so a
folder with the final name is always whole. Nothing here unpickles anything.
"""

from collections.abc import Iterable, Mapping
import errno
import hashlib
import json
import os
from pathlib import Path
import re
import shutil
from typing import Any

import numpy as np

from fcritic.disk import NotPlain, hash_of, open_plain, read_json, sync_folder, write_synced
from fcritic.errors import CheckpointError, UsageError, cannot_write
from fcritic.runs import tensors
from fcritic.runs.tensors import Arrays
from fcritic.runs.trees import verify_match

FORMAT = 2
MANIFEST = "manifest.json"
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
    # All that can fail without the disk fails here, before it is touched.
    files = {f"{group}.safetensors": tensors.encode(arrays) for group, arrays in groups.items()}
    manifest = _manifest(files, json.loads(json.dumps(facts)))
    temporary = directory.with_name(f"{directory.name}.tmp-{os.getpid()}")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        if temporary.exists():  # of a dead process that had our number
            shutil.rmtree(temporary)
        temporary.mkdir()
        for name, data in (files | {MANIFEST: manifest}).items():
            write_synced(temporary / name, data)
        sync_folder(temporary)
        _move_into_place(temporary, directory)
    except OSError as error:
        raise cannot_write("checkpoint", directory, error) from error
    finally:  # after a success there is nothing left of it
        shutil.rmtree(temporary, ignore_errors=True)


def _check_names(groups: Mapping[str, Arrays]) -> None:
    for group, arrays in groups.items():
        if not _GROUP.fullmatch(group):
            raise ValueError(f"{group!r} cannot name a group: use letters, digits, - and _")
        if "__metadata__" in arrays:
            raise ValueError("an array cannot be named __metadata__: safetensors keeps that name")


def _manifest(files: Mapping[str, bytes], facts: dict) -> bytes:
    entries = {
        name.removesuffix(".safetensors"): {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    }
    manifest = {"format": FORMAT, "facts": facts, "groups": entries}
    return json.dumps(manifest | {"sha256": _manifest_hash(manifest)}, indent=1).encode()


def _manifest_hash(manifest: dict) -> str:
    content = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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
    sync_folder(directory.parent)
    shutil.rmtree(replaced, ignore_errors=True)


# Reading


def load(
    directory: str | Path, groups: Iterable[str] | None = None, like: Mapping[str, Any] | None = None
) -> tuple[dict[str, dict[str, np.ndarray]], dict]:
    """The groups of arrays (all of them, or those named) and the facts of a checkpoint.

    ``like`` holds, by group, the tree that the arrays are meant to fill. Manifest, sizes, hashes, names, types and
    shapes are verified before memory for an array is asked for; any fault is a ``CheckpointError``.
    """
    directory = Path(directory)
    wanted = None if groups is None else list(groups)
    manifest = verify(directory, wanted)
    names = manifest["groups"] if wanted is None else wanted
    return {group: _read_group(directory, group, (like or {}).get(group)) for group in names}, manifest["facts"]


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
        raise damaged(directory, error) from error
    return manifest


def damaged(directory: Path, why: object) -> CheckpointError:
    """The error for a checkpoint that cannot be used, in one line, whatever a library had to say."""
    if isinstance(why, OSError) and why.strerror:
        why = f"{why.filename or 'a file'}: {why.strerror}"
    text = " ".join(str(why).split())
    return CheckpointError(f"checkpoint {directory} cannot be used: {text}; take an earlier one or delete it")


def _read_manifest(directory: Path) -> dict:
    if directory.is_symlink() or not directory.is_dir():
        raise NotPlain(f"{directory.name} is a link or not a folder")
    try:
        manifest = read_json(directory / MANIFEST)
        if manifest["format"] != FORMAT:
            raise damaged(directory, f"format {manifest['format']!r:.20}, this version reads {FORMAT}")
        if manifest["sha256"] != _manifest_hash(manifest):
            raise damaged(directory, f"{MANIFEST} does not match its own hash")
        sound = isinstance(manifest["facts"], dict) and all(
            _GROUP.fullmatch(group) and entry.keys() == {"bytes", "sha256"} and type(entry["bytes"]) is int
            for group, entry in manifest["groups"].items()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(directory, f"{MANIFEST} cannot be read") from error
    if not sound:
        raise damaged(directory, f"{MANIFEST} names files that no checkpoint has")
    return manifest


def _verify_file(directory: Path, name: str, entry: dict) -> None:
    with open_plain(directory / name) as file:
        size = os.fstat(file.fileno()).st_size
        if size != entry["bytes"]:
            raise damaged(directory, f"{name} has {size} bytes, not {entry['bytes']}")
        if hash_of(file).hexdigest() != entry["sha256"]:
            raise damaged(directory, f"{name} does not match its hash")


def _read_group(directory: Path, group: str, like: Any) -> dict[str, np.ndarray]:
    check = None if like is None else lambda description: verify_match(like, description)
    try:
        with open_plain(directory / f"{group}.safetensors") as file:
            return tensors.decode(file, check)
    except CheckpointError:  # of another configuration: it says so itself
        raise
    except (OSError, ValueError, UsageError) as error:
        raise damaged(directory, f"{group}.safetensors: {error}") from error
