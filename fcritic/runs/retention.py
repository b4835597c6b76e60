"""Folders of checkpoints: which is the newest, which may go, what killed processes left."""

from collections.abc import Iterable
import contextlib
import os
import re
import warnings

from fcritic.disk import Place
from fcritic.errors import CheckpointError, cannot_write
from fcritic.runs.checkpoint import STEP_NAME, verify

_LEFTOVER = re.compile(r"(?P<directory>.+)\.tmp-[0-9]+(?P<replaced>-replaced)?")


def latest(folder: str | os.PathLike | Place) -> Place | None:
    """The newest whole checkpoint ``step-<12 digits>`` in a folder; None where there is no checkpoint at all.

    One line warns of damaged ones that were passed over. If none is whole, that is an error.
    """
    faults: list[CheckpointError] = []
    for place in newest_first(folder):
        try:
            verify(place)
        except CheckpointError as error:
            faults.append(error)
            continue
        if faults:
            warnings.warn(f"skipped: {in_words(faults)}", stacklevel=2)
        return place
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
            try:
                doomed.remove()
                place.rename(doomed.name)  # so that a kill leaves no half-empty checkpoint
            except OSError as error:
                raise cannot_write("checkpoints", place.parent.path, error) from error
            with contextlib.suppress(OSError):
                doomed.remove()
    return kept


def set_aside(places: Iterable[Place]) -> None:
    """Rename checkpoints that cannot be used, so that they are no longer counted among those to keep."""
    for place in places:
        aside = place.parent / f"damaged-{place.name}"
        try:
            aside.remove()
            place.rename(aside.name)
        except OSError as error:
            raise cannot_write("checkpoints", place.parent.path, error) from error


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
