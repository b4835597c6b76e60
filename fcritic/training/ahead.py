"""The programs of a training, compiled in a thread of their own while the environments warm up.

JAX keeps what any thread has compiled, so the loop calls its programs as ever and finds them there. The thread has
shapes alone: it holds no array that the loop would have to give away.
"""

from collections.abc import Callable
from concurrent.futures import Future
import threading

from fcritic.training.learning import Learning
from fcritic.training.train_state import Flat


class Ahead:
    """What acting and learning need from iteration `first` up to `last`, in the order in which they need it."""

    def __init__(self, learning: Learning, state: Flat, first: int, last: int):
        self._learning, self._shapes = learning, state.shapes
        needed: dict[tuple[bool, ...], int] = {}
        # Which updates are due repeats after `actor_delay` iterations.
        for number in range(first, min(last, first + learning.agent.actor_delay)):
            needed.setdefault(learning.agent.actor_due(number), number)
        self._to_act = Future() if needed else None
        self._to_learn = {due: Future() for due in needed}
        if needed:  # no daemon: a process that ends in the middle of a compilation may crash
            jobs = list(zip(needed.values(), self._to_learn.values(), strict=True))
            threading.Thread(target=self._compile, args=(self._to_act, jobs), name="compiling ahead").start()

    def _compile(self, to_act: Future, to_learn: list[tuple[int, Future]]) -> None:
        try:
            for program in self._learning.lowered_acting(self._shapes):
                program.compile()
            to_act.set_result(None)
            for number, ready in to_learn:
                self._learning.lowered(self._shapes, number).compile()
                ready.set_result(None)
        except BaseException as error:  # whoever waits has to know, whatever it is
            for ready in (to_act, *[ready for _, ready in to_learn]):
                if not ready.done():
                    ready.set_exception(error)

    def tell_when_ready(self, tell: Callable[[], None]) -> None:
        """Calls `tell` for each of the programs to learn with, once it is there."""
        for ready in self._to_learn.values():
            ready.add_done_callback(lambda _: tell())

    def wait_to_act(self) -> None:
        """Until the programs of acting are there; what went wrong in compiling them is raised here."""
        if self._to_act is not None:
            self._to_act.result()
            self._to_act = None

    def wait_to_learn(self, iteration: int) -> None:
        """The same for what an iteration learns with."""
        if self._to_learn:
            ready = self._to_learn.pop(self._learning.agent.actor_due(iteration), None)
            if ready is not None:
                ready.result()
