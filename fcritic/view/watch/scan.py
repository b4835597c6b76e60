"""Which runs lie below a folder, and in which of them somebody trains. Follows no link and writes nothing."""

from collections.abc import Iterator
import fcntl
import os
from pathlib import Path

from fcritic.disk import Place
from fcritic.runs import CONFIG, LOCK, METRICS, VERSIONS

MOST_RUNS = 2000
MOST_FOLDERS = 20_000
DEPTH = 8
"""Folders below folders in which runs are looked for."""


def runs(root: Path) -> dict[str, Place]:
    """Name and path of every run below a folder, or of the folder itself if it is one; at most `MOST_RUNS`.

    A name is the path from the root. A run's own folders are not searched.
    """
    found: dict[str, Place] = {}
    todo, looked = [Place(root)], 0
    while todo and looked < MOST_FOLDERS and len(found) < MOST_RUNS:
        folder = todo.pop()
        looked += 1
        names, folders = _content(folder)
        if CONFIG in names and names & {METRICS, LOCK, VERSIONS}:
            found[_name(folder)] = folder
        elif len(folder.parts) < DEPTH:
            todo += [folder / name for name in reversed(folders)]
    return found


def _content(folder: Place) -> tuple[set[str], list[str]]:
    """The plain files and the folders in a folder; links are neither."""
    try:
        entries = folder.entries()
    except OSError:  # gone, or not ours to read
        return set(), []
    files = {name for name, entry in entries.items() if entry.is_file(follow_symlinks=False)}
    folders = [name for name, entry in entries.items() if entry.is_dir(follow_symlinks=False)]
    return files, [name for name in folders if not name.startswith(".")]


def _name(folder: Place) -> str:
    """Text whatever the bytes are: a name need not be UTF-8."""
    shown = os.path.join(*folder.parts) if folder.parts else folder.root.resolve().name
    return os.fsencode(shown).decode("utf-8", "replace")


class Locks:
    """The locks that are held at one moment. The kernel lists them, so that looking never takes one away."""

    def __init__(self) -> None:
        try:
            self._held: set[int] | None = set(_inodes(Path("/proc/locks").read_text(encoding="ascii")))
        except OSError:  # not Linux
            self._held = None

    def holds(self, folder: Place) -> bool:
        """Whether a process trains in this run."""
        lock = folder / LOCK
        try:
            if self._held is not None:
                status = lock.status()
                return status is not None and status.st_ino in self._held
            return _cannot_be_locked(lock)
        except OSError:
            return False


def _inodes(listing: str) -> Iterator[int]:
    """The inodes of `1: FLOCK  ADVISORY  WRITE 26555 fe:00:3088643 0 EOF`.

    Devices are left out: some file systems report others there than to a program.
    """
    for line in listing.splitlines():
        words = line.split()
        if "FLOCK" in words and "WRITE" in words:
            yield int(words[words.index("WRITE") + 2].rpartition(":")[2])


def _cannot_be_locked(lock: str | os.PathLike | Place) -> bool:
    with Place.of(lock).reading() as file:  # to close it gives the lock back
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
