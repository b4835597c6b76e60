"""The times of a training's starts, progress and ends, for people who watch it.

Metrics hold no times, so that a continued run is bit for bit the uninterrupted one. ``journal.jsonl`` holds them:
one object per line with ``time`` (seconds since 1970), ``env_steps`` and, unless it is plain progress, ``event``:
``begin`` (of a process, or after a rollback), ``warning`` or ``end``, with ``what`` in words. Training never reads
it.
"""

import contextlib
import io
import json
import math
import os
import time
from typing import Any

from fcritic.disk import NotPlain, Place
from fcritic.runs import METRICS_LIMIT

INTERVAL = 5.0
"""Seconds between lines of plain progress."""

LONGEST = 500
"""Characters of a text."""


LAST = 2**13
"""Bytes at the end of a journal that hold its last line."""


def last_line(path: str | os.PathLike | Place) -> dict[str, Any] | None:
    """The newest whole line; None where there is none that can be read."""
    with contextlib.suppress(OSError, ValueError, IndexError), Place.of(path).reading() as file:
        file.seek(max(file.seek(0, os.SEEK_END) - LAST, 0))
        line = json.loads(file.read(LAST).split(b"\n")[-2])
        return line if isinstance(line, dict) and type(line.get("env_steps")) is int else None
    return None


def elapsed(path: str | os.PathLike | Place) -> float | None:
    """Seconds of training, pauses between processes left out; None where no line can be read."""
    total, last = 0.0, None
    wrong = (OSError, ValueError, KeyError, TypeError)  # a last line that is cut off, for one
    with contextlib.suppress(*wrong), Place.of(path).reading(METRICS_LIMIT) as file:
        for text in io.BufferedReader(file):
            line = json.loads(text)
            moment = float(line["time"])
            if last is not None and line.get("event") != "begin":
                total += max(moment - last, 0.0)
            last = moment
    return total if last is not None and math.isfinite(total) else None


class Journal:
    """The journal of one process. As a context it notes the end, and the error where there is one.

    Nothing is written before there is progress, so that a finished run is unchanged.
    """

    def __init__(self, path: str | os.PathLike | Place):
        self._file: io.FileIO | None = None
        self._frame, self._noted, self._waiting = 0, 0.0, b""
        try:
            self._file = Place.of(path).appending()
        except NotPlain:
            raise
        except OSError:  # a disk that refuses is reported by the metrics
            pass

    def begin(self, frame: int) -> None:
        """A process begins at this frame, or goes back to it."""
        self._frame, self._noted = frame, 0.0
        self._waiting = self._line(event="begin")

    def progress(self, frame: int) -> None:
        """The training has come to a frame; noted from time to time."""
        self._frame = frame
        if time.monotonic() - self._noted >= INTERVAL:
            self._write()

    def warn(self, what: str) -> None:
        """Notes a warning for whoever watches."""
        self._write(event="warning", what=what[:LONGEST])

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: Any) -> None:
        if error is not None:
            self._write(event="end", what=(str(error) or type(error).__name__)[:LONGEST])
        elif not self._waiting:
            self._write(event="end")

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _line(self, **more: str) -> bytes:
        return json.dumps({"time": round(time.time(), 3), "env_steps": self._frame} | more).encode() + b"\n"

    def _write(self, **more: str) -> None:
        """A line; one that the disk refuses is lost, since training must not wait for it."""
        self._noted = time.monotonic()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.write(self._waiting + self._line(**more))
        self._waiting = b""
