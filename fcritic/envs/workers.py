"""Environments spread over worker processes. All get their actions first, then all are waited for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import os
from time import monotonic
from typing import Any
import weakref

import numpy as np

from fcritic.envs.base import EnvState
from fcritic.envs.channel import pack_states, unpack_states
from fcritic.envs.group import AbstractGroup, Trouble
from fcritic.envs.memory import SharedMemory
from fcritic.envs.process import GRACE, NOTHING, Lost, WorkerProcess
from fcritic.errors import EnvironmentFault, UsageError
from fcritic.types import EnvSpec

START_LIMIT = 120.0
"""Seconds for what is done rarely: building environments, telling and restoring their states."""

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
        """The state of every environment; None for those that cannot tell it."""
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
