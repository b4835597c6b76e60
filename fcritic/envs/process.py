"""One worker process, seen from the training."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from time import monotonic, sleep

import numpy as np

from fcritic.envs.channel import MESSAGE, STEP, Channel
from fcritic.envs.memory import SharedMemory
from fcritic.envs.watch import IDLE
from fcritic.errors import UsageError

GRACE = 1.0
"""Seconds that a worker has beyond the limit, to interrupt a slow environment by itself and lose no other."""


STALL = 60.0
"""Seconds without progress in the middle of a message after which the other side is taken for dead."""

NOTHING: tuple[dict, dict[str, np.ndarray]] = ({}, {})
"""The answer that all is well."""


class Lost(Exception):
    """The process is gone. `row` is the one that was being called, where that is known."""

    def __init__(self, row: int | None, what: str):
        super().__init__(what)
        self.row, self.what = row, what


class WorkerProcess:
    """A process with the environments `rows`. It does not exist until `start`."""

    def __init__(self, number: int, rows: range, memory: SharedMemory, timeout: float):
        self.rows = rows
        self._number, self._memory, self._timeout = number, memory, timeout
        self._channel: Channel | None = None
        self._process: subprocess.Popen | None = None
        self._busy = False

    @property
    def alive(self) -> bool:
        """Whether there is a process to talk to."""
        return self._channel is not None

    @property
    def pid(self) -> int | None:
        """The number of the process, where there is one."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Starts the process; it is ready when it answers."""
        self.kill()
        self._progress = self._memory.progress(self._number)
        ours, theirs = socket.socketpair()
        descriptors = (theirs.fileno(), self._memory.descriptor)
        in_main_thread = threading.current_thread() is threading.main_thread()
        words = (*descriptors, self._number, os.getpid(), int(in_main_thread), self._timeout)
        # Not this process's group: Ctrl-C is for the training, which asks its workers for their states then.
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "fcritic.envs.worker", *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what environments print must not mix with what the training prints
                pass_fds=descriptors,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )
        except OSError as error:
            ours.close()
            raise UsageError(f"cannot start a worker process ({error}); lower --env-processes") from error
        finally:
            theirs.close()
        ours.settimeout(STALL)
        self._channel, self._busy = Channel(ours), False
        self._poll = select.poll()
        self._poll.register(ours.fileno(), select.POLLIN)

    def send(self, message: dict | None, arrays: dict[str, np.ndarray] | None = None) -> None:
        """Asks for something, or for a step where `message` is None. What cannot be sent shows in `receive`."""
        if self._busy:  # an exception came between question and answer: what it says now is not to be trusted
            self.kill()
        if self._channel is None:
            return
        self._busy, self._sent_at = True, monotonic()
        with contextlib.suppress(ConnectionError, TimeoutError):
            if message is None:
                self._channel.send_kind(STEP)
            else:
                self._channel.send(message, arrays)

    def receive(self, limit: float) -> tuple[dict, dict[str, np.ndarray]]:
        """The answer, or `Lost`. `limit` is in seconds and counts anew with each environment that is called."""
        if self._channel is None:
            raise Lost(None, "its process is gone")
        self._wait(limit)
        try:
            answer = self._channel.receive() if self._channel.receive_kind() == MESSAGE else NOTHING
        except (EOFError, ConnectionError, TimeoutError):
            row = self._row()
            raise Lost(row, self._bury()) from None
        self._busy = False
        return answer

    def _wait(self, limit: float) -> None:
        left = limit
        while not self._poll.poll(left * 1000):
            since = max(self._sent_at, float(self._progress[1]))
            left = since + limit - monotonic()
            if left <= 0:
                row = self._row()
                self.kill()
                raise Lost(row, f"no answer within {limit:g} s; its process was killed")

    def _row(self) -> int | None:
        row = int(self._progress[0])
        return None if row == IDLE else self.rows.start + row

    def _bury(self) -> str:
        """Says how the process ended, and removes what is left of it."""
        for _ in range(100):  # it may take a moment from the end of the conversation to the end of the process
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if ended is not None:
                break
            sleep(0.01)
        self.kill()
        if ended is None:
            return "its process stopped answering"
        if ended.si_code == os.CLD_EXITED:
            return f"its process ended with exit code {ended.si_status}"
        return f"its process was killed by {signal.Signals(ended.si_status).name}"

    def hang_up(self) -> None:
        """Ends the conversation; the process closes its environments and ends."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def kill(self, patience: float = 0.0) -> None:
        """Ends the process, and whatever its environments have started, after some seconds of patience."""
        self.hang_up()
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            if patience > 0:
                self._process.wait(patience)
        # While it has not been waited for, its number belongs to no other process.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None
