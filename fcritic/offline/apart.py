"""Libraries in C that read files of strangers, each in a process of its own.

HDF5 and ONNX Runtime open further files that a file names, believe what it says about sizes, and crash on forged
ones; an ONNX file is a program, too. The file is opened here, by `fcritic.disk`; a child process gets its
descriptor, can open nothing else, and has limits on memory and time (`fcritic.offline.apart_child`).
"""

from collections.abc import Sequence
import contextlib
import importlib.util
import io
import os
import signal
import site
import subprocess
import sys
from typing import Any
import weakref

import numpy as np

from fcritic.offline import apart_child
from fcritic.offline.apart_child import receive, send

MEMORY = 2**30
"""Bytes that reading a file may take besides those of a library."""

SECONDS = 5
"""Of computing for one answer."""


class Apart:
    """A file that is read by `h5py` or `onnxruntime` elsewhere; whatever goes wrong there is a `ValueError`.

    Raises `ModuleNotFoundError` where that is not installed.
    """

    def __init__(self, kind: str, file: io.FileIO):
        if importlib.util.find_spec({"hdf5": "h5py", "onnx": "onnxruntime"}[kind]) is None:
            raise ModuleNotFoundError(kind)
        memory = MEMORY + (4 * os.fstat(file.fileno()).st_size if kind == "onnx" else 0)
        few = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        # ONNX Runtime writes an identifier of the machine to the user's cache and reports to its maker.
        homeless = {"HOME": os.devnull, "XDG_CACHE_HOME": os.devnull, "PYTHONUSERBASE": site.getuserbase()}
        self._process = subprocess.Popen(
            [sys.executable, "-P", apart_child.__file__, kind, str(file.fileno()), str(memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[file.fileno()],
            env=dict(os.environ) | few | homeless,
        )
        self.close = weakref.finalize(self, _end, self._process)
        """Ends the other process; so does the end of this object or of the program."""

    def ask(
        self, what: str, arrays: Sequence[np.ndarray] = (), seconds: float = SECONDS, **options: Any
    ) -> tuple[Any, list[np.ndarray]]:
        """Returns the answer of a method of the other side, a value and arrays."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            send(self._process.stdin, [what, seconds, options], arrays)
            reply = receive(self._process.stdout)
        except BrokenPipeError:
            reply = None
        if reply is None:
            self.close()
            slow = self._process.returncode == -signal.SIGXCPU
            raise ValueError("it takes too long" if slow else "it breaks the library that reads it")
        (well, value), found = reply
        if not well:
            raise ValueError(value)
        return value, list(found)


def _end(process: subprocess.Popen) -> None:
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # something was still to be written
            stream.close()  # pyright: ignore
    process.wait()
