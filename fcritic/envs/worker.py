"""The program of a worker process: ``python -m fcritic.envs.worker``. It runs environments and nothing else.

It imports no JAX, listens on a socket of its own (what environments print goes to the standard error), leaves
Ctrl-C and polite requests to end to its parent, which may still want to save, and dies with its parent.
"""

import ctypes
import mmap
import os
import select
import signal
import socket
import sys
import threading
from typing import Any

from fcritic import envs
from fcritic.envs.group import Board, Trouble
from fcritic.envs.local import LocalGroup, Watch
from fcritic.envs.workers import DONE, STEP, Channel, pack_states, progress_of, unpack_states, whole_board
from fcritic.errors import UsageError

_PR_SET_PDEATHSIG = 1


class Worker:
    """Answers what a `WorkerGroup` asks, until the channel closes."""

    def __init__(self, channel: Channel, memory: int, number: int, timeout: float):
        self._channel, self._memory = channel, memory
        self._watch = Watch(timeout, progress_of(mmap.mmap(memory, 0), number))
        self._group: Any = None  # a LocalGroup, once it is built

    def run(self) -> None:
        """Answers until the parent is gone."""
        try:
            while True:
                if self._channel.receive_kind() == STEP:
                    self._reply(self._group.step(self._group.board.actions))
                else:
                    self._obey(*self._channel.receive())
        except (EOFError, ConnectionError):
            if self._group is not None:
                self._group.close()

    def _reply(self, troubles: list[Trouble]) -> None:
        if troubles:
            self._channel.send({"troubles": troubles})
        else:
            self._channel.send_kind(DONE)

    def _obey(self, message: dict, arrays: dict) -> None:
        order, group = message.pop("order"), self._group
        try:
            if order == "build":
                self._build(**message)
            elif order == "share":
                self._share(**message)
            elif order == "step":
                self._reply(group.step(group.board.actions, message["rows"]))
            elif order == "reset":
                self._reply(group.reset(message["rows"]))
            elif order == "reseed":
                group.reseed(dict(message["seeds"]))
                self._reply([])
            elif order == "rebuild":
                self._reply(group.rebuild(dict(message["seeds"])))
            elif order == "states":
                states, troubles = group.states()
                known = {row: state for row, state in enumerate(states) if state is not None}
                self._channel.send({"troubles": troubles}, pack_states(known))
            else:
                self._reply(group.restore(unpack_states(arrays)))
        except UsageError as error:
            self._channel.send({"usage": str(error)})

    def _build(self, task: str, action_repeat: int, seeds: list[int], proven: bool) -> None:
        def build(seed: int) -> envs.AbstractEnv:
            return envs.make(task, seed=seed, action_repeat=action_repeat)

        built = []
        for row, seed in enumerate(seeds):
            self._watch.begin(row)
            try:
                built.append(build(seed))
            except UsageError:
                raise
            except Exception as error:
                what = f"build raised {type(error).__name__}: {' '.join(str(error).split())[:500]}"
                self._channel.send({"troubles": [(row, "build", what)]})
                return
        self._watch.close()
        self._group = LocalGroup(built, build, self._watch)
        self._group.proven = proven
        spec = self._group.spec
        self._channel.send({"spec": [spec.obs_dim, spec.act_dim], "names": self._group.names})

    def _share(self, workers: int, count: int, start: int) -> None:
        spec, own = self._group.spec, len(self._group.names)
        board: Board = whole_board(mmap.mmap(self._memory, 0), workers, count, spec)
        self._group.board = board.rows(start, start + own)
        self._reply([])


def _die_with(parent: int, descriptor: int, parent_is_main_thread: bool) -> None:
    """Ends this process when the parent has gone, even in the middle of a step that never ends."""
    if sys.platform == "linux" and parent_is_main_thread:
        # The signal comes when the thread that started this process ends, so only the main thread will do.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)

    def watch() -> None:
        hang_up = select.poll()
        hang_up.register(descriptor, 0)  # nothing but the other end's closing
        hang_up.poll()
        # The main thread, if it is idle, is closing the environments now; if it is not, it never will.
        threading.Event().wait(5.0)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Serves the parent that has started this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    descriptor, memory, number, parent, in_main_thread = (int(word) for word in sys.argv[1:6])
    _die_with(parent, descriptor, bool(in_main_thread))
    channel = Channel(socket.socket(fileno=descriptor))
    Worker(channel, memory, number, float(sys.argv[6])).run()
    sys.stdout.flush()
    os._exit(0)  # whatever threads the environments have left behind


if __name__ == "__main__":
    main()
