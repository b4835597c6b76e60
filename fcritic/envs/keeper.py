"""What is done about environments that break their promise: stop, or replace them and go on."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, NoReturn

import numpy as np

from fcritic.envs.answers import judge_first, judge_step, sound
from fcritic.envs.base import EnvState
from fcritic.envs.group import AbstractGroup, Trouble
from fcritic.errors import EnvironmentFault

OnFault = Literal["stop", "skip", "rollback"]

PATIENCE = 3
"""Faults of one environment without a good step in between after which it is given up."""


class Fault(NamedTuple):
    """A fault that was skipped: the environment has been rebuilt and plays a new episode."""

    seed_index: int
    env_index: int
    what: str
    """Names the environment and says what was wrong."""
    step: int
    """Steps that each environment had taken before."""


class Keeper:
    """A group of shape (seeds, envs) in which every call succeeds for all environments, or raises.

    It raises `EnvironmentFault` at the first trouble, unless `on_fault` is ``skip``: then sick environments
    are rebuilt with new seeds, until one has failed `PATIENCE` times in a row.
    """

    def __init__(self, group: AbstractGroup, seeds: Sequence[Sequence[int]], on_fault: OnFault):
        self.group, self._on_fault = group, on_fault
        self.seeds = np.array(seeds, np.int64)
        """What the copies were built with, (seeds, envs)."""
        self.counts = np.zeros(self.seeds.shape, np.int64)
        """Faults of each environment so far."""
        self.steps = 0
        """Steps taken by each environment; it is the vector that counts, and messages tell it."""
        self.length = np.zeros(self.seeds.shape, np.int64)
        """Steps into the present episode of each environment; counted by the vector, too."""
        self.faults: list[Fault] = []
        self._sick: set[int] = set()  # rows that raised and were not rebuilt

    def begin(self, rows: Iterable[int]) -> set[int]:
        """Begins an episode in each of the rows; returns others that had to begin one too."""
        return self._settle(self._reset(list(rows)))

    def _settle(self, troubles: list[Trouble]) -> set[int]:
        """Replaces the troubled until none is left; returns the rows that now have an episode just begun."""
        renewed, failed = set(), Counter()
        while troubles:
            self._face(troubles, failed)
            renewed |= {trouble.row for trouble in troubles}
            troubles = self._renew(troubles)
        return renewed

    def _reset(self, rows: list[int]) -> list[Trouble]:
        troubles = self.group.reset(rows) if rows else []
        bad = {trouble.row for trouble in troubles}
        return troubles + judge_first(self.group.board, (row for row in rows if row not in bad))

    def step(self, actions: np.ndarray) -> tuple[dict[int, np.ndarray], set[int]]:
        """Takes `actions` in all environments.

        Returns the first observation of every row that had to begin a new episode to take its action, and the
        rows whose episode was lost after a good step. Both are empty in healthy times.
        """
        troubles = self.group.step(actions)
        if not troubles and sound(self.group.board):
            return {}, set()
        troubles = self._complete(troubles, range(len(actions)))
        failed, again, started, cut = Counter(), set(), {}, set()
        while troubles:
            self._face(troubles, failed)
            again |= {trouble.row for trouble in troubles if trouble.during == "step"}
            cut |= {trouble.row for trouble in troubles}
            troubles = self._renew(troubles)
            ready = sorted(again - {trouble.row for trouble in troubles})
            if ready:
                started |= {row: self.group.board.first_obs[row].copy() for row in ready}
                troubles += self._complete(self.group.step(actions, ready), ready)
                again -= set(ready)
                cut -= set(ready)
        return started, cut

    def _complete(self, troubles: list[Trouble], rows: Iterable[int]) -> list[Trouble]:
        """The troubles of a step, with those that only show in the numbers."""
        known = {(trouble.row, trouble.during) for trouble in troubles}
        healthy = [row for row in rows if (row, "step") not in known]
        judged = judge_step(self.group.board, healthy)
        return troubles + [new for new in judged if (new.row, new.during) not in known]

    def _face(self, troubles: list[Trouble], failed: Counter) -> None:
        """Writes faults down, or raises the worst where that is the rule or patience has run out."""
        culprits = [trouble for trouble in troubles if not trouble.lost] or troubles
        failed.update({trouble.row for trouble in culprits})
        worst = max(culprits, key=lambda trouble: failed[trouble.row])
        if self._on_fault != "skip" or failed[worst.row] >= PATIENCE:
            self._sick |= {trouble.row for trouble in troubles}
            self.fail(worst, failed[worst.row])
        for trouble in troubles:
            place = self.place(trouble.row)
            self.counts[place] += 1
            what = f"{self._where(trouble.row)}: {trouble.what}"
            self.faults.append(Fault(*place, what, self._time(trouble)[0]))

    def _renew(self, troubles: list[Trouble]) -> list[Trouble]:
        """New environments with episodes just begun in place of the troubled ones; returns new troubles."""
        rows = sorted({trouble.row for trouble in troubles})
        new = self.group.rebuild({row: self._renewed_seed(row) for row in rows})
        bad = {trouble.row for trouble in new}
        return new + self._reset([row for row in rows if row not in bad])

    def _renewed_seed(self, row: int) -> int:
        """Never a seed that the environment has had, and the same one when a saved run comes here again."""
        place = self.place(row)
        return int(np.random.SeedSequence([int(self.seeds[place]), int(self.counts[place])]).generate_state(1)[0])

    def restart(self, seeds: Sequence[Sequence[int]]) -> None:
        """Gives every environment its seed, as if it had just been built; episodes are not yet begun."""
        self.seeds = np.array(seeds, np.int64).reshape(self.seeds.shape)
        self.counts = np.zeros_like(self.counts)
        self._cure()
        self.group.reseed(dict(enumerate(self.seeds.ravel().tolist())))

    def states(self) -> tuple[list[EnvState | None], set[int]]:
        """The state of every environment, and the rows whose episode was lost before it could be told."""
        lost: set[int] = set()
        for _ in range(PATIENCE):
            states, troubles = self.group.states()
            if not troubles:
                return states, lost
            lost |= self._settle(troubles)
        self.fail(troubles[0], PATIENCE)

    def restore(self, states: Mapping[int, EnvState], seeds: Mapping[int, int]) -> set[int]:
        """Puts environments back to saved states; the others begin an episode with a new seed.

        Returns the rows that begin an episode.
        """
        self._cure()
        troubles = self.group.restore(states) if states else []
        if troubles:
            self._sick |= {trouble.row for trouble in troubles}
            self.fail(troubles[0])
        self.group.reseed(seeds)
        return {*seeds, *self.begin(seeds)}

    def _cure(self) -> None:
        """Replaces environments that raised, now that someone wants to go on all the same."""
        if self._sick:
            troubles = self.group.rebuild({row: self._renewed_seed(row) for row in sorted(self._sick)})
            if troubles:
                self.fail(troubles[0])
            self._sick.clear()

    def place(self, row: int) -> tuple[int, int]:
        """Seed index and environment index of a row."""
        return divmod(row, self.seeds.shape[1])

    def _where(self, row: int) -> str:
        seed_index, env_index = self.place(row)
        return f"{self.group.names[row]} (seed index {seed_index}, environment {env_index})"

    def _time(self, trouble: Trouble) -> tuple[int, int]:
        """The step and the steps into the episode."""
        step, length = self.steps, int(self.length[self.place(trouble.row)])
        # The first observation after an episode's end comes with its last step, and belongs to the next.
        return (step + 1, 0) if trouble.during == "reset" and length else (step, length)

    def fail(self, trouble: Trouble, times: int = 1) -> NoReturn:
        """Raises the fault that names the environment, the step and the field."""
        step, length = self._time(trouble)
        often = f", for the {times}rd time in a row" if times >= PATIENCE else ""
        at = f"at step {step}, {length} steps into its episode{often}"
        error = EnvironmentFault(f"{self._where(trouble.row)}: {trouble.what} {at}")
        if trouble.trace:
            error.add_note(trouble.trace)
        raise error
