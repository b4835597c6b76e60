"""Files in the layout of D4RL, HDF5 or NPZ: one array for each field, all episodes one after the other.

`observations`, `actions`, `rewards`, `terminals`, and where there are any `timeouts` and `next_observations`.

Without `next_observations` the last transition before a timeout leads nobody knows where. It is left out, and so
the return of such an episode lacks its last reward.
"""

from collections.abc import Callable, Iterator
import contextlib
import io
import math
import os
from typing import Any, NamedTuple
import warnings
import zipfile

import numpy as np

from fcritic.disk import Place, require_memory
from fcritic.errors import UsageError
from fcritic.offline.apart import Apart
from fcritic.offline.source import Arrays, Scale, Source, breaks, require_continuous, require_finite, told
from fcritic.offline.storage import PIECE, read_header, read_rows, require_dense

OTHER_NAMES = {"terminals": "terminations", "timeouts": "truncations"}
"""Gymnasium's names of the same fields."""

NEEDED = ("observations", "actions", "rewards", "terminals")

FLAGS = ("terminals", "timeouts")

FIELD_NAMES = (*NEEDED, "timeouts", *OTHER_NAMES.values(), "next_observations")

NO_EXTRA = "reading it needs packages that are not installed; run: pip install 'fcritic[data]'"


class Column(NamedTuple):
    """One array of a file."""

    shape: tuple[int, ...]
    dtype: np.dtype
    rows: Callable[[], Iterator[np.ndarray]]
    """Reads it from its beginning, some rows at a time."""


Columns = dict[str, Column]


def of_npz(path: str) -> Source:
    """Returns the source in an NPZ file."""
    with told(path), _archive(path) as (archive, size):
        columns = {}
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name == info.filename or name not in FIELD_NAMES:
                continue
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise UsageError(f"{path}: {name} is packed in another way than numpy.savez does; save it anew")
            with told(f"{path}: {name}"), archive.open(info) as member:
                header = read_header(member)
                if info.file_size < header.size:
                    raise ValueError(f"it has {info.file_size:,} bytes, but its shape is {header.shape}")
            columns[name] = Column(header.shape, header.dtype, _member(path, info.filename))
    return _source(path, columns, size)


MOST_AT_ONCE = 2 * PIECE
"""Bytes of an archive, which is read a piece at a time but for its list of contents."""


