"""Which runs lie below a folder, and in which of them somebody trains. Follows no link and writes nothing."""

from collections.abc import Iterator
import fcntl
import os
from pathlib import Path

from fcritic.runs.layout import CONFIG, LOCK, METRICS, VERSIONS

MOST_RUNS = 2000
MOST_FOLDERS = 20_000
DEPTH = 8
"""Folders below folders in which runs are looked for."""


def runs(root: Path) -> dict[str, Path]:
    """Name and path of every run below a folder, or of the folder itself if it is one; at most `MOST_RUNS`.

    A name is the path from the root. A run's own folders are not searched.
    """
    found: dict[str, Path] = {}
    todo, looked = [(root, 0)], 0
    while todo and looked < MOST_FOLDERS and len(found) < MOST_RUNS:
        folder, depth = todo.pop()
        looked += 1
        names, folders = _content(folder)
        if CONFIG in names and names & {METRICS, LOCK, VERSIONS}:
            found[_name(folder, root)] = folder
        elif depth < DEPTH:
            todo += [(folder / name, depth + 1) for name in sorted(folders, reverse=True)]
    return found


def _content(folder: Path) -> tuple[set[str], list[str]]:
    """The plain files and the folders in a folder; links are neither."""
    files, folders = set(), []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    files.add(entry.name)
                elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    folders.append(entry.name)
    except OSError:  # gone, or not ours to read
        pass
    return files, folders


def _name(folder: Path, root: Path) -> str:
    """Text whatever the bytes are: a name need not be UTF-8."""
    relative = folder.relative_to(root)
    shown = folder.resolve().name if relative == Path(".") else str(relative)
    return os.fsencode(shown).decode("utf-8", "replace")


class Locks:
    """The locks that are held at one moment. The kernel lists them, so that looking never takes one away."""

    def __init__(self) -> None:
        try:
            self._held: set[int] | None = set(_inodes(Path("/proc/locks").read_text(encoding="ascii")))
        except OSError:  # not Linux
            self._held = None

    def holds(self, folder: Path) -> bool:
        """Whether a process trains in this run."""
        path = folder / LOCK
        try:
            if self._held is not None:
                return os.stat(path, follow_symlinks=False).st_ino in self._held
            return _cannot_be_locked(path)
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


def _cannot_be_locked(path: Path) -> bool:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)  # gives the lock back
    return False
