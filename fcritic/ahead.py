"""The programs of a training, compiled in a thread of their own while the environments warm up.

JAX keeps what any thread has compiled, so the loop calls its programs as ever and finds them there. The thread has
shapes alone: it holds no array that the loop would have to give away.
"""

from concurrent.futures import Future
import threading

from fcritic.learning import Learning
from fcritic.train_state import Flat


class Ahead:
    """What acting and learning need from iteration `first` up to `last`, in the order in which they need it."""

    def __init__(self, learning: Learning, state: Flat, first: int, last: int):
        self._learning, self._shapes = learning, state.shapes
        numbers = range(first, min(last, first + learning.agent.actor_delay))  # what is due repeats after these
        needed: dict[tuple[bool, ...], int] = {}
        for number in numbers:
            needed.setdefault(learning.agent.actor_due(number), number)
        self._ready = {due: Future() for due in needed}
        jobs = list(zip(needed.values(), self._ready.values(), strict=True))
        if jobs:  # no daemon: a process that ends in the middle of a compilation may crash
            threading.Thread(target=self._compile, args=(jobs,), name="compiling ahead").start()

    def _compile(self, jobs: list[tuple[int, Future]]) -> None:
        try:
            for program in self._learning.lowered_acting(self._shapes):
                program.compile()
            for number, ready in jobs:
                self._learning.lowered(self._shapes, number).compile()
                ready.set_result(None)
        except BaseException as error:  # whoever waits has to know, whatever it is
            for _, ready in jobs:
                if not ready.done():
                    ready.set_exception(error)

    def wait(self, iteration: int) -> None:
        """Until the programs of this iteration are there; what went wrong in compiling them is raised here."""
        if self._ready:
            ready = self._ready.pop(self._learning.agent.actor_due(iteration), None)
            if ready is not None:
                ready.result()
