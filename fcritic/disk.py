"""The one way in which this package touches the files of a run: inside its folder, and never through a link.

A run directory is data that anybody may have made. A `Place` is a path in it that is opened step by step from a
descriptor of the folder, so that no link, pipe or device on the way is followed, waited for or written to.
Writing: a file is forced to disk before its name exists, so a kill or a power cut leaves the old or the new.
Reading: only plain files of a size that was agreed on.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import io
import itertools
import json
import os
from pathlib import Path
import shutil
import stat
from typing import Any, Self

from fcritic.errors import UsageError

JSON_LIMIT = 4 * 2**20
"""Bytes of a JSON file of ours. They hold facts, not data, and a parser needs twenty times their size."""

LARGE = 2**30
"""Bytes of a file from which on one made of holes, which costs its maker nothing, would take long to read."""

MOST_NAMES = 100_000
"""Entries of a folder that are listed; a run has a few dozen."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotPlain(OSError, UsageError):
    """A link, a pipe, a device or a folder where a plain file was expected, or one that is too large."""

    def __init__(self, path: Path, why: str):
        super().__init__(errno.EEXIST, f"{path.name} {why}", str(path))
        self._line = f"{path} {why}"

    def __str__(self) -> str:
        return self._line


@dataclasses.dataclass(frozen=True)
class Place:
    """A file or folder below a root. The root may be reached through links, nothing below it may."""

    root: Path
    """A folder as its user named it."""
    parts: tuple[str, ...] = ()
    """Names below the root, one for each step."""

    @classmethod
    def of(cls, path: "str | os.PathLike | Place") -> Self:
        """The place at a path whose folder is trusted; the file itself must not be a link."""
        if isinstance(path, Place):
            return path
        path = Path(path)
        return cls(path) if path.name in ("", "..") else cls(path.parent, (path.name,))

    def __truediv__(self, name: str) -> "Place":
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"{name!r} is not the name of a file")
        return Place(self.root, (*self.parts, name))

    def __str__(self) -> str:
        return str(self.path)

    @property
    def path(self) -> Path:
        """The path, for messages: to open it would follow links."""
        return self.root.joinpath(*self.parts)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.name

    @property
    def parent(self) -> "Place":
        """The folder around a place below the root."""
        if not self.parts:
            raise ValueError(f"{self} is the root")
        return Place(self.root, self.parts[:-1])

    # Looking

    def status(self) -> os.stat_result | None:
        """What the file system says of it, of a link itself; None where nothing is there."""
        try:
            if not self.parts:
                return os.stat(self.root)
            with self.parent._opened() as folder:
                return os.stat(self.parts[-1], dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):  # also where the root is a file
            return None

    def is_folder(self) -> bool:
        """Whether a folder is there, and not a link to one."""
        status = self.status()
        return status is not None and stat.S_ISDIR(status.st_mode)

    def is_file(self) -> bool:
        """Whether a plain file is there, and not a link to one."""
        status = self.status()
        return status is not None and stat.S_ISREG(status.st_mode)

    def is_locked(self) -> bool:
        """Whether a process holds a lock on the plain file; False where it cannot be opened."""
        with contextlib.suppress(OSError), self.reading() as file:  # closing it gives our own lock back
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def entries(self) -> dict[str, os.DirEntry]:
        """What a folder holds, by name in order; nothing where there is no folder."""
        try:
            with self._opened() as folder, os.scandir(folder) as found:
                entries = list(itertools.islice(found, MOST_NAMES + 1))
                for entry in entries:
                    entry.is_symlink()  # notes its kind, which could not be looked up later
        except (FileNotFoundError, NotADirectoryError):
            return {}
        if len(entries) > MOST_NAMES:
            raise NotPlain(self.path, f"holds more than {MOST_NAMES:,} files")
        return {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.name)}

    # Reading

    def reading(self, most: int | None = None) -> io.FileIO:
        """The plain file, of at most so many bytes, open to read and unbuffered; otherwise `NotPlain`."""
        handle = self._open(os.O_RDONLY)
        status = os.fstat(handle)
        size, wrong = status.st_size, ""
        if most is not None and size > most:
            wrong = f"has {size:,} bytes, more than the {most:,} expected"
        elif size > LARGE and 512 * status.st_blocks < size // 64:
            wrong = f"has {size:,} bytes, nearly all of them holes"
        if wrong:
            os.close(handle)
            raise NotPlain(self.path, wrong)
        return os.fdopen(handle, "rb", buffering=0)

    def read(self, most: int) -> bytes:
        """The content of a plain file of at most so many bytes."""
        with self.reading(most) as file:
            return file.readall()

    def read_json(self) -> Any:
        """The content of a JSON file of ours; raises `OSError` or `ValueError`, never takes much memory."""
        try:
            return json.loads(self.read(JSON_LIMIT))
        except RecursionError:
            raise ValueError("nested too deeply") from None

    # Writing

    def make(self) -> None:
        """Makes the folder, and those around it, where they are missing."""
        self.root.mkdir(parents=True, exist_ok=True)
        for count in range(1, len(self.parts) + 1):
            place = Place(self.root, self.parts[:count])
            if not place.is_folder():
                try:
                    place.make_new()
                except NotPlain:
                    if not place.is_folder():  # another process may just have made it
                        raise

    def make_new(self) -> None:
        """Makes the folder; anything that has its name already is an error."""
        with self._around() as folder, contextlib.suppress(FileExistsError):
            os.mkdir(self.parts[-1], dir_fd=folder)
            return
        raise NotPlain(self.path, "is in the way of a folder")

    @contextlib.contextmanager
    def new_beside(self) -> Iterator["Place"]:
        """A new folder beside it, to be filled and given its name, so that it is there whole or not at all."""
        part = self.parent / f"{self.name}.tmp-{os.getpid()}"
        try:
            self.parent.make()
            part.remove()  # of a dead process that had our number
            part.make_new()
            yield part
        finally:  # after a success there is nothing left of it
            with contextlib.suppress(OSError):
                part.remove()

    def appending(self) -> io.FileIO:
        """The plain file, made where it is missing, open to be read, appended to and cut, and unbuffered.

        A second name of the file, perhaps outside of the run, would see its changes: that is refused, too.
        """
        handle = self._open(os.O_RDWR | os.O_APPEND | os.O_CREAT)
        if os.fstat(handle).st_nlink > 1:
            os.close(handle)
            raise NotPlain(self.path, "has a second name elsewhere (a hard link), put a copy in its place")
        return os.fdopen(handle, "a+b", buffering=0)

    def write_new(self, data: bytes) -> None:
        """A new file, on disk when this returns (its name only after `sync`)."""
        with self._around() as folder:
            handle = os.open(self.parts[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, 0o666, dir_fd=folder)
        with os.fdopen(handle, "wb", buffering=0) as file:
            write_all(file, data)
            os.fsync(file.fileno())

    def replace(self, data: bytes) -> None:
        """Puts a file in the place of another at once, so that a kill leaves the old content or the new."""
        self.require_plain()
        temporary = self.parent / f"{self.name}.tmp-{os.getpid()}"
        temporary.remove()  # of a dead process that had our number
        try:
            temporary.write_new(data)
            with self._around() as folder:
                os.replace(temporary.name, self.name, src_dir_fd=folder, dst_dir_fd=folder)
            self.parent.sync()
        finally:
            temporary.remove()

    def rename(self, name: str) -> None:
        """Gives it another name in the same folder."""
        with self._around() as folder:
            os.rename(self.name, (self.parent / name).name, src_dir_fd=folder, dst_dir_fd=folder)

    def remove(self) -> None:
        """Removes whatever is there: a folder with all in it, or a name; of a link the link alone."""
        if self.is_folder():
            try:
                with self._around() as folder:
                    shutil.rmtree(self.name, dir_fd=folder)
            except RecursionError:  # no run has such a thing
                raise NotPlain(self.path, "has more folders in each other than can be removed; remove it") from None
        elif self.status() is not None:
            with self._around() as folder, contextlib.suppress(FileNotFoundError):
                os.unlink(self.name, dir_fd=folder)

    def sync(self) -> None:
        """Forces the names in a folder to disk: without it a rename may be lost with the power."""
        with self._opened() as folder:
            os.fsync(folder)

    # Opening

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the folder."""
        handle = os.open(self.root, _FOLDER)
        try:
            for count, name in enumerate(self.parts, start=1):
                try:
                    below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
                except OSError as error:
                    if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                        raise
                    place = Place(self.root, self.parts[:count])
                    raise NotPlain(place.path, "is a link or not a folder") from error
                os.close(handle)
                handle = below
            yield handle
        finally:
            os.close(handle)

    def _around(self) -> contextlib.AbstractContextManager[int]:
        """A descriptor of the folder that it lies in."""
        return self.parent._opened()

    def _open(self, flags: int) -> int:
        """A descriptor of the plain file. Looked at before, since to open a device may do something, and after."""
        self.require_plain()
        with self._around() as folder:
            try:
                handle = os.open(self.parts[-1], flags | _PLAIN, 0o666, dir_fd=folder)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise NotPlain(self.path, "is a link, not a plain file") from error
                error.filename = str(self.path)
                raise
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise NotPlain(self.path, "is not a plain file")
        return handle

    def require_plain(self) -> None:
        """Refuses what is there, if it is not a plain file."""
        status = self.status()
        if status is not None and not stat.S_ISREG(status.st_mode):
            link = stat.S_ISLNK(status.st_mode)
            raise NotPlain(self.path, "is a link, not a plain file" if link else "is not a plain file")


def destination(out: str | None, default: Place) -> Place:
    """Where a command writes: in a run by default; a path that its user typed may be a link."""
    if not out:
        return default
    if Path(out).name in ("", ".."):
        raise UsageError(f"{out} is a folder; choose another --out")
    return Place.of(os.path.realpath(out) if os.path.islink(out) else out)


def open_plain(path: str | os.PathLike | Place, most: int | None = None) -> io.FileIO:
    """A plain file of at most so many bytes, open to read and unbuffered; otherwise `NotPlain`."""
    return Place.of(path).reading(most)


def read_json(path: str | os.PathLike | Place) -> Any:
    """The content of a JSON file of ours; raises `OSError` or `ValueError`, never takes much memory."""
    return Place.of(path).read_json()


def replace_file(path: str | os.PathLike | Place, data: bytes) -> None:
    """Puts a file in the place of another at once, so that a kill leaves the old content or the new."""
    Place.of(path).replace(data)


def write_all(file: io.FileIO, data: bytes | memoryview) -> None:
    """All of the data to an unbuffered file; the operating system may take it in parts."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def read_exactly(file: io.FileIO, into: memoryview) -> None:
    """Fills memory (of bytes) from a file; a shorter one is a `ValueError`."""
    rest = into
    while rest:
        got = file.readinto(rest)
        if not got:
            raise ValueError("the file ended early")
        rest = rest[got:]


def whole_lines(file: io.FileIO, longest: int) -> Iterator[bytes]:
    """The lines of a file that have an end, a block at a time; a longer one than allowed is a `ValueError`."""
    rest = b""
    while block := file.read(2**20):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
        if len(rest) > longest:
            raise ValueError(f"a line has more than {longest:,} bytes")


def hash_of(file: io.FileIO, size: int | None = None) -> Any:
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
    except (OSError, ValueError):  # not Linux: let the allocation itself fail
        return
    if size > free:
        raise UsageError(f"{what} needs {size / 2**30:,.1f} GiB of memory, {free / 2**30:,.1f} are free")
