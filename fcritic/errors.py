"""One kind of error for everything a user can put right: one line, what to change, exit code 2.

Faults of an environment are another kind: nothing in the command line is wrong, the task is.
"""

from collections.abc import Iterable
import difflib
import errno
import math
from os import PathLike


class UsageError(Exception):
    """Input that cannot be used. The message is one line and says what to change."""


class EnvironmentFault(RuntimeError):
    """An environment that broke its promise while running. The message names it, the step and the field."""


class Diverged(RuntimeError):
    """A training whose numbers are no longer finite. The message names the seed and what may help."""


class CannotWrite(UsageError):
    """A disk that is full, read-only or otherwise refuses. A training may go on and try again later."""


class CheckpointError(UsageError):
    """A checkpoint that is damaged, incomplete, unsafe to read or made for another configuration."""


class WithoutReplay(CheckpointError):
    """A whole checkpoint that can act but not be trained on."""


def require_at_least(low: float, **options: float) -> None:
    """Refuses numbers that are too small or not finite, by the name of their option."""
    for name, value in options.items():
        if not low <= value < math.inf:  # also refuses NaN
            raise UsageError(f"--{name.replace('_', '-')} must be at least {low:g}, not {shown(value)}")


def shown(number: float | int) -> str:
    """A number for a message; of one that no float can be, its sign and size."""
    try:
        return f"{number:g}"
    except OverflowError:
        return f"{'-' * (number < 0)}2^{int(number).bit_length() - 1}"


def one_line(text: str, most: int = 1000) -> str:
    """The text without line breaks, control characters and halves of signs, cut to so many characters."""
    plain = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * most])
    plain = " ".join(plain.split())
    return plain if len(plain) <= most and len(text) <= 4 * most else f"{plain[:most]} ..."


def did_you_mean(name: str, options: Iterable[str], count: int = 1) -> str:
    """The part of a message that names the closest known option, or nothing where none is close."""
    options = list(options)
    folded = {option.casefold(): option for option in options}
    close = difflib.get_close_matches(name.casefold(), folded, n=count, cutoff=0.5)
    return f"; did you mean {' or '.join(folded[match] for match in close)}?" if close else ""


_WRITE_ADVICE = {
    errno.ENOSPC: "free some space or choose another --out",
    errno.EDQUOT: "free some space or choose another --out",
    errno.EFBIG: "raise the file size limit (ulimit -f) or choose another --out",
    errno.EROFS: "make it writable or choose another --out",
    errno.EACCES: "make it writable or choose another --out",
    errno.EPERM: "make it writable or choose another --out",
    errno.ENOTDIR: "move what is in the way or choose another --out",
    errno.EEXIST: "move what is in the way or choose another --out",
}


def cannot_write(what: str, path: str | PathLike, error: OSError) -> CannotWrite:
    """The error for a failed write: what was being written, where, why, and what to change."""
    advice = _WRITE_ADVICE.get(error.errno, "choose another --out")
    return CannotWrite(f"cannot write {what} to {path}: {error.strerror or error}; {advice}")