class InPieces:
    """A file of which no more is read in one go than an archive of arrays needs."""

    def __init__(self, file: io.FileIO):
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Returns so many bytes, or the rest."""
        found = self._file.read(size if 0 <= size <= MOST_AT_ONCE else MOST_AT_ONCE)
        if len(found) == MOST_AT_ONCE:
            raise ValueError(f"its list of contents has more than {MOST_AT_ONCE:,} bytes")
        return found


@contextlib.contextmanager
def _archive(path: str) -> Iterator[tuple[zipfile.ZipFile, int]]:
    """An archive and how many bytes it has."""
    with Place.of(path).reading() as file:
        pieces: Any = InPieces(file)
        with zipfile.ZipFile(pieces) as archive:
            yield archive, os.fstat(file.fileno()).st_size


def _member(path: str, name: str) -> Callable[[], Iterator[np.ndarray]]:
    def rows() -> Iterator[np.ndarray]:
        with _archive(path) as (archive, _), archive.open(name) as member:
            yield from read_rows(member, read_header(member))

    return rows


def of_hdf5(path: str) -> Source:
    """Returns the source in an HDF5 file."""
    file, size = open_hdf5(Place.of(path), path)
    with told(path):
        if file.ask("describe", path=["episode_0"])[0] != "none":
            raise UsageError(f"{path} is a part of a Minari dataset; name its folder (the one around data/)")
    columns = {}
    for name in FIELD_NAMES:
        with told(f"{path}: {name}"):
            column = column_of(file, [name])
        if column is not None:
            columns[name] = column
    return _source(path, columns, size)


def open_hdf5(place: Place, name: str) -> tuple[Apart, int]:
    """Returns an HDF5 file, open in a process of its own, and how many bytes it has."""
    with told(name), place.reading() as file:
        try:
            return Apart("hdf5", file), os.fstat(file.fileno()).st_size
        except ModuleNotFoundError:
            raise UsageError(f"{name} is an HDF5 file; {NO_EXTRA}") from None


def column_of(file: Apart, path: list[str]) -> Column | None:
    """Returns an array of an HDF5 file, or None where nothing is; a `ValueError` for anything else."""
    found, _ = file.ask("describe", path=path)
    if found == "none":
        return None
    if found == "group":
        raise ValueError("it is not an array")
    shape, dtype = tuple(found[0]), found[1]
    try:
        known = np.dtype(dtype)
    except TypeError:
        raise ValueError(f"it is {dtype:.60}, not numbers") from None

    def rows() -> Iterator[np.ndarray]:
        step = max(1, PIECE // max(1, known.itemsize * math.prod(shape[1:])))
        for start in range(0, shape[0], step):
            yield file.ask("rows", path=path, start=start, stop=min(start + step, shape[0]))[1][0]

    return Column(shape, known, rows)


def _source(path: str, columns: Columns, size: int) -> Source:
    for ours, theirs in OTHER_NAMES.items():
        if ours not in columns and theirs in columns:
            columns[ours] = columns.pop(theirs)
    for name in NEEDED:
        if name not in columns:
            raise UsageError(
                f"{path} has no field {name}; the layout of D4RL has {', '.join(NEEDED)} and, where there are any, "
                "timeouts and next_observations"
            )
    count = columns["observations"].shape[0] if columns["observations"].shape else 0
    if count == 0:
        raise UsageError(f"{path} has no transitions: observations has shape {columns['observations'].shape}")
    for name, column in columns.items():
        if column.shape[:1] != (count,):
            raise UsageError(f"{path}: {name} has shape {column.shape}, but there are {count:,} observations")
        if name in ("rewards", *FLAGS) and math.prod(column.shape) != count:
            raise UsageError(f"{path}: {name} has shape {column.shape}, not ({count},)")
        if column.dtype.kind not in "fiub":
            raise UsageError(f"{path}: {name} is {column.dtype}, not numbers")
    require_continuous(columns["actions"].dtype, f"{path}: actions")
    with told(path):
        require_dense(sum(math.prod(column.shape) * column.dtype.itemsize for column in columns.values()), size)
    obs_shape, act_shape = (columns[name].shape[1:] or (1,) for name in ("observations", "actions"))
    if 0 in (*obs_shape, *act_shape):
        raise UsageError(f"{path}: observations of shape {obs_shape} and actions of shape {act_shape} are empty")
    following = columns.get("next_observations")
    if following is not None and (following.shape[1:] or (1,)) != obs_shape:
        raise UsageError(f"{path}: next_observations has rows of {following.shape[1:]}, observations {obs_shape}")
    fill = lambda into, scale: _fill(path, columns, into, scale)
    return Source(path, count, obs_shape, math.prod(obs_shape), act_shape, fill)


def _fill(path: str, columns: Columns, into: Arrays, scale: Scale) -> int:
    count = columns["observations"].shape[0]
    require_memory(8 * count, f"{path}: its flags")
    terminal = _flag(path, columns, "terminals", count)
    timeout = _flag(path, columns, "timeouts", count) & ~terminal
    known = "next_observations" in columns
    kept = np.ones(count, bool) if known else ~timeout
    if not known:
        kept[-1] = terminal[-1]
        if "timeouts" not in columns:
            warnings.warn(
                f"{path} has neither timeouts nor next_observations: an episode that a time limit has cut is taken "
                "for one with the next",
                stacklevel=2,
            )
    number = int(kept.sum())
    if number == 0:
        raise UsageError(f"{path} has no transitions whose next observation is recorded; add next_observations")
    _copy(path, columns, "observations", kept, into["obs"])
    _copy(path, columns, "rewards", kept, into["reward"])
    _copy(path, columns, "actions", kept, into["act"], scale)
    if known:
        _copy(path, columns, "next_observations", kept, into["next_obs"])
        if "timeouts" not in columns:
            timeout = breaks(into["obs"][:count], into["next_obs"][:count]) & ~terminal
    else:
        _copy_shifted(path, columns, kept, into["next_obs"])
    ended = terminal | timeout
    first, last = np.roll(ended, 1), ended.copy()
    first[0] = last[-1] = True
    # The transition before one that is left out is then the last one of its episode.
    before = np.flatnonzero(~kept & ~first) - 1
    last[before], ended[before] = True, ended[before + 1]
    for name, flags in (("first", first), ("last", last), ("ended", ended), ("discount", ~terminal)):
        into[name][:number] = flags[kept]
    return number


def _pieces(path: str, columns: Columns, name: str) -> Iterator[np.ndarray]:
    with told(f"{path}: {name}"):
        yield from columns[name].rows()


def _flag(path: str, columns: Columns, name: str, count: int) -> np.ndarray:
    found = np.zeros(count, bool)
    if name not in columns:
        return found
    place = 0
    for piece in _pieces(path, columns, name):
        if not np.isin(piece, (0, 1)).all():
            odd = np.ravel(piece)[~np.isin(np.ravel(piece), (0, 1))][0]
            raise UsageError(f"{path}: {name} holds {odd}, which is neither 0 nor 1")
        found[place : place + len(piece)] = np.reshape(piece, -1)
        place += len(piece)
    return found


def _copy(
    path: str, columns: Columns, name: str, kept: np.ndarray, out: np.ndarray, scale: Scale | None = None
) -> None:
    place = written = 0
    for piece in _pieces(path, columns, name):
        chosen = piece[kept[place : place + len(piece)]]
        place += len(piece)
        if not len(chosen):
            continue
        what = f"{path}: {name}"
        if scale is None:
            require_finite(chosen, what)
        part = chosen if scale is None else scale(chosen, what)
        out[written : written + len(part)] = part.reshape(len(part), *out.shape[1:])
        written += len(part)


def _copy_shifted(path: str, columns: Columns, kept: np.ndarray, out: np.ndarray) -> None:
    """The observation of the row after; of the last one its own, which only a termination may have."""
    place = written = 0
    held: np.ndarray | None = None
    for piece in _pieces(path, columns, "observations"):
        if held is not None:
            piece = np.concatenate([held, piece])
        held = piece[-1:]
        after = piece[1:][kept[place : place + len(piece) - 1]]
        place += len(piece) - 1
        out[written : written + len(after)] = after.reshape(len(after), -1)
        written += len(after)
    if held is not None and kept[-1]:
        out[written] = held.reshape(-1)


def kind_of(path: str) -> str | None:
    """Returns `npz` or `hdf5` where a plain file begins as such a file does, whatever its name; None otherwise."""
    with told(path), Place.of(path).reading() as file:
        begin = file.read(8)
    if not begin:
        raise UsageError(f"{path} is empty")
    return {b"PK\x03\x04": "npz", b"PK\x05\x06": "npz"}.get(
        begin[:4], "hdf5" if begin == b"\x89HDF\r\n\x1a\n" else None
    )
