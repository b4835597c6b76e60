"""Memory that a training shares with its worker processes: who is being called, and the board."""

import mmap
import os
import tempfile

import numpy as np

from fcritic.envs.group import Board
from fcritic.envs.watch import IDLE
from fcritic.types import EnvSpec

_PROGRESS = 2 * 8
"""Bytes per worker: the row that is being called and since when."""


class SharedMemory:
    """A nameless file in memory, for the parent. Workers get its descriptor."""

    def __init__(self, workers: int):
        self._workers = workers
        if hasattr(os, "memfd_create"):
            self.descriptor = os.memfd_create("fcritic")
        else:
            self.descriptor, path = tempfile.mkstemp(prefix="fcritic")
            os.unlink(path)
        os.ftruncate(self.descriptor, workers * _PROGRESS)
        self._map = mmap.mmap(self.descriptor, 0)

    def progress(self, number: int) -> np.ndarray:
        """The row that a worker is calling and since when; says idle to begin with."""
        progress = progress_of(self._map, number)
        progress[0] = IDLE
        return progress

    def board(self, count: int, spec: EnvSpec) -> Board:
        """Makes room for the board, once the sizes are known."""
        os.ftruncate(self.descriptor, self._workers * _PROGRESS + Board.size(count, spec))
        return whole_board(mmap.mmap(self.descriptor, 0), self._workers, count, spec)

    def close(self) -> None:
        """Lets go of the file; arrays that are still in use keep their memory."""
        os.close(self.descriptor)


def progress_of(memory: mmap.mmap, number: int) -> np.ndarray:
    """The two numbers of a worker at the beginning of the memory."""
    return np.frombuffer(memory, np.float64, 2, number * _PROGRESS)


def whole_board(memory: mmap.mmap, workers: int, count: int, spec: EnvSpec) -> Board:
    """The board behind the workers' progress."""
    return Board(count, spec, memoryview(memory)[workers * _PROGRESS :])
