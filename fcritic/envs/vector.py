"""Many copies of a task in lock-step: one row per seed, each seed with its own environments."""

from typing import NamedTuple, NoReturn

import numpy as np

from fcritic.envs.base import AbstractEnv, EnvState
from fcritic.errors import EnvironmentFault, UsageError
from fcritic.types import Transition


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
    """

    def __init__(self, envs: list[list[AbstractEnv]]):
        if not envs or not envs[0] or any(len(row) != len(envs[0]) for row in envs):
            raise ValueError("envs must be a list of rows of equal length, at least one by one")
        self._envs = envs
        self.spec = envs[0][0].spec
        if any(env.spec != self.spec for row in envs for env in row):
            raise ValueError("all environments must have the same sizes of observation and action")
        self.shape = (len(envs), len(envs[0]))
        self._begin_all()

    def restart(self, seeds: list[list[int]]) -> None:
        """Begins all episodes anew, as if every copy had just been built with its seed."""
        for env_row, seed_row in zip(self._envs, seeds, strict=True):
            for env, seed in zip(env_row, seed_row, strict=True):
                env.reseed(seed)
        self._begin_all()

    def _begin_all(self) -> None:
        self.steps = 0
        """Steps taken by each environment since the run began."""
        self._total_reward = np.zeros(self.shape)
        self._length = np.zeros(self.shape, np.int64)
        self.obs = np.empty((*self.shape, self.spec.obs_dim), np.float32)
        self.fresh = np.ones(self.shape, bool)
        for place in np.ndindex(self.shape):
            self._begin_episode(place, self.obs, self.fresh)

    def step(self, actions: np.ndarray) -> tuple[Transition, list[Episode]]:
        """Takes `actions` (seeds, envs, act_dim); finished environments begin their next episode at once.

        The transition holds the true last observation of an episode, ``self.obs`` the first of the next.
        """
        act = np.array(actions, np.float32)
        self._require_finite("action", act)
        next_obs = np.empty_like(self.obs)
        reward, discount = np.empty(self.shape), np.empty(self.shape, np.float32)
        finished = []
        for i, row in enumerate(self._envs):
            for j, env in enumerate(row):
                try:
                    next_obs[i, j], reward[i, j], discount[i, j], last = env.step(act[i, j])
                except Exception as error:
                    self._fault((i, j), f"step raised {type(error).__name__}: {error}", error)
                if last:
                    finished.append((i, j))
        self._require_finite("reward", reward)
        self._require_finite("observation", next_obs)
        transition = Transition(self.obs, act, reward.astype(np.float32), discount, next_obs)
        self.steps += 1
        self._total_reward += reward
        self._length += 1
        return transition, self._advance(next_obs, finished)

    def _advance(self, next_obs: np.ndarray, finished: list[tuple[int, int]]) -> list[Episode]:
        """Makes `next_obs` the present, with a new episode wherever one has finished."""
        self.fresh = np.zeros(self.shape, bool)
        self.obs = next_obs.copy() if finished else next_obs
        episodes = [Episode(*at, float(self._total_reward[at]), int(self._length[at])) for at in finished]
        for place in finished:
            self._begin_episode(place, self.obs, self.fresh)
        return episodes

    def _begin_episode(self, place: tuple[int, int], obs: np.ndarray, fresh: np.ndarray) -> None:
        self._total_reward[place] = 0.0
        self._length[place] = 0
        try:
            obs[place] = self._envs[place[0]][place[1]].reset()
        except UsageError:
            raise
        except Exception as error:
            self._fault(place, f"reset raised {type(error).__name__}: {error}", error)
        if not np.isfinite(obs[place]).all():
            self._fault(place, _describe("observation", obs[place]))
        fresh[place] = True

    def _require_finite(self, field: str, values: np.ndarray) -> None:
        if not np.isfinite(values).all():
            place = tuple(int(index) for index in np.argwhere(~np.isfinite(values))[0][:2])
            self._fault(place, _describe(field, values[place]))

    def _fault(self, place: tuple[int, int], what: str, cause: Exception | None = None) -> NoReturn:
        env = self._envs[place[0]][place[1]]
        where = f"{env.name or type(env).__name__} (seed index {place[0]}, environment {place[1]})"
        when = f"step {self.steps}, {int(self._length[place])} steps into its episode"
        raise EnvironmentFault(f"{where}: {what} at {when}") from cause

    def state(self) -> EnvState:
        """Flat arrays for all copies; those of one environment are named ``env/<seed>/<env>/<name>``."""
        state = {
            "steps": np.array(self.steps, np.int64),
            "obs": self.obs.copy(),
            "fresh": self.fresh.copy(),
            "total_reward": self._total_reward.copy(),
            "length": self._length.copy(),
        }
        for i, j in np.ndindex(self.shape):
            own = self._envs[i][j].state()
            if own is not None:
                state |= {f"env/{i}/{j}/{name}": value for name, value in own.items()}
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
        self.steps = int(state["steps"])
        obs, fresh = np.array(state["obs"], np.float32), np.array(state["fresh"], bool)
        self._total_reward = np.array(state["total_reward"], np.float64)
        self._length = np.array(state["length"], np.int64)
        restarted = 0
        for i, j in np.ndindex(self.shape):
            prefix = f"env/{i}/{j}/"
            own = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
            if own:
                self._envs[i][j].restore(own)
            else:  # with numbers of its own, since its first episode would be played again otherwise
                self._envs[i][j].reseed(int(np.random.SeedSequence([self.steps, i, j]).generate_state(1)[0]))
                self._begin_episode((i, j), obs, fresh)
                restarted += 1
        self.obs, self.fresh = obs, fresh
        return restarted

    def close(self) -> None:
        """Closes every environment."""
        for row in self._envs:
            for env in row:
                env.close()


def _describe(field: str, values: np.ndarray) -> str:
    """The first bad number of one environment's values: ``observation[3] is nan``."""
    if np.ndim(values) == 0:
        return f"{field} is {values}"
    index = int(np.argmin(np.isfinite(values)))
    return f"{field}[{index}] is {values[index]}"
