"""Progress and remaining time of a long command, on stderr: a line of a terminal, or a few in a pipe."""

from collections.abc import Iterator
import contextlib
import sys
import threading
import time

from fcritic.training.console import duration

EVERY = {True: 0.2, False: 10.0}
"""Seconds between two lines, by whether a person watches a terminal."""


class Progress:
    """Prints the progress of a command."""

    def __init__(self, what: str, quiet: bool = False):
        self._what, self._quiet = what, quiet
        self._begun = self._told = time.monotonic()
        self._terminal = sys.stderr.isatty()
        self._open = False

    def __call__(self, share: float, note: str = "") -> None:
        """Prints that this share (0 to 1) is done, unless the last line is recent."""
        now = time.monotonic()
        if self._quiet or (now - self._told < EVERY[self._terminal] and share < 1):
            return
        if share >= 1 and not self._open and now - self._begun < EVERY[self._terminal]:
            return  # done before a line was due
        self._told, self._open = now, True
        spent = now - self._begun
        left = f", {duration(spent / share * (1 - share))} left" if 0 < share < 1 else f" in {duration(spent)}"
        line = f"{self._what}: {100 * min(share, 1):.0f} %{left if share > 0 else ''}{f', {note}' if note else ''}"
        if self._terminal:
            print(f"\r{line}\x1b[K", end="\n" if share >= 1 else "", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def alive(what: str, quiet: bool = False) -> Iterator[None]:
    """A block of unknown length: prints on stderr that it has begun and, from time to time, that it still runs."""
    done, begun = threading.Event(), time.monotonic()

    def tell() -> None:
        while not done.wait(EVERY[False]):
            print(f"{what}: {duration(time.monotonic() - begun)} so far", file=sys.stderr, flush=True)

    if not quiet:
        print(f"{what} ...", file=sys.stderr, flush=True)
        threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        done.set()
