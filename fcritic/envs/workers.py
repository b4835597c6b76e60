"""Environments spread over worker processes. All get their actions first, then all are waited for.

Training and workers talk through a socket: JSON and raw arrays, never code. A message begins with a byte for its
kind. `MESSAGE` is followed by the lengths of a JSON object and of a safetensors block, and by these. The step of a
training and the usual answer to it are that byte alone, because actions and answers lie in memory that both share.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import contextlib
import json
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from time import monotonic, sleep
from typing import Any
import weakref

import numpy as np
import safetensors.numpy

from fcritic.envs.base import EnvState
from fcritic.envs.group import AbstractGroup, Board, Trouble
from fcritic.envs.local import IDLE
from fcritic.errors import EnvironmentFault, UsageError
from fcritic.types import EnvSpec

# How a training and its worker processes talk

MESSAGE, STEP, DONE = b"m", b"s", b"."

_LENGTHS = struct.Struct("<II")


class Channel:
    """One end of a conversation. Reading from an end whose other side is gone raises EOFError."""

    def __init__(self, end: socket.socket):
        self._socket = end
        self.descriptor = end.fileno()

    def send_kind(self, kind: bytes) -> None:
        """Sends a single byte."""
        os.write(self.descriptor, kind)  # half the time of the socket's own method

    def send(self, message: dict, arrays: dict[str, np.ndarray] | None = None) -> None:
        """Sends an object and named arrays."""
        text = json.dumps(message).encode()
        block = safetensors.numpy.save(arrays) if arrays else b""
        self._socket.sendall(MESSAGE + _LENGTHS.pack(len(text), len(block)) + text + block)

    def receive_kind(self) -> bytes:
        """The first byte of a message; waits for it, unless the socket has a timeout."""
        kind = os.read(self.descriptor, 1)
        if not kind:
            raise EOFError
        return kind

    def receive(self) -> tuple[dict, dict[str, np.ndarray]]:
        """The rest of a message whose first byte was `MESSAGE`."""
        text_length, block_length = _LENGTHS.unpack(self._read(_LENGTHS.size))
        message = json.loads(self._read(text_length))
        return message, safetensors.numpy.load(self._read(block_length)) if block_length else {}

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def close(self) -> None:
        """Ends the conversation; the other side notices."""
        self._socket.close()


def pack_states(states: dict[int, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The states of environments as one set of named arrays: ``<row>/<name>``."""
    return {f"{row}/{name}": value for row, state in states.items() for name, value in state.items()}


def unpack_states(arrays: dict[str, np.ndarray]) -> dict[int, dict[str, np.ndarray]]:
    """What `pack_states` has packed."""
    states: dict[int, dict[str, np.ndarray]] = {}
    for key, value in arrays.items():
        row, _, name = key.partition("/")
        states.setdefault(int(row), {})[name] = value
    return states


# Shared memory: the row that is being called, and the board

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
        """Returns the row that a worker is calling and since when; idle at first."""
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


# One worker process, seen from the training

GRACE = 1.0
"""Seconds that a worker has beyond the limit, to interrupt a slow environment by itself and lose no other."""


STALL = 60.0
"""Seconds without progress in the middle of a message after which the other side counts as dead."""

NOTHING: tuple[dict, dict[str, np.ndarray]] = ({}, {})
"""The usual answer, without troubles."""


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
        if self._busy:  # an exception came between question and answer: its answer cannot be trusted
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
            raise Lost(row, self._reap()) from None
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

    def _reap(self) -> str:
        """Removes what is left of a process that ended, and returns how it ended."""
        assert self._process is not None
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


# All of them

START_LIMIT = 120.0
"""Seconds for rare calls: building environments, saving and restoring their states."""

Message = tuple[dict | None, dict[str, np.ndarray] | None]


