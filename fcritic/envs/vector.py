"""Many copies of a task in lock-step: one row per seed, each seed with its own environments."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fcritic.envs.answers import describe
from fcritic.envs.base import AbstractEnv, EnvState
from fcritic.envs.group import AbstractGroup, Trouble
from fcritic.envs.keeper import Fault, Keeper, OnFault
from fcritic.envs.local import LocalGroup
from fcritic.errors import UsageError
from fcritic.types import Transition

Rows = Sequence[Sequence[AbstractEnv]]


class Episode(NamedTuple):
    """An episode that has just ended."""

    seed_index: int
    env_index: int
    total_reward: float
    length_in_steps: int


class VectorEnv:
    """Environments of shape (seeds, envs) that take one step each per call.

    ``obs`` (seeds, envs, obs_dim) is what the next actions answer to, and ``fresh`` (seeds, envs) is True
    where that is the first observation of an episode. Arrays that have been handed out are never written
    again: a device may still be copying them.

    A faulty environment raises `EnvironmentFault`. With ``on_fault="skip"`` it is rebuilt instead, begins an
    episode, and the action is taken again from there, so a transition is always a true one; what happened is
    told by `take_faults`. `seeds` are the numbers that the copies were built with; a group needs them.
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
        self.spec, self.shape = self._group.spec, self._keeper.seeds.shape
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
        episodes = [Episode(*at, float(self._total_reward[at]), int(self._keeper.length[at])) for at in places]
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
            state |= {f"env/{i}/{j}/{name}": own[name] for name in sorted(own or ())}
        return state

    def restore(self, state: EnvState) -> int:
        """Continues from a saved state and returns how many environments had to begin a new episode.

        These are the ones that could not tell their state; all others continue exactly.
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
