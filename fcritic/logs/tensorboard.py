"""A run's rows as TensorBoard's event files, one folder for each seed: a view of `metrics.jsonl`."""

from collections.abc import Iterator
import contextlib
import functools
import io
import os
import socket
import struct
import sys
import time
from typing import Any

from fcritic.disk import Place, write_all
from fcritic.errors import writing
from fcritic.logs.metrics import numbers


class TensorBoardLog:
    """TensorBoard event files with one sub-run per seed (``seed-3/``) and tags ``kind/name``.

    Lists become ``kind/name/0``, ``kind/name/1``; text is left to the JSON log. With ``resume_step``,
    the step of the checkpoint, TensorBoard hides what an earlier process wrote after it.
    """

    def __init__(self, directory: str | os.PathLike | Place, resume_step: int | None = None):
        self._place = Place.of(directory)
        self._purge_step = None if resume_step is None else resume_step + 1  # purging includes its step
        self._files: dict[int, io.FileIO] = {}

    def write(self, rows: list[dict]) -> None:
        """Add one point per number; they are with the operating system when this returns."""
        messages, scalar, _ = _tensorboard()
        events: dict[int, bytes] = {}
        for row in rows:
            seed, step = int(row["seed"]), int(row["env_steps"])
            for name, value in numbers(row):
                summary = scalar(f"{row['kind']}/{name}", value)
                event = messages.Event(wall_time=time.time(), step=step, summary=summary)
                events[seed] = events.get(seed, b"") + _record(event)
        with writing("TensorBoard events", self._place.path):
            for seed, data in events.items():
                write_all(self._file(seed), data)

    def close(self) -> None:
        """Close the event files; safe to call twice. What could not be written was reported by `write`."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
        self._files.clear()

    def _file(self, seed: int) -> io.FileIO:
        """The file of a seed, a new one for each process."""
        if seed not in self._files:
            folder = self._place / f"seed-{seed}"
            folder.make()
            # Names count nanoseconds: a resume within a second would go on in the earlier file.
            name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{time.time_ns()}"
            self._files[seed] = (folder / name).appending()
            if self._purge_step is not None:
                messages, _, _ = _tensorboard()
                restart = messages.SessionLog(status=messages.SessionLog.START)
                event = messages.Event(wall_time=time.time(), step=self._purge_step, session_log=restart)
                write_all(self._files[seed], _record(event))
        return self._files[seed]


def _record(event: Any) -> bytes:
    """An event as TensorBoard's files hold it: length and content, each followed by its checksum."""
    checksum = _tensorboard()[2]
    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", checksum(length)) + data + struct.pack("<I", checksum(data))


@functools.cache
def _tensorboard() -> tuple[Any, Any, Any]:
    """tensorboardX's messages, its scalars and its checksum; all that uses it asks here."""
    with _without_torch():
        from tensorboardX.proto import event_pb2
        from tensorboardX.record_writer import masked_crc32c
        from tensorboardX.summary import scalar
    return event_pb2, scalar, masked_crc32c


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """PyTorch as if it were not installed, for all threads: tensorboardX would import it, which takes seconds."""
    hidden = "torch" not in sys.modules  # one that is there already costs nothing
    if hidden:
        sys.modules["torch"] = None  # Python's word for a module that must not be imported
    try:
        yield
    finally:
        if hidden:
            sys.modules.pop("torch", None)
