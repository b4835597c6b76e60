"""A limit on the time that one call of an environment may take."""

# The public `signal.signal` looks its handlers up among the names of special ones, which takes 6 us per step.
from _signal import ITIMER_REAL, setitimer, signal
from signal import SIG_DFL, SIGALRM
import threading
from time import monotonic
from types import FrameType
from typing import Self

import numpy as np

IDLE = -1

LONGEST = 1e6
"""The largest limit in seconds; timers hold little more."""


class Hang(BaseException):
    """Raised inside an environment that takes too long. No Exception, so that few environments catch it."""


class Watch:
    """Interrupts a call that takes longer than `limit` seconds, where that is possible.

    It uses the alarm signal, so it works in the main thread alone, and only while Python code runs: a loop in
    C cannot be interrupted, which is what worker processes are for. An alarm that someone else has set is
    left alone, and nothing is watched until it has rung.

    ``progress`` holds the row that is being called (or `IDLE`) and since when. In a worker process it is
    shared with the parent, which can tell from it who hangs.
    """

    def __init__(self, limit: float, progress: np.ndarray | None = None):
        self.limit = limit
        self.progress = np.array([IDLE, 0.0]) if progress is None else progress
        self._armed = False

    def begin(self, row: int) -> None:
        """From now on `row` is being called."""
        self.progress[0] = row
        self.progress[1] = monotonic()

    def close(self) -> None:
        """From now on nobody is being called."""
        self.progress[0] = IDLE

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            earlier = setitimer(ITIMER_REAL, self.limit, self.limit)
            if earlier[0] > 0:
                setitimer(ITIMER_REAL, *earlier)
            else:
                self._armed, self._handler = True, signal(SIGALRM, self._ring)
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        if self._armed:
            self._armed = False
            setitimer(ITIMER_REAL, 0.0)
            signal(SIGALRM, SIG_DFL if self._handler is None else self._handler)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        row, since = self.progress
        if row == IDLE:
            return
        left = since + self.limit - monotonic()
        if left <= 0:
            raise Hang
        setitimer(ITIMER_REAL, left, self.limit)  # another environment has had its turn in between
