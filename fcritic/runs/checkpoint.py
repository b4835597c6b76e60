"""Checkpoints that cannot run code, cannot be half written and say so when they are damaged.

A checkpoint is a folder with one safetensors file per group of arrays (agent, rollout, environments, best) and a
``manifest.json`` with sizes and hashes. It is written under a temporary name, forced to disk and renamed, so a
folder with the final name is always whole. Nothing here unpickles anything. Further down: which of a run's
checkpoints is the newest, which may go, and what killed processes have left.
"""

from collections.abc import Callable, Iterable, Mapping
import contextlib
import errno
import hashlib
import io
import json
import os
import re
from typing import Any, TypeVar
import warnings

import numpy as np

from fcritic.disk import NotPlain, Place, hash_of, require_memory
from fcritic.errors import CheckpointError, UsageError, WithoutReplay, writing
from fcritic.runs import arrays
from fcritic.runs.arrays import Arrays

Read = TypeVar("Read")

FORMAT = 2
MANIFEST = "manifest.json"
_LEFTOVER = re.compile(r"(?P<directory>.+)\.tmp-[0-9]+(?P<replaced>-replaced)?")
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
STEP_NAME = re.compile(r"step-[0-9]{12}")
"""The name of a checkpoint among others of a run: its frame."""

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
    files = {f"{group}.safetensors": arrays.encode(content) for group, content in groups.items()}
    manifest = _manifest(files, json.loads(json.dumps(facts)))
    with writing("checkpoint", directory.path), directory.new_beside() as temporary:
        for name, data in (files | {MANIFEST: manifest}).items():
            (temporary / name).write_new(data)
        temporary.sync()
        _move_into_place(temporary, directory)


