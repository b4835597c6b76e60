"""The few ways in which this package touches a disk: whole or not at all, and never more than was expected.

Writing: a file is forced to disk before its name exists, so a kill or a power cut leaves the old or the new.
Reading: only plain files of a size that was agreed on, since a name may be a link to anything.
"""

import hashlib
import json
import os
from pathlib import Path
import stat
from typing import IO, Any

from fcritic.errors import UsageError

JSON_LIMIT = 4 * 2**20
"""Bytes of a JSON file of ours. They hold facts, not data, and a parser needs twenty times their size."""


class NotPlain(OSError):
    """A link, a pipe or a folder where a plain file was expected, or a file that is too large."""


def write_all(file: IO[bytes], data: bytes | memoryview) -> None:
    """All of the data to an unbuffered file; the operating system may take it in parts."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def write_synced(path: Path, data: bytes) -> None:
    """A new file, on disk when this returns (its name only after `sync_folder`)."""
    with path.open("xb", buffering=0) as file:
        write_all(file, data)
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """Puts a file in the place of another at once, so that a kill leaves the old content or the new."""
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    temporary.unlink(missing_ok=True)  # of a dead process that had our number
    try:
        write_synced(temporary, data)
        os.replace(temporary, path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Forces the names in a folder to disk: without it a rename may be lost with the power."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_plain(path: Path, most: int | None = None) -> IO[bytes]:
    """A file to read, unbuffered, if it is a plain one of at most so many bytes; otherwise `NotPlain`.

    Checked on the open file, so that nothing can be put in its place in between.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise NotPlain(f"{path.name} is a link, not a plain file") from error
        raise
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and (most is None or status.st_size <= most):
        return os.fdopen(handle, "rb", buffering=0)
    os.close(handle)
    if not stat.S_ISREG(status.st_mode):
        raise NotPlain(f"{path.name} is not a plain file")
    raise NotPlain(f"{path.name} has {status.st_size:,} bytes, more than the {most:,} expected")


def read_exactly(file: IO[bytes], into: memoryview) -> None:
    """Fills memory (of bytes) from a file; a shorter one is `NotPlain`."""
    rest = into
    while rest:
        got = file.readinto(rest)
        if not got:
            raise NotPlain("the file ended early")
        rest = rest[got:]


def read_json(path: Path) -> Any:
    """The content of a JSON file of ours; raises `OSError` or `ValueError`, never takes much memory."""
    with open_plain(path, JSON_LIMIT) as file:
        try:
            return json.loads(file.readall())
        except RecursionError:
            raise ValueError("nested too deeply") from None


def hash_of(file: IO[bytes], size: int | None = None) -> Any:
    """The SHA-256 state after the first `size` bytes of a file, or all of it."""
    state, left = hashlib.sha256(), size
    while left is None or left > 0:
        data = file.read(2**20 if left is None else min(left, 2**20))
        if not data:
            break
        state.update(data)
        left = None if left is None else left - len(data)
    return state


def require_memory(size: int, what: str) -> None:
    """Refuses what would not fit into the memory that is free, before it is asked for."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    except (OSError, ValueError):  # not Linux: let the allocation itself tell
        return
    if size > free:
        raise UsageError(f"{what} needs {size / 2**30:,.1f} GiB of memory, {free / 2**30:,.1f} are free")
