"""Safetensors files, looked at before they are believed.

The format is a length, a JSON header and raw numbers. The header is checked in full (names, types, shapes, places,
the size of the file) and against what the reader expects, before memory for a single number is asked for.
"""

from collections.abc import Callable, Mapping
import json
import math
import os
from typing import IO, Any, NamedTuple

import ml_dtypes
import numpy as np
from safetensors.numpy import save

from fcritic.disk import read_exactly, require_memory

Arrays = Mapping[str, np.ndarray]

HEADER_LIMIT = 4 * 2**20
"""Bytes; a header takes about 100 per array."""

DTYPES = {
    "BOOL": np.dtype(bool),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    **{f"I{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"U{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}
"""The types that files may hold, by the name that the format has for them."""


class Described(NamedTuple):
    """An array that has not been read yet."""

    dtype: np.dtype
    shape: tuple[int, ...]
    first: int
    """Its place after the header, in bytes."""

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


Description = Mapping[str, Described]


def encode(arrays: Arrays) -> bytes:
    """A file with these arrays."""
    for name, array in arrays.items():
        if array.dtype not in DTYPES.values():
            raise TypeError(f"{name} has dtype {array.dtype}, which cannot be saved")
    # safetensors copies raw memory, so a strided view would be written wrongly.
    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def decode(file: IO[bytes], verify: Callable[[Description], None] | None = None) -> dict[str, np.ndarray]:
    """The arrays of a file that lies open at its beginning; anything wrong is a `ValueError` or `OSError`.

    `verify` sees what the file says it holds and may refuse it.
    """
    size = os.fstat(file.fileno()).st_size
    description, start = _read_header(file, size)
    if verify is not None:
        verify(description)
    require_memory(size, "it")
    arrays = {}
    for name, (dtype, shape, first) in description.items():
        arrays[name] = np.empty(shape, dtype)
        file.seek(start + first)
        read_exactly(file, memoryview(arrays[name].reshape(-1).view(np.uint8)))
    return arrays


def _read_header(file: IO[bytes], size: int) -> tuple[dict[str, Described], int]:
    """What the file holds, and where the numbers begin."""
    prefix = bytearray(8)
    read_exactly(file, memoryview(prefix))
    length = int.from_bytes(prefix, "little")
    if length > min(HEADER_LIMIT, size - 8):
        raise ValueError("its header is longer than the file or than any of ours")
    text = bytearray(length)
    read_exactly(file, memoryview(text))
    try:
        header = json.loads(text, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    header.pop("__metadata__", None)
    description = {name: _described(name, value) for name, value in header.items()}
    _require_gapless(description, size - 8 - length)
    return description, 8 + length


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("its header has a name twice")
    return dict(pairs)


def _described(name: str, value: Any) -> Described:
    is_size = lambda number: type(number) is int and 0 <= number < 2**48
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"array {name!r:.60} is not described")
    kind, shape, place = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise ValueError(f"array {name!r:.60} has the type {kind!r:.20}")
    if not (isinstance(shape, list) and len(shape) <= 32 and all(map(is_size, shape))):
        raise ValueError(f"array {name!r:.60} has the shape {shape!r:.60}")
    if not (isinstance(place, list) and len(place) == 2 and all(map(is_size, place))):
        raise ValueError(f"array {name!r:.60} has no place")
    described = Described(DTYPES[kind], tuple(shape), place[0])
    if place[1] - place[0] != described.size:
        raise ValueError(f"array {name!r:.60} does not fit its place")
    return described


def _require_gapless(description: Description, size: int) -> None:
    """Every byte after the header belongs to one array: none is hidden, none is read twice."""
    end = 0
    for described in sorted(description.values(), key=lambda each: (each.first, each.size)):
        if described.first != end:
            raise ValueError("its arrays overlap or leave gaps")
        end += described.size
    if end != size:
        raise ValueError("its arrays are not as long as the file")
