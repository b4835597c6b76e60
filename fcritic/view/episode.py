"""One episode of one actor, with everything that its page shows."""

from collections.abc import Callable
import dataclasses

from jaxtyping import Float
import numpy as np

from fcritic import envs
from fcritic.api import valuation
from fcritic.api.load import TrainedAgent
from fcritic.envs import AbstractEnv, EnvState, Step, VectorEnv
from fcritic.envs.local import LocalGroup, Watch
from fcritic.view.scene import Pose, tracked_body

LIMIT = 5000
"""Actions that are shown at most: a task without an end would never give a page."""

Act = Callable[[Float[np.ndarray, " obs"]], Float[np.ndarray, " act"]]
"""An actor: from an observation of the task to an action in [-1, 1]."""

Note = Callable[[AbstractEnv, bool], None]
"""Called after each reset (True) and each step (False) of an environment."""


@dataclasses.dataclass(frozen=True)
class Episode:
    """What happened from a reset to the end of an episode, T actions later."""

    obs: Float[np.ndarray, "states obs"]
    """T + 1 observations, as the task gives them."""
    actions: Float[np.ndarray, "steps act"]
    rewards: Float[np.ndarray, " steps"]
    discounts: Float[np.ndarray, " steps"]
    """0 where the task ended, 1 elsewhere."""
    over: bool
    """Whether the episode came to its end within `LIMIT` actions."""
    times: Float[np.ndarray, " states"]
    """Seconds of the simulation since the reset; numbers of actions where the task has no clock."""
    seconds: bool
    """Whether `times` are seconds."""
    poses: Pose | None
    """Of every body of a MuJoCo model, T + 1 times; None where there is no such model."""
    centre: Float[np.ndarray, "states 3"] | None
    """The centre of mass of what a camera should follow."""

    @property
    def terminated(self) -> bool:
        """Whether the task itself ended, rather than its time."""
        return bool(len(self.discounts) and self.discounts[-1] == 0)

    @property
    def total_reward(self) -> float:
        """The undiscounted return."""
        return float(self.rewards.sum())


class Watched(AbstractEnv):
    """An environment that calls `note` after each reset and each step, before anything else changes."""

    def __init__(self, env: AbstractEnv, note: Note):
        self._env, self._note = env, note
        self.spec, self.name = env.spec, env.name

    def reset(self) -> np.ndarray:
        """Begins an episode."""
        obs = self._env.reset()
        self._note(self._env, True)
        return obs

    def reseed(self, seed: int) -> None:
        """Makes the next `reset` behave as in an environment built with this seed."""
        self._env.reseed(seed)

    def step(self, action: np.ndarray) -> Step:
        """Takes one action."""
        step = self._env.step(action)
        self._note(self._env, False)
        return step

    def state(self) -> EnvState | None:
        """Nothing: what is watched is not saved."""
        return None

    def restore(self, state: EnvState) -> None:
        """Cannot be: nothing is saved."""
        raise NotImplementedError


class Notebook:
    """Poses, centre and time of an environment at each moment."""

    def __init__(self) -> None:
        self.poses: list[np.ndarray] = []
        self.centre: list[np.ndarray] = []
        self.times: list[float] = []
        self._tracked = 0

    def __call__(self, env: AbstractEnv, first: bool) -> None:
        """Writes down how an environment stands now."""
        simulation = env.simulation()
        if simulation is None:
            return
        model, data = simulation
        if first:
            self._tracked = tracked_body(model, data)
        self.poses.append(np.concatenate([data.xpos, data.xquat], axis=1))
        self.centre.append(np.array(data.subtree_com[self._tracked]))
        self.times.append(data.time)


def actor_of(agent: TrainedAgent, number: int) -> Act:
    """Returns one of the actors of an agent, without exploration noise."""
    policy, normalizer = agent.policy(number), agent.policy_normalizer
    return lambda obs: np.asarray(valuation.actions(policy, normalizer, obs[None]))[0]


def record(env: AbstractEnv, act: Act, seed: int, timeout: float) -> Episode:
    """Plays one episode that begins as `seed` says; the same seed gives the same start to every actor."""
    notes = Notebook()
    *happened, over = play(env, act, seed, timeout, notes)
    states = len(happened[0])
    times = np.array(notes.times[:states]) - notes.times[0] if notes.times else np.zeros(states)
    seconds = bool((np.diff(times) > 0).all())
    clock = (times if seconds else np.arange(states, dtype=float), seconds)
    stacked = (np.stack(each[:states]) if each else None for each in (notes.poses, notes.centre))
    return Episode(*happened, over, *clock, *stacked)


def play(
    env: AbstractEnv, act: Act, seed: int, timeout: float, note: Note
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, bool]:
    """Observations, actions, rewards, discounts, and whether the episode ended.

    It runs as an evaluation does, so that a faulty environment is reported in the same words. After the last step
    the environment begins its next episode: `note` is called once more.
    """
    env.reseed(seed)
    vector = VectorEnv(LocalGroup([Watched(env, note)], None, Watch(timeout)), [[seed]])
    seen, actions, rewards, discounts = [vector.obs[0, 0]], [], [], []
    ended: list[envs.Episode] = []
    while not ended and len(actions) < LIMIT:
        step, ended = vector.step(act(vector.obs[0, 0])[None, None])
        seen.append(step.next_obs[0, 0])
        actions.append(step.act[0, 0])
        rewards.append(float(step.reward[0, 0]))
        discounts.append(float(step.discount[0, 0]))
    return np.stack(seen), np.stack(actions), np.array(rewards), np.array(discounts), bool(ended)