class WorkerGroup(AbstractGroup):
    """Environments of a task in `processes` worker processes, each with a stretch of the rows.

    A worker interrupts an environment that takes too long by itself where it can, so its others are not
    harmed. One that cannot be interrupted, or that takes its process down, costs the other environments of
    that process their episodes: they come back as troubles that are ``lost``.
    """

    def __init__(self, task: str, *, seeds: Sequence[int], action_repeat: int, processes: int, timeout: float):
        self._task, self._action_repeat = task, action_repeat
        self._limit = timeout + GRACE
        processes = min(processes, len(seeds))
        bounds = np.linspace(0, len(seeds), processes + 1).astype(int).tolist()
        self._memory = SharedMemory(processes)
        self._workers = [
            WorkerProcess(number, range(bounds[number], bounds[number + 1]), self._memory, timeout)
            for number in range(processes)
        ]
        self._finalizer = weakref.finalize(self, _stop, self._workers, self._memory, os.getpid())
        self.spec: EnvSpec | None = None
        self.names = [task] * len(seeds)
        try:
            troubles = self._start(self._workers, dict(enumerate(seeds)))
        except BaseException:
            self.close()
            raise
        if troubles:
            self.close()
            worst = next((trouble for trouble in troubles if not trouble.lost), troubles[0])
            raise EnvironmentFault(f"{task}: {worst.what} while environment {worst.row} was being built")

    def _start(self, workers: list[WorkerProcess], seeds: Mapping[int, int]) -> list[Trouble]:
        """Starts processes and builds their environments, all at the same time."""
        for worker in workers:
            worker.start()
        proven = self.spec is not None
        order = {"order": "build", "task": self._task, "action_repeat": self._action_repeat, "proven": proven}
        replies, troubles = self._ask(workers, lambda w: (order | {"seeds": [seeds[row] for row in w.rows]}, None))
        if troubles:
            for worker in workers:
                if any(trouble.row in worker.rows for trouble in troubles):
                    worker.kill()
            return self._with_neighbours(troubles)
        specs = {EnvSpec(*reply["spec"]) for reply, _ in replies.values()}
        if len(specs | ({self.spec} if self.spec else set())) > 1:
            raise UsageError(f"{self._task}: its sizes differ from copy to copy: {specs}; correct the environment")
        if self.spec is None:
            self.spec = specs.pop()
            self.board = self._memory.board(len(self.names), self.spec)
        for worker, (reply, _) in replies.items():
            self.names[worker.rows.start : worker.rows.stop] = reply["names"]
        share = {"order": "share", "workers": len(self._workers), "count": len(self.names)}
        return self._ask(workers, lambda w: (share | {"start": w.rows.start}, None))[1]

    def _with_neighbours(self, troubles: list[Trouble]) -> list[Trouble]:
        """Troubles of building, with the environments whose process has not come about because of them."""
        known = {trouble.row for trouble in troubles}
        rows = {row for w in self._workers if known & {*w.rows} for row in w.rows} - known
        lost = "its process could not be started, because of another environment in it"
        return troubles + [Trouble(row, "build", lost, lost=True) for row in sorted(rows)]

    def _ask(
        self,
        workers: Iterable[WorkerProcess],
        question: Callable[[WorkerProcess], Message],
        limit: float = START_LIMIT,
    ) -> tuple[dict[WorkerProcess, tuple[dict, Any]], list[Trouble]]:
        """Asks all, then waits for all. Returns the answers of those that live and the troubles of all."""
        workers = list(workers)
        order = "step"
        for worker in workers:
            message, arrays = question(worker)
            order = message["order"] if message else "step"
            worker.send(message, arrays)
        replies, troubles, unusable = {}, [], None
        for worker in workers:
            try:
                reply = replies[worker] = worker.receive(limit)
            except Lost as lost:
                troubles += _losses(worker, lost, order)
                continue
            if reply is not NOTHING:
                unusable = reply[0].get("usage", unusable)
                found = reply[0].get("troubles", ())
                troubles += [Trouble(row + worker.rows.start, *rest) for row, *rest in found]
        if unusable:
            raise UsageError(unusable + self._advice(unusable))
        return replies, troubles

    def _advice(self, unusable: str) -> str:
        if "unknown task" not in unusable and "has no environment" not in unusable:
            return ""
        return "; worker processes find an id of your own as module:Name-v0, where the module registers it"

    def step(self, actions: np.ndarray, rows: Iterable[int] | None = None) -> list[Trouble]:
        """Takes `actions` in all environments or only in `rows`; then begins what has ended."""
        self.board.actions[:] = actions
        if rows is None:
            return self._ask(self._workers, lambda worker: (None, None), self._limit)[1]
        return self._ask_rows("step", rows)

    def reset(self, rows: Iterable[int]) -> list[Trouble]:
        """Begins an episode in each of the rows."""
        return self._ask_rows("reset", rows)

    def _ask_rows(self, order: str, rows: Iterable[int]) -> list[Trouble]:
        asked = set(rows)
        own = lambda worker: sorted(row - worker.rows.start for row in asked & {*worker.rows})
        workers = [worker for worker in self._workers if own(worker)]
        troubles = self._ask(workers, lambda worker: ({"order": order, "rows": own(worker)}, None), self._limit)[1]
        # Those that were lost without being asked have taken their step before: it must not be repeated.
        return [t if t.row in asked or t.during != "step" else t._replace(during="reset") for t in troubles]

    def reseed(self, seeds: Mapping[int, int]) -> None:
        """Gives new seeds, by row; they hold from the next `reset` on."""
        self._give_seeds("reseed", self._workers, seeds)

    def rebuild(self, seeds: Mapping[int, int]) -> list[Trouble]:
        """Replaces environments by newly built ones, by row, and processes that are gone by new ones."""
        dead = [worker for worker in self._workers if not worker.alive and seeds.keys() & {*worker.rows}]
        living = [worker for worker in self._workers if worker.alive]
        troubles = self._give_seeds("rebuild", living, seeds)
        return troubles + (self._start(dead, seeds) if dead else [])

    def _give_seeds(self, order: str, workers: list[WorkerProcess], seeds: Mapping[int, int]) -> list[Trouble]:
        own = lambda worker: [(row - worker.rows.start, seeds[row]) for row in worker.rows if row in seeds]
        workers = [worker for worker in workers if own(worker)]
        return self._ask(workers, lambda worker: ({"order": order, "seeds": own(worker)}, None))[1]

    def states(self) -> tuple[list[EnvState | None], list[Trouble]]:
        """The state of every environment; None for those that cannot be saved."""
        replies, troubles = self._ask(self._workers, lambda worker: ({"order": "states"}, None))
        states: list[EnvState | None] = [None] * len(self.names)
        for worker, (_, arrays) in replies.items():
            for row, state in unpack_states(arrays).items():
                states[worker.rows.start + row] = state
        return states, troubles

    def restore(self, states: Mapping[int, EnvState]) -> list[Trouble]:
        """Puts environments back to saved states, by row."""
        own = lambda worker: {row - worker.rows.start: states[row] for row in worker.rows if row in states}
        workers = [worker for worker in self._workers if own(worker)]
        return self._ask(workers, lambda worker: ({"order": "restore"}, pack_states(own(worker))))[1]

    @property
    def pids(self) -> list[int | None]:
        """The number of each process; None for one that is gone."""
        return [worker.pid for worker in self._workers]

    def close(self) -> None:
        """Ends all processes."""
        self._finalizer()


def _losses(worker: WorkerProcess, lost: Lost, order: str) -> list[Trouble]:
    """The troubles of a whole process; only the environment that was being called is to blame."""
    during = "step" if order == "step" else "reset"
    others = f"its process was lost because of another environment in it: {lost.what}"
    blame = {row: lost.row is None or row == lost.row for row in worker.rows}
    return [Trouble(row, during, lost.what if guilty else others, not guilty) for row, guilty in blame.items()]


def _stop(workers: list[WorkerProcess], memory: SharedMemory, owner: int) -> None:
    if os.getpid() != owner:  # a forked copy of the training: the processes are not its own
        return
    for worker in workers:
        worker.hang_up()
    deadline = monotonic() + 5.0
    for worker in workers:
        worker.kill(patience=max(0.01, deadline - monotonic()))
    memory.close()
