"""Checkpoints that cannot run code, cannot be half written and say so when they are damaged.

A checkpoint is a folder with one safetensors file per group of arrays (agent, rollout, environments, best) and a
``manifest.json`` with sizes and hashes. It is written under a temporary name, forced to disk and renamed, so a
folder with the final name is always whole. Nothing here unpickles anything.
"""

from collections.abc import Iterable, Mapping
import contextlib
import errno
import hashlib
import json
import os
import re
from typing import Any

import numpy as np

from fcritic.disk import NotPlain, Place, hash_of
from fcritic.errors import CheckpointError, UsageError, cannot_write
from fcritic.runs import tensors
from fcritic.runs.tensors import Arrays
from fcritic.runs.trees import size_of, verify_match

FORMAT = 2
MANIFEST = "manifest.json"
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
STEP_NAME = re.compile(r"step-[0-9]{12}")
"""The name of a checkpoint among others of a run: its frame."""

LARGE = 2**30
"""Bytes of a file from which on one made of holes, which costs its maker nothing, would take long to read."""

UNKNOWN_LIMIT = 2**30
"""Bytes of a group whose size the configuration does not give, such as the states of simulators."""


# Writing


def save(directory: str | os.PathLike | Place, groups: Mapping[str, Arrays], facts: dict) -> None:
    """Write a checkpoint at ``directory`` so that it is there whole or not at all.

    ``facts`` is what JSON can hold. A failed write takes its temporary folder away, leaves every
    earlier checkpoint as it was and raises a ``UsageError`` of one line.
    """
    directory = Place.of(directory)
    _check_names(groups)
    # All that can fail without the disk fails here, before it is touched.
    files = {f"{group}.safetensors": tensors.encode(arrays) for group, arrays in groups.items()}
    manifest = _manifest(files, json.loads(json.dumps(facts)))
    temporary = directory.parent / f"{directory.name}.tmp-{os.getpid()}"
    try:
        directory.parent.make()
        temporary.remove()  # of a dead process that had our number
        temporary.make_new()
        for name, data in (files | {MANIFEST: manifest}).items():
            (temporary / name).write_new(data)
        temporary.sync()
        _move_into_place(temporary, directory)
    except OSError as error:
        raise cannot_write("checkpoint", directory.path, error) from error
    finally:  # after a success there is nothing left of it
        with contextlib.suppress(OSError):
            temporary.remove()


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


def _move_into_place(temporary: Place, directory: Place) -> None:
    folder, replaced = directory.parent, directory.parent / f"{temporary.name}-replaced"
    if directory.status() is not None:
        is_ours = directory.is_folder() and (STEP_NAME.fullmatch(directory.name) or (directory / MANIFEST).status())
        if not is_ours:
            raise FileExistsError(errno.EEXIST, "something that is not a checkpoint has that name")
        directory.rename(replaced.name)  # a kill right after this is undone by ``retention.sweep``
    try:
        temporary.rename(directory.name)
    except OSError:
        if replaced.status() is not None:
            replaced.rename(directory.name)
        raise
    folder.sync()
    with contextlib.suppress(OSError):
        replaced.remove()


# Reading


def load(
    directory: str | os.PathLike | Place,
    groups: Iterable[str] | None = None,
    like: Mapping[str, Any] | None = None,
) -> tuple[dict[str, dict[str, np.ndarray]], dict]:
    """The groups of arrays (all of them, or those named) and the facts of a checkpoint.

    ``like`` holds, by group, the tree that the arrays are meant to fill. Manifest, sizes, hashes, names, types and
    shapes are verified before memory for an array is asked for; any fault is a ``CheckpointError``.
    """
    directory = Place.of(directory)
    wanted = None if groups is None else list(groups)
    most = {} if like is None else {group: _most(like.get(group)) for group in wanted or ()}
    manifest = verify(directory, wanted, most)
    names = manifest["groups"] if wanted is None else wanted
    return {group: _read_group(directory, group, (like or {}).get(group)) for group in names}, manifest["facts"]


def _most(like: Any) -> int:
    """Bytes that a file with the arrays of a tree may have."""
    return UNKNOWN_LIMIT if like is None else size_of(like) + tensors.HEADER_LIMIT


def verify(
    directory: str | os.PathLike | Place, groups: Iterable[str] | None = None, most: Mapping[str, int] | None = None
) -> dict:
    """The manifest of a checkpoint, once all of it (or the groups named) proves to be what was saved.

    `most` holds the bytes that a group's file may have, so that a larger one is not even read.
    """
    directory = Place.of(directory)
    try:
        manifest = _read_manifest(directory)
        for group in manifest["groups"] if groups is None else groups:
            if group not in manifest["groups"]:
                raise CheckpointError(f"{directory} has no group {group}; it is of another kind of run")
            _verify_file(directory, f"{group}.safetensors", manifest["groups"][group], (most or {}).get(group))
    except OSError as error:
        raise damaged(directory, error) from error
    return manifest


def damaged(directory: Place, why: object) -> CheckpointError:
    """The error for a checkpoint that cannot be used, in one line, whatever a library had to say."""
    if isinstance(why, OSError) and why.strerror:
        why = why.strerror if isinstance(why, NotPlain) else f"{why.filename or 'a file'}: {why.strerror}"
    text = " ".join(str(why).split())
    return CheckpointError(f"checkpoint {directory} cannot be used: {text}; take an earlier one or delete it")


def _read_manifest(directory: Place) -> dict:
    try:
        manifest = (directory / MANIFEST).read_json()
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


def _verify_file(directory: Place, name: str, entry: dict, most: int | None) -> None:
    with (directory / name).reading(most) as file:
        status = os.fstat(file.fileno())
        size = status.st_size
        if size != entry["bytes"]:
            raise damaged(directory, f"{name} has {size} bytes, not {entry['bytes']}")
        if size > LARGE and 512 * status.st_blocks < size // 64:
            raise damaged(directory, f"{name} has {size} bytes, nearly all of them holes")
        if hash_of(file).hexdigest() != entry["sha256"]:
            raise damaged(directory, f"{name} does not match its hash")


def _read_group(directory: Place, group: str, like: Any) -> dict[str, np.ndarray]:
    check = None if like is None else lambda description: verify_match(like, description)
    try:
        with (directory / f"{group}.safetensors").reading() as file:
            return tensors.decode(file, check)
    except CheckpointError:  # of another configuration: it says so itself
        raise
    except (OSError, ValueError, UsageError) as error:
        raise damaged(directory, f"{group}.safetensors: {error}") from error