def _check_names(groups: Mapping[str, Arrays]) -> None:
    for group, content in groups.items():
        if not _GROUP.fullmatch(group):
            raise ValueError(f"{group!r} cannot name a group: use letters, digits, - and _")
        if "__metadata__" in content:
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
        directory.rename(replaced.name)  # a kill right after this is undone by `sweep`
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

    ``like`` holds, by group, the tree that the arrays are meant to fill: a file with more bytes than these take is
    not read, and names, types and shapes are verified. A file is read once; any fault is a ``CheckpointError``.
    """
    directory = Place.of(directory)
    try:
        manifest = _read_manifest(directory)
        found = {}
        for group in manifest["groups"] if groups is None else groups:
            with _open_group(directory, manifest, group, None if like is None else _most(like.get(group))) as file:
                require_memory(2 * manifest["groups"][group]["bytes"], "it")
                data = file.readall()
            if hashlib.sha256(data).hexdigest() != manifest["groups"][group]["sha256"]:
                raise damaged(directory, f"{group}.safetensors does not match its hash")
            found[group] = arrays.decode(data)
            if like is not None and group in like:
                arrays.verify_match(like[group], found[group])
    except CheckpointError:  # says itself what is wrong
        raise
    except (OSError, ValueError, UsageError) as error:
        raise damaged(directory, error) from error
    return found, manifest["facts"]


def _most(like: Any) -> int:
    return UNKNOWN_LIMIT if like is None else arrays.largest(like)


def verify(directory: str | os.PathLike | Place, groups: Iterable[str] | None = None) -> dict:
    """Returns the manifest of a checkpoint, once all of it (or the groups named) proves to be what was saved."""
    directory = Place.of(directory)
    try:
        manifest = _read_manifest(directory)
        for group in manifest["groups"] if groups is None else groups:
            with _open_group(directory, manifest, group) as file:
                if hash_of(file).hexdigest() != manifest["groups"][group]["sha256"]:
                    raise damaged(directory, f"{group}.safetensors does not match its hash")
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


def _open_group(directory: Place, manifest: dict, group: str, most: int | None = None) -> io.FileIO:
    """The file of a group, open to read, if its size is the one that was saved."""
    if group not in manifest["groups"]:
        raise CheckpointError(f"{directory} has no group {group}; it is of another kind of run")
    file = (directory / f"{group}.safetensors").reading(most)
    found, size = os.fstat(file.fileno()).st_size, manifest["groups"][group]["bytes"]
    if found != size:
        file.close()
        raise damaged(directory, f"{group}.safetensors has {found} bytes, not {size}")
    return file


# Folders of them


def latest(folder: str | os.PathLike | Place) -> Place | None:
    """The newest whole checkpoint ``step-<12 digits>`` in a folder; None where there is no checkpoint at all."""

    def whole(place: Place) -> Place:
        verify(place)
        return place

    return newest(folder, whole)


def newest(folder: str | os.PathLike | Place, read: Callable[[Place], Read]) -> Read | None:
    """What is read of the newest checkpoint that can be read; None where there is no checkpoint at all.

    One line warns of damaged ones that were passed over. If none can be read, that is an error.
    """
    faults: list[CheckpointError] = []
    for place in newest_first(folder):
        try:
            found = read(place)
        except CheckpointError as error:
            faults.append(error)
            continue
        if faults:
            warnings.warn(f"skipped: {in_words(faults)}", stacklevel=2)
        return found
    if faults:
        raise none_usable(folder, faults)
    return None


def none_usable(folder: str | os.PathLike | Place, faults: Iterable[CheckpointError]) -> CheckpointError:
    """The error for a folder in which no checkpoint is whole."""
    return CheckpointError(f"no checkpoint in {folder} can be used; the newest: {in_words(faults)}")


def in_words(faults: Iterable[CheckpointError]) -> str:
    """The fault of the newest checkpoint, and how many older ones cannot be used either."""
    first, *others = faults
    return f"{first} ({len(others):,} older ones cannot be used either)" if others else str(first)


def prune(folder: str | os.PathLike | Place, keep: int) -> list[dict]:
    """Remove what is older than the ``keep`` newest whole checkpoints; returns the manifests of these.

    Each of them is read back and verified first, so a damaged one never costs an older good one.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}; at least one checkpoint must stay")
    kept: list[dict] = []
    for place in newest_first(folder):
        if len(kept) < keep:
            with contextlib.suppress(CheckpointError):
                kept.append(verify(place))
        else:
            doomed = place.parent / f"{place.name}.tmp-{os.getpid()}"
            with writing("checkpoints", place.parent.path):
                doomed.remove()
                place.rename(doomed.name)  # so that a kill leaves no half-empty checkpoint
            with contextlib.suppress(OSError):
                doomed.remove()
    return kept


def set_aside(faults: Mapping[Place, CheckpointError]) -> None:
    """Rename checkpoints that cannot be continued, so that they are no longer counted among those to keep."""
    for place, fault in faults.items():
        aside = place.parent / f"{'weights' if isinstance(fault, WithoutReplay) else 'damaged'}-{place.name}"
        with writing("checkpoints", place.parent.path):
            aside.remove()
            place.rename(aside.name)


def sweep(folder: str | os.PathLike | Place) -> None:
    """Clear what killed processes left behind. Only for the one process that may write there."""
    folder = Place.of(folder)
    for entry in folder.entries().values():
        name = _LEFTOVER.fullmatch(entry.name)
        if name is None or not entry.is_dir(follow_symlinks=False):
            continue
        leftover = folder / entry.name
        if name["replaced"] and (folder / name["directory"]).status() is None:
            leftover.rename(name["directory"])  # killed between the two renames of a replacement
        else:
            with contextlib.suppress(OSError):
                leftover.remove()


def newest_first(folder: str | os.PathLike | Place) -> list[Place]:
    """All checkpoints of a folder, whole or not; none of a missing folder."""
    folder = Place.of(folder)
    return [folder / name for name in reversed(folder.entries()) if STEP_NAME.fullmatch(name)]
