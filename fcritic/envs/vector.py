"""Many copies of a task in lock-step, one row per seed, and the handling of those that fail."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
import math
from typing import Literal, NamedTuple, NoReturn

import numpy as np

from fcritic.envs.answers import describe, judge_first, judge_step, sound
from fcritic.envs.base import AbstractEnv, EnvState
from fcritic.envs.group import AbstractGroup, Trouble
from fcritic.envs.local import LocalGroup
from fcritic.errors import EnvironmentFault, UsageError
from fcritic.types import Transition

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

    It raises `EnvironmentFault` at the first trouble, unless `on_fault` is ``skip``: then faulty environments
    are rebuilt with new seeds, until one has failed `PATIENCE` times in a row.
    """

    def __init__(self, group: AbstractGroup, seeds: Sequence[Sequence[int]], on_fault: OnFault):
        self.group, self._on_fault = group, on_fault
        self.seeds = np.array(seeds, np.int64)
        self.shape: tuple[int, int] = (self.seeds.shape[0], self.seeds.shape[1])
        """What the copies were built with, (seeds, envs)."""
        self.counts = np.zeros(self.shape, np.int64)
        """Faults of each environment so far."""
        self.steps = 0
        """Steps taken by each environment, counted by the vector, for messages."""
        self.length: np.ndarray = np.zeros(self.shape, np.int64)
        """Steps into the present episode of each environment; counted by the vector, too."""
        self.faults: list[Fault] = []
        self._failed: set[int] = set()  # rows that failed and were not rebuilt

    def begin(self, rows: Iterable[int]) -> set[int]:
        """Begins an episode in each of the rows; returns others that had to begin one too."""
        return self._settle(self._reset(list(rows)))

    def _settle(self, troubles: list[Trouble]) -> set[int]:
        """Replaces the troubled until none is left; returns the rows that now have an episode just begun."""
        renewed, failed = set(), Counter()
        while troubles:
            self._record(troubles, failed)
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
        rows whose episode was lost after a good step. Both are empty without faults.
        """
        troubles = self.group.step(actions)
        if not troubles and sound(self.group.board):
            return {}, set()
        troubles = self._complete(troubles, range(len(actions)))
        failed, again, started, cut = Counter(), set(), {}, set()
        while troubles:
            self._record(troubles, failed)
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

    def _record(self, troubles: list[Trouble], failed: Counter) -> None:
        """Records the faults, or raises the worst one where faults stop or one environment fails too often."""
        culprits = [trouble for trouble in troubles if not trouble.lost] or troubles
        failed.update({trouble.row for trouble in culprits})
        worst = max(culprits, key=lambda trouble: failed[trouble.row])
        if self._on_fault != "skip" or failed[worst.row] >= PATIENCE:
            self._failed |= {trouble.row for trouble in troubles}
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
        self._rebuild_failed()
        self.group.reseed(dict(enumerate(self.seeds.ravel().tolist())))

    def states(self) -> tuple[list[EnvState | None], set[int]]:
        """Returns the state of every environment, and the rows whose episode was lost before it could be saved."""
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
        self._rebuild_failed()
        troubles = self.group.restore(states) if states else []
        if troubles:
            self._failed |= {trouble.row for trouble in troubles}
            self.fail(troubles[0])
        self.group.reseed(seeds)
        return {*seeds, *self.begin(seeds)}

    def _rebuild_failed(self) -> None:
        """Replaces environments that failed, before the vector is used again."""
        if self._failed:
            troubles = self.group.rebuild({row: self._renewed_seed(row) for row in sorted(self._failed)})
            if troubles:
                self.fail(troubles[0])
            self._failed.clear()

    def place(self, row: int) -> tuple[int, int]:
        """Seed index and environment index of a row."""
        return divmod(row, self.shape[1])

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


Rows = Sequence[Sequence[AbstractEnv]]


class Episode(NamedTuple):
    """An episode that has just ended."""

    seed_index: int
    env_index: int
    total_reward: float
    length_in_steps: int
    success: float | None
    """Whether it succeeded, 1 or 0; None where the task does not report it."""


class VectorEnv:
    """Environments of shape (seeds, envs) that take one step each per call.

    ``obs`` (seeds, envs, obs_dim) is what the next actions answer to, and ``fresh`` (seeds, envs) is True
    where that is the first observation of an episode. Arrays that have been handed out are never written
    again: a device may still be copying them.

    A faulty environment raises `EnvironmentFault`. With ``on_fault="skip"`` it is rebuilt instead, begins an
    episode, and the action is taken again from there, so a transition is always a true one; `take_faults`
    returns what happened. `seeds` are the numbers that the copies were built with; a group needs them.
    """

    def __init__(self, envs: Rows | AbstractGroup, seeds: Sequence[Sequence[int]] = (), on_fault: OnFault = "stop"):
        if isinstance(envs, AbstractGroup):
            self._group = envs
        else:
            if not envs or not envs[0] or any(len(row) != len(envs[0]) for row in envs):
                raise ValueError("envs must be a list of rows of equal length, at least one by one")
            self._group = LocalGroup([env for row in envs for env in row])
            seeds = seeds or [[0] * len(row) for row in envs]
        self._keeper = Keeper(self._group, seeds, on_fault)
        self.spec, self.shape = self._group.spec, self._keeper.shape
        try:
            self._begin_all()
        except BaseException:
            self.close()
            raise

    @property
    def steps(self) -> int:
        """Steps taken by each environment since the run began."""
        return self._keeper.steps

    @property
    def length(self) -> np.ndarray:
        """Steps into the present episode of each environment."""
        return self._keeper.length

    def restart(self, seeds: Sequence[Sequence[int]]) -> None:
        """Begins all episodes anew, as if every copy had just been built with its seed."""
        self._keeper.restart(seeds)
        self._begin_all()

    def _begin_all(self) -> None:
        self._keeper.steps = 0
        self._keeper.length = np.zeros(self.shape, np.int64)
        self._total_reward = np.zeros(self.shape)
        self._keeper.begin(range(self._total_reward.size))
        self.obs = self._group.board.first_obs.reshape(*self.shape, -1).copy()
        self.fresh = np.ones(self.shape, bool)

    def step(self, actions: np.ndarray) -> tuple[Transition, list[Episode]]:
        """Takes `actions` (seeds, envs, act_dim); finished environments begin their next episode at once.

        The transition holds the true last observation of an episode, ``self.obs`` the first of the next.
        """
        act = np.array(actions, np.float32)
        self._require_finite(act)
        started, cut = self._keeper.step(act.reshape(self._total_reward.size, -1))
        obs, board = self.obs, self._group.board
        if started:
            obs = obs.copy()
            for row, first in started.items():
                obs[self._begin_count(row)] = first
        next_obs = board.next_obs.reshape(obs.shape).copy()
        reward = board.reward.reshape(self.shape).copy()
        discount = board.discount.reshape(self.shape).copy()
        self._keeper.steps += 1
        self._total_reward += reward
        self._keeper.length += 1
        return Transition(obs, act, reward.astype(np.float32), discount, next_obs), self._advance(next_obs, cut)

    def _advance(self, next_obs: np.ndarray, cut: set[int]) -> list[Episode]:
        """Makes `next_obs` the present, with a new episode wherever one has finished or was lost."""
        self.fresh, self.obs = np.zeros(self.shape, bool), next_obs
        over = self._group.board.last
        finished = np.flatnonzero(over).tolist()
        if not finished and not cut:
            return []
        places = [self._keeper.place(row) for row in finished]
        told = self._group.board.success[finished].tolist()
        successes = [None if math.isnan(success) else success for success in told]
        episodes = [
            Episode(*at, float(self._total_reward[at]), int(self._keeper.length[at]), success)
            for at, success in zip(places, successes, strict=True)
        ]
        self._show_first({*finished, *cut})
        return episodes

    def _show_first(self, rows: set[int]) -> None:
        """Makes the first observations of these rows the present."""
        self.obs, self.fresh = self.obs.copy(), self.fresh.copy()
        for row in rows:
            place = self._begin_count(row)
            self.obs[place], self.fresh[place] = self._group.board.first_obs[row], True

    def _begin_count(self, row: int) -> tuple[int, int]:
        place = self._keeper.place(row)
        self._total_reward[place], self._keeper.length[place] = 0.0, 0
        return place

    def _require_finite(self, act: np.ndarray) -> None:
        if not np.isfinite(act).all():
            row = int(np.argmin(np.isfinite(act).all(axis=-1).ravel()))
            self._keeper.fail(Trouble(row, "step", describe("action", act[self._keeper.place(row)])))

    def take_faults(self) -> list[Fault]:
        """The faults that were skipped since the last call."""
        faults, self._keeper.faults = self._keeper.faults, []
        return faults

    def state(self, episodes: bool = True) -> EnvState:
        """Flat arrays for all copies; those of one environment are named ``env/<seed>/<env>/<name>``.

        Without `episodes` these are left out: whoever restores the state begins new episodes.
        """
        states, lost = self._keeper.states() if episodes else ([], set())
        if lost:
            self._show_first(lost)
        state = {
            "steps": np.array(self.steps, np.int64),
            "obs": self.obs.copy(),
            "fresh": self.fresh.copy(),
            "total_reward": self._total_reward.copy(),
            "length": self._keeper.length.copy(),
            "faults": self._keeper.counts.copy(),
            "seeds": self._keeper.seeds.copy(),
        }
        for row, own in enumerate(states):
            i, j = self._keeper.place(row)
            state |= {f"env/{i}/{j}/{name}": part for name, part in sorted((own or {}).items())}
        return state

    def restore(self, state: EnvState) -> int:
        """Continues from a saved state and returns how many environments had to begin a new episode.

        These are the ones without a saved state; all others continue exactly.
        """
        if state["obs"].shape != self.obs.shape:
            raise UsageError(
                f"the saved environments have (seeds, envs, observations) {state['obs'].shape}, these have "
                f"{self.obs.shape}; resume with the task, seeds and envs that the run began with"
            )
        keeper = self._keeper
        keeper.steps, keeper.length = int(state["steps"]), np.array(state["length"], np.int64)
        self.obs, self.fresh = np.array(state["obs"], np.float32), np.array(state["fresh"], bool)
        self._total_reward = np.array(state["total_reward"], np.float64)
        keeper.counts = np.array(state.get("faults", np.zeros_like(keeper.counts)), np.int64)
        keeper.seeds = np.array(state.get("seeds", keeper.seeds), np.int64)
        known, unknown = {}, {}
        for row in range(self._total_reward.size):
            i, j = keeper.place(row)
            prefix = f"env/{i}/{j}/"
            own = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
            if own:
                known[row] = own
            else:  # with numbers of its own, since its first episode would be played again otherwise
                unknown[row] = int(np.random.SeedSequence([self.steps, i, j]).generate_state(1)[0])
        begun = keeper.restore(known, unknown)
        self._show_first(begun)
        return len(begun)

    def close(self) -> None:
        """Closes every environment."""
        self._group.close()
