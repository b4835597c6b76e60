"""Environments in one process, one after the other, each call within a limit of time. Workers use it for theirs."""

from collections.abc import Callable, Iterable, Mapping
import contextlib
from signal import ITIMER_REAL, SIG_DFL, SIGALRM, setitimer, signal
import threading
from time import monotonic
import traceback
from types import FrameType
from typing import Self

import numpy as np

from fcritic.envs.answers import WrongAnswer, behind_wrappers, numbers, write_step
from fcritic.envs.base import AbstractEnv, EnvState
from fcritic.envs.group import AbstractGroup, Board, Trouble
from fcritic.errors import UsageError

IDLE = -1

LONGEST = 1e6
"""The largest limit in seconds; timers hold little more."""


class Hang(BaseException):
    """Raised inside an environment that takes too long; not an `Exception`, so that few environments catch it."""


class Watch:
    """Interrupts a call that takes longer than `limit` seconds, where that is possible.

    It uses the alarm signal, so it works in the main thread alone, and only while Python code runs: a loop in
    C cannot be interrupted, which is what worker processes are for. An alarm that someone else has set is
    left alone, and nothing is watched until it has rung.

    ``progress`` holds the row that is being called (or `IDLE`) and since when. In a worker process it is
    shared with the parent, which sees there which environment hangs.
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


def in_words(phase: str, error: BaseException, limit: float) -> str:
    """Returns one line on an error in a call of an environment that has `limit` seconds."""
    if isinstance(error, Hang):
        return f"{phase} took longer than {limit:g} s"
    if isinstance(error := behind_wrappers(error) or error, WrongAnswer | UsageError):
        return str(error)
    text = " ".join(str(error).split())[:500]
    return f"{phase} raised {type(error).__name__}{': ' if text else ''}{text}"


Build = Callable[[int], AbstractEnv]
"""Makes an environment from a seed."""


class LocalGroup(AbstractGroup):
    """Environments that share a process. Without `build`, faulty ones can be reseeded but not replaced."""

    def __init__(self, envs: list[AbstractEnv], build: Build | None = None, watch: Watch | None = None):
        self._envs, self._build = envs, build
        self._watch = Watch(60.0) if watch is None else watch
        self._phase = "step"
        self.proven = False
        """Whether every environment has been used; before that, a `UsageError` is raised rather than a fault."""
        self.spec = envs[0].spec
        if any(env.spec != self.spec for env in envs):
            raise ValueError("all environments must have the same sizes of observation and action")
        self.names = [env.name or type(env).__name__ for env in envs]
        self.board = Board(len(envs), self.spec)

    def step(self, actions: np.ndarray, rows: Iterable[int] | None = None) -> list[Trouble]:
        """Takes `actions` in all environments or only in `rows`; then begins what has ended."""
        actions = actions.copy()  # an environment may change or keep what it gets
        rows = range(len(self._envs)) if rows is None else rows
        return self._each(rows, lambda row: self._step(row, actions[row]))

    def _step(self, row: int, action: np.ndarray) -> None:
        self._phase = "step"
        if write_step(self.board, row, self._envs[row].step(action)):
            self.board.success[row] = self._envs[row].success
            self._watch.begin(row)
            self._reset(row)

    def _reset(self, row: int) -> None:
        self._phase = "reset"
        self.board.first_obs[row] = numbers("observation", self._envs[row].reset(), (self.spec.obs_dim,))

    def _each(self, rows: Iterable[int], call: Callable[[int], None], limited: bool = True) -> list[Trouble]:
        """Calls for every row and collects what goes wrong; the limit on time is for steps and resets."""
        troubles, watch = [], self._watch
        with watch if limited else contextlib.closing(watch):
            for row in rows:
                try:
                    trouble = self._one(row, call)
                except Hang as late:  # the alarm came just as the call ended
                    trouble = self._trouble(row, late)
                if trouble is not None:
                    troubles.append(trouble)
        return troubles

    def _one(self, row: int, call: Callable[[int], None]) -> Trouble | None:
        self._watch.begin(row)
        try:
            call(row)
        except (Exception, SystemExit, Hang) as error:
            if isinstance(error, UsageError) and not self.proven:
                raise
            return self._trouble(row, error)
        return None

    def _trouble(self, row: int, error: BaseException) -> Trouble:
        what = in_words(self._phase, error, self._watch.limit)
        return Trouble(row, self._phase, what, trace="".join(traceback.format_exception(error)))

    def reset(self, rows: Iterable[int]) -> list[Trouble]:
        """Begins an episode in each of the rows."""
        troubles = self._each(rows, self._reset)
        self.proven = self.proven or not troubles
        return troubles

    def reseed(self, seeds: Mapping[int, int]) -> None:
        """Gives new seeds, by row; they hold from the next `reset` on."""
        for row, seed in seeds.items():
            self._envs[row].reseed(seed)

    def rebuild(self, seeds: Mapping[int, int]) -> list[Trouble]:
        """Replaces environments by newly built ones, by row."""
        return self._each(seeds, lambda row: self._rebuild(row, seeds[row]), limited=False)

    def _rebuild(self, row: int, seed: int) -> None:
        self._phase = "build"
        if self._build is None:
            self._envs[row].reseed(seed)
            return
        # A faulty environment may fail in any way while it closes.
        with contextlib.suppress(Exception, SystemExit, Hang), self._watch:
            self._watch.begin(row)
            self._envs[row].close()
        self._watch.begin(row)
        self._envs[row] = self._build(seed)

    def states(self) -> tuple[list[EnvState | None], list[Trouble]]:
        """The state of every environment; None for those that cannot be saved."""
        states: list[EnvState | None] = [None] * len(self._envs)

        def ask(row: int) -> None:
            self._phase = "state"
            states[row] = self._envs[row].state()

        return states, self._each(range(len(states)), ask, limited=False)

    def restore(self, states: Mapping[int, EnvState]) -> list[Trouble]:
        """Puts environments back to saved states, by row."""

        def put_back(row: int) -> None:
            self._phase = "restore"
            self._envs[row].restore(states[row])

        return self._each(states, put_back, limited=False)

    def close(self) -> None:
        """Closes every environment."""
        for env in self._envs:
            env.close()
