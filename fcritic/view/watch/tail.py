"""A file of lines that grows: every look takes only what was appended since the last one.

The file may be a stranger's. It may be cut and written anew, end in half a line or hold a line without an end;
whatever it is, a look takes one block of memory.
"""

import os
import stat

from fcritic.disk import Place
from fcritic.runs import METRICS_LIMIT

BLOCK = 2**20
"""Bytes that are read at a time."""

LINE_LIMIT = 2**18
"""Bytes of a line; longer ones are passed over."""

MARK = 256
"""Bytes before the place reached that must still be the same, or the file was written anew."""


class Cursor:
    """How far somebody has read."""

    def __init__(self) -> None:
        self.offset = 0
        """The end of the last whole line that was taken."""
        self.seen = 0
        """The size up to which there is nothing more to take: half a line may lie between the two."""
        self.passing = False
        """Inside a line that is too long, whose end is being looked for."""
        self.passed = 0
        """Lines that were too long."""


class Tail:
    """A file that several readers follow, each with a cursor of its own."""

    def __init__(self, path: str | os.PathLike | Place):
        self._place = Place.of(path)
        self.size, self.changed = 0, 0.0
        self.bytes_read = 0
        self.too_large = False
        """More than any run writes: it is not read at all."""
        self._identity: tuple[int, int] | None = None
        self._reached, self._mark = 0, b""

    def look(self) -> bool:
        """Looks at the file without reading it; true if it was cut or replaced and has to be read anew."""
        try:
            status = self._place.status()
        except OSError:
            status = None
        self.too_large = status is not None and status.st_size > METRICS_LIMIT
        if status is None or not stat.S_ISREG(status.st_mode) or self.too_large:
            gone, self._identity, self.size = self._identity is not None, None, 0
            self._reached, self._mark = 0, b""
            return gone
        identity = (status.st_dev, status.st_ino)
        touched = (status.st_mtime, status.st_size) != (self.changed, self.size)
        same = self._identity in (None, identity) and status.st_size >= self._reached
        if same and touched:
            same = self._mark_is_there()
        self._identity, self.size, self.changed = identity, status.st_size, status.st_mtime
        if not same:
            self._reached, self._mark = 0, b""
        return not same

    def next(self, cursor: Cursor) -> bytes | None:
        """The next whole lines, of at most a block; none where there is nothing new."""
        if cursor.seen >= self.size:
            return None
        data = self._read(cursor.offset, min(BLOCK, self.size - cursor.offset))
        if not data:
            return None
        first, last, reached = 0, data.rfind(b"\n") + 1, cursor.offset + len(data)
        if cursor.passing:
            first = data.find(b"\n") + 1
            cursor.passing = first == 0
        elif not last and len(data) >= LINE_LIMIT:
            cursor.passing, cursor.passed = True, cursor.passed + 1
        taken = len(data) if cursor.passing else last
        cursor.offset += taken
        cursor.seen = reached if reached >= self.size else cursor.offset
        if cursor.offset > self._reached:
            before = self._mark[: len(self._mark) - (self._reached - (cursor.offset - taken))]  # without overlap
            self._reached, self._mark = cursor.offset, (before + data[:taken])[-MARK:]
        return data[first:last]

    def last_lines(self, most: int = 2**16) -> list[bytes]:
        """Whole lines at the very end, newest first, before all the others are read."""
        lines = self._read(max(self.size - most, 0), most).split(b"\n")
        return lines[-2 : 0 if self.size > most else None : -1]

    def _mark_is_there(self) -> bool:
        """Whether the bytes before the place reached are unchanged; a training that went back writes others."""
        return not self._mark or self._read(self._reached - len(self._mark), len(self._mark)) == self._mark

    def _read(self, offset: int, most: int) -> bytes:
        try:
            with self._place.reading() as file:
                file.seek(offset)
                data = file.read(most)
        except OSError:  # gone, or no plain file
            return b""
        self.bytes_read += len(data)
        return data
