"""Arrays that may be larger than memory: nameless temporary files, and files in NumPy's format."""

from collections.abc import Iterator
import io
import math
import os
import shutil
import tempfile
from tokenize import TokenError
from typing import IO, Any, NamedTuple

import numpy as np

from fcritic.disk import Place, require_memory, write_all
from fcritic.errors import UsageError

IN_MEMORY = 2**25
"""Bytes up to which an array is kept in memory."""

PIECE = 2**22
"""Bytes that are read or written in one go."""


LONGEST_HEADER = 10_000
"""Bytes of a header in NumPy's format."""

SMALL, DENSEST = 2**26, 200
"""Bytes up to which packed data may be anything, and from there on how many times the file's own they may be."""


class Header(NamedTuple):
    """What the beginning of an array in NumPy's format says."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Bytes of the numbers that follow."""
        return math.prod(self.shape) * self.dtype.itemsize


def require_room(size: int, what: str) -> None:
    """Refuses what would not fit where temporary files are kept, before any of it is asked for."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if size > free:
        raise UsageError(
            f"{what} need {size / 2**30:,.1f} GiB in {folder}, {free / 2**30:,.1f} are free; set TMPDIR to a "
            "folder with more room"
        )


def require_dense(size: int, file_size: int) -> None:
    """Refuses a small file that would unpack to a huge one with a `ValueError`: logged numbers are not alike."""
    if size > max(SMALL, DENSEST * file_size):
        raise ValueError(f"its {file_size:,} bytes would unpack to {size:,}")


def room(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns an array of zeros, in memory or, where it is large, in a file that is gone with the program."""
    size = math.prod(shape) * dtype.itemsize
    if size <= IN_MEMORY:
        require_memory(size, "the data")
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(prefix="fcritic-") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)  # a disk that fills up later would kill the process
        return np.memmap(file, dtype, "r+", shape=shape)


def read_header(file: IO[bytes]) -> Header:
    """Returns what NumPy's format says of the array that follows; pickled objects are a `ValueError`."""
    magic = _exactly(file, 8)
    version = np.lib.format.read_magic(io.BytesIO(magic))
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"NumPy's format {version} is not known")
    length = _exactly(file, 2 if version == (1, 0) else 4)
    size = int.from_bytes(length, "little")
    if size > LONGEST_HEADER:  # NumPy reads it before it looks at its length
        raise ValueError(f"its header has {size:,} bytes, more than any of NumPy's")
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        header = Header(*reader(io.BytesIO(length + _exactly(file, size))))
    except (MemoryError, RecursionError, SyntaxError, TokenError) as error:  # of Python's own parser
        raise ValueError("its header is no list of facts") from error
    if header.dtype.hasobject:
        raise ValueError("it holds Python objects (pickles), which are never read")
    if any(size < 0 for size in header.shape):
        raise ValueError("its shape is negative")
    return header


def read_rows(file: IO[bytes], header: Header) -> Iterator[np.ndarray]:
    """Yields the rows that follow a header, some at a time."""
    if len(header.shape) == 0:
        raise ValueError("it is a single number, not an array")
    if header.fortran and len(header.shape) > 1:  # its columns are side by side: all or nothing
        require_memory(2 * header.size, "an array in Fortran's order")
        whole = np.frombuffer(_exactly(file, header.size), header.dtype)
        yield whole.reshape(header.shape[::-1]).T
        return
    rows, *entries = header.shape
    row = header.size // max(1, rows)
    require_memory(2 * row, "one row")
    step = max(1, PIECE // max(1, row))
    for start in range(0, rows, step):
        count = min(step, rows - start)
        yield np.frombuffer(_exactly(file, count * row), header.dtype).reshape(count, *entries)


def _exactly(file: IO[bytes], size: int) -> bytes:
    parts = []
    while size:
        part = file.read(min(size, PIECE))
        if not part:
            raise ValueError("it is truncated")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def map_file(place: Place, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the array in a file of NumPy's format, mapped into memory; another one is a `ValueError`."""
    with place.reading() as file:
        header = read_header(file)
        if header.dtype != dtype or header.shape != shape or (header.fortran and len(shape) > 1):
            raise ValueError(f"it is {header.dtype} {header.shape}, not {dtype} {shape}")
        start, size = file.tell(), os.fstat(file.fileno()).st_size
        if size != start + header.size:
            raise ValueError(f"it has {size:,} bytes, not {start + header.size:,}: it is truncated or overlong")
        return np.memmap(file, dtype, "r", start, shape)


def write_array(place: Place, array: np.ndarray) -> None:
    """Writes an array as a new file in NumPy's format, on disk when this returns."""
    with place.appending() as file:
        header: dict[str, Any] = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(file, header | {"shape": array.shape})
        step = max(1, PIECE // max(1, array[:1].nbytes))
        for start in range(0, len(array), step):
            write_all(file, np.ascontiguousarray(array[start : start + step]).tobytes())
        os.fsync(file.fileno())
