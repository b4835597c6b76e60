"""Folders of checkpoints: which is the newest, which may go, what killed processes left."""

from collections.abc import Iterable
import contextlib
import os
from pathlib import Path
import re
import shutil
import warnings

from fcritic.errors import CheckpointError, cannot_write
from fcritic.runs.checkpoint import STEP_NAME, verify

_LEFTOVER = re.compile(r"(?P<directory>.+)\.tmp-[0-9]+(?P<replaced>-replaced)?")


def latest(folder: str | Path) -> Path | None:
    """The newest whole checkpoint ``step-<12 digits>`` in a folder; damaged ones are named in a warning."""
    for path in newest_first(folder):
        try:
            verify(path)
        except CheckpointError as error:
            warnings.warn(f"skipped: {error}", stacklevel=2)
        else:
            return path
    return None


def prune(folder: str | Path, keep: int) -> list[dict]:
    """Remove what is older than the ``keep`` newest whole checkpoints; returns the manifests of these.

    Each of them is read back and verified first, so a damaged one never costs an older good one.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}; at least one checkpoint must stay")
    kept: list[dict] = []
    for path in newest_first(folder):
        if len(kept) < keep:
            with contextlib.suppress(CheckpointError):
                kept.append(verify(path))
        else:
            doomed = path.with_name(f"{path.name}.tmp-{os.getpid()}")
            shutil.rmtree(doomed, ignore_errors=True)
            try:
                os.rename(path, doomed)  # so that a kill leaves no half-empty checkpoint
            except OSError as error:
                raise cannot_write("checkpoints", folder, error) from error
            shutil.rmtree(doomed, ignore_errors=True)
    return kept


def set_aside(paths: Iterable[Path]) -> None:
    """Rename checkpoints that cannot be used, so that they are no longer counted among those to keep."""
    for path in paths:
        aside = path.with_name(f"damaged-{path.name}")
        try:
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(path, aside)
        except OSError as error:
            raise cannot_write("checkpoints", path.parent, error) from error


def sweep(folder: str | Path) -> None:
    """Clear what killed processes left behind. Only for the one process that may write there."""
    for path in sorted(Path(folder).glob("*.tmp-*")):
        name = _LEFTOVER.fullmatch(path.name)
        if name is None or path.is_symlink() or not path.is_dir():
            continue
        directory = path.with_name(name["directory"])
        if name["replaced"] and not directory.exists():
            os.rename(path, directory)  # killed between the two renames of a replacement
        else:
            shutil.rmtree(path, ignore_errors=True)


def newest_first(folder: str | Path) -> list[Path]:
    """All checkpoints of a folder, whole or not."""
    paths = Path(folder).glob("step-*")  # of a missing folder: nothing
    return sorted((path for path in paths if STEP_NAME.fullmatch(path.name)), reverse=True)
