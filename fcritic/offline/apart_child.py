"""The other side of `fcritic.offline.apart`, a program: h5py or ONNX Runtime with one open file.

Once its library is imported it can open no file, write none, and take little memory and time: what a damaged or
forged file does to a library in C stays here.
"""

from collections.abc import Sequence
import contextlib
import json
import math
import os
import resource
import sys
from typing import IO, Any

import numpy as np

LONGEST = 2**22
"""Bytes of a line of JSON."""

Reply = tuple[Any, Sequence[np.ndarray]]


def send(stream: IO[bytes], value: Any, arrays: Sequence[np.ndarray] = ()) -> None:
    """Writes a value as a line of JSON, and arrays after it."""
    line = json.dumps([value, [[array.dtype.str, array.shape] for array in arrays]])
    stream.write(line.encode() + b"\n")
    for array in arrays:
        stream.write(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    stream.flush()


def receive(stream: IO[bytes]) -> Reply | None:
    """Returns what the other side has sent, None where it has ended; a `ValueError` for what is no message."""
    line = stream.readline(LONGEST)
    if not line.endswith(b"\n"):
        return None
    value, described = json.loads(line)
    arrays = []
    for name, shape in described:
        dtype = np.dtype(name)
        if dtype.kind not in "fiub" or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError("its answer is not numbers")
        data = stream.read(math.prod(shape) * dtype.itemsize)
        arrays.append(np.frombuffer(data, dtype).reshape(shape))
    return value, arrays


def _limit(kind: int, value: int, for_good: bool = True) -> None:
    """Lowers a limit as far as that goes; systems differ in what they let be lowered."""
    hard = resource.getrlimit(kind)[1]
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (most, most if for_good else hard))


def confine(memory: int) -> None:
    """Lets this process open no file, write none, and take at most so much memory more than it has."""
    os.chdir("/")
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:  # Linux alone has it
        _limit(resource.RLIMIT_AS, int(file.read().split()[0]) * resource.getpagesize() + memory)
    last = max(int(name) for name in os.listdir("/dev/fd"))
    while os.dup(0) < last:  # those that are free below the last one in use
        pass
    _limit(resource.RLIMIT_NOFILE, last + 1)


def budget(seconds: float) -> None:
    """Ends this process once it has worked for so long from now on; waiting for a disk does not count."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + seconds), for_good=False)


class Numbers:
    """An HDF5 file."""

    def __init__(self, file: IO[bytes]):
        import h5py

        self._h5py = h5py
        self._file = h5py.File(file, "r")

    def describe(self, path: list[str]) -> Reply:
        """What lies at a path: `none`, `group`, or the shape and type of an array in the file itself."""
        found = self._find(path)
        if found is None or isinstance(found, self._h5py.Group):
            return "none" if found is None else "group", ()
        return [list(found.shape), found.dtype.str if found.dtype.kind in "fiub" else str(found.dtype)], ()

    def rows(self, path: list[str], start: int, stop: int) -> Reply:
        """Some rows of an array."""
        return None, [self._find(path)[start:stop]]

    def _find(self, path: list[str]) -> Any:
        """What is there step by step, with no link followed and no numbers in another file."""
        h5py: Any = self._h5py
        found: Any = self._file
        for name in path:
            what = "/".join(path)
            if not isinstance(found, h5py.Group):
                raise ValueError(f"{what} is not an array")
            link = found.get(name, getlink=True)
            if link is None:
                return None
            if not isinstance(link, h5py.HardLink):
                raise ValueError(f"{what} is a link; write its numbers into the file itself")
            found = found[name]
            if isinstance(found, h5py.Group):
                continue
            if not isinstance(found, h5py.Dataset) or found.shape is None:
                raise ValueError(f"{what} is not an array")
            if found.is_virtual or found.external:
                raise ValueError(f"{what} lies in another file; write its numbers into the file itself")
        return found


class Network:
    """An ONNX file."""

    def __init__(self, file: IO[bytes]):
        import onnxruntime

        onnxruntime.disable_telemetry_events()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = min(8, os.cpu_count() or 1)
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(file.read(), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            if "xternal data" in str(error) or "model_path must not be empty" in str(error):
                raise ValueError("its weights lie in another file; save it as one file") from None
            raise

    def describe(self) -> Reply:
        """Its inputs (name, type, shape), the name of its first output, and its metadata."""
        sizes = lambda shape: [size if isinstance(size, int) else None for size in shape or ()]
        inputs = [[each.name, each.type, sizes(each.shape)] for each in self._session.get_inputs()]
        outputs = [each.name for each in self._session.get_outputs()]
        return [inputs, outputs[0], dict(self._session.get_modelmeta().custom_metadata_map)], ()

    def run(self, output: str, names: list[str], arrays: Sequence[np.ndarray]) -> Reply:
        """The output for inputs of these names."""
        return None, [np.asarray(self._session.run([output], dict(zip(names, arrays, strict=True)))[0])]


def _serve() -> None:
    kind, handle, memory = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    __import__({"hdf5": "h5py", "onnx": "onnxruntime"}[kind])
    file = os.fdopen(handle, "rb")
    confine(memory)
    served: Any = None
    while (request := receive(requests)) is not None:
        (name, seconds, options), arrays = request
        budget(seconds)
        try:
            if served is None:
                served = {"hdf5": Numbers, "onnx": Network}[kind](file)
            found, sent = getattr(served, name)(**options, **({"arrays": arrays} if arrays else {}))
            if any(each.dtype.kind not in "fiub" for each in sent):
                raise ValueError(f"it holds {sent[0].dtype}, not numbers")
            send(replies, [True, found], sent)
        except MemoryError:
            send(replies, [False, "it needs too much memory"])
        except Exception as error:
            send(replies, [False, " ".join(str(error).split())[:2000] or type(error).__name__])


if __name__ == "__main__":
    _serve()
