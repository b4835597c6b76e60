"""Whose code may run: the list of code that this user has named, in the user's own configuration.

A function or an environment's id counts as trusted together with the absolute paths and the contents of all files
that importing it runs. No run can write there; lines of earlier versions, which had no contents, no longer count.
"""

from collections.abc import Sequence
import hashlib
import os
from pathlib import Path
from typing import Literal

from fcritic.disk import hash_of, open_plain

MOST_BYTES = 2**24
"""Of the list, and of a file of code."""

Standing = Literal["trusted", "changed", "unknown"]


def trust(files: Sequence[Path], name: str) -> None:
    """Notes that the user has named this function or id; does nothing where the code or the list cannot be used."""
    if not files or not _key(files, name).isprintable() or standing(files, name) == "trusted":
        return
    try:
        line = f"{_digest(files)} {_key(files, name)}\n"
        _ledger().parent.mkdir(parents=True, exist_ok=True)
        with _ledger().open("a", encoding="utf-8") as ledger:
            ledger.write(line)
    except OSError:  # a home that cannot be written: the task has to be named each time
        return


def standing(files: Sequence[Path], name: str) -> Standing:
    """Whether the user has named this function or id, and its files are still what they were then."""
    if not files:
        return "unknown"
    try:
        with _ledger().open(encoding="utf-8", errors="replace") as ledger:
            lines = [line.partition(" ") for line in ledger.read(MOST_BYTES).splitlines()]
        digests = {digest for digest, _, key in lines if key == _key(files, name)}
        if not digests:  # files that only a foreign run names are not even read
            return "unknown"
        return "trusted" if _digest(files) in digests else "changed"
    except OSError:
        return "unknown"


def _key(files: Sequence[Path], name: str) -> str:
    return f"{files[-1]}:{name}"


def _digest(files: Sequence[Path]) -> str:
    """The SHA-256 of the files' paths and contents."""
    state = hashlib.sha256()
    for file in files:
        with open_plain(Path(os.path.realpath(file)), MOST_BYTES) as content:
            state.update(f"{file}\0{hash_of(content).hexdigest()}\n".encode())
    return f"sha256:{state.hexdigest()}"


def _ledger() -> Path:
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    home = given if given.is_absolute() else Path.home() / ".config"  # one of the working folder is not the user's
    return home / "fcritic" / "trusted-tasks"
