"""Episodes of many seeds side by side, and what they are scored by: regret, and DeepSea's first solved episode."""

import dataclasses

from jaxtyping import Bool, Float
import numpy as np

from fcritic.envs.exact import Task
from fcritic.exploration.learners import Learner
from fcritic.exploration.planning import optimal_return, policy_returns
from fcritic.exploration.posterior import Data, Episode

SOLVED_BELOW = 0.9
"""A DeepSea is solved in the first episode after which the share of bad episodes is below this."""
GOOD_SHARE = 0.5
"""Where steps may fail, an episode is bad if its policy's return is below this share of V*."""
TRIES = 100
"""Episodes that the standard score grants besides 2^size."""


@dataclasses.dataclass(frozen=True)
class History:
    """What a learner did, episode by episode."""

    regret: Float[np.ndarray, "seeds episodes"]
    """V* - J(pi_k) of the policy of each episode, not of its luck."""
    bad: Bool[np.ndarray, "seeds episodes"]
    """Whether it went left on the diagonal, from which the treasure can no longer be reached; where steps may fail,
    whether its policy's return was below half of V*. There a failed step leaves the diagonal too, and by the first
    rule one episode in eleven of a random diver is good."""


def play(task: Task, policy: Float[np.ndarray, "seeds horizon states"], random: np.random.Generator) -> Episode:
    """One episode of each seed."""
    seeds = len(policy)
    every = np.arange(seeds)
    cumulative = task.P.cumsum(axis=-1)
    found = [np.empty((seeds, task.horizon), int) for _ in range(3)]
    rewards = np.empty((seeds, task.horizon))
    state = np.zeros(seeds, int)
    for time in range(task.horizon):
        layer = time % task.layers
        action = (random.random(seeds) < policy[every, time, state]).astype(int)
        chance = random.random((seeds, 1)) * cumulative[layer, state, action, -1:]
        outcome = (chance >= cumulative[layer, state, action]).sum(axis=-1)
        for kept, each in zip(found, (state, action, outcome), strict=True):
            kept[:, time] = each
        rewards[:, time] = task.reward[layer, state, action]
        rewards[:, time] += task.noise[layer, state, action] * random.standard_normal(seeds)
        state = task.successors[state, outcome]
    return Episode(*found, rewards)


def strayed(task: Task, episode: Episode) -> Bool[np.ndarray, " seeds"]:
    """Whether an episode of DeepSea left the diagonal by a step left."""
    times = np.arange(task.horizon)
    right = task.right[times % task.layers, episode.states]
    return ((episode.actions != right) & (episode.states == times)).any(axis=1)


def explore(task: Task, learner: Learner, episodes: int, seeds: int, stop_when_solved: bool = False) -> History:
    """Plays, learns and plays again. Random streams depend on the task and the number of seeds, not the learner."""
    random = np.random.default_rng([seeds, *task.name.encode()])
    data, best = Data(task, seeds), optimal_return(task)
    regret, bad = np.zeros((seeds, episodes)), np.zeros((seeds, episodes), bool)
    for index in range(episodes):
        policy = learner.plan(data, random)
        episode = play(task, policy, random)
        data.add(episode)
        returns = policy_returns(task, task.P, task.reward, policy)
        regret[:, index] = best - returns
        bad[:, index] = returns < GOOD_SHARE * best if task.slips else strayed(task, episode)
        if stop_when_solved and np.isfinite(first_solved(bad[:, : index + 1])).all():
            return History(regret[:, : index + 1], bad[:, : index + 1])
    return History(regret, bad)


def first_solved(bad: Bool[np.ndarray, "seeds episodes"]) -> Float[np.ndarray, " seeds"]:
    """The first episode, counted from 1, at which the share of bad ones is below 0.9; infinite without one."""
    count = np.arange(1, bad.shape[1] + 1)
    solved = bad.cumsum(axis=1) / count < SOLVED_BELOW
    return np.where(solved.any(axis=1), solved.argmax(axis=1) + 1.0, np.inf)


def standard_score(size: int, solved: Float[np.ndarray, " seeds"]) -> float:
    """The share of seeds that solve DeepSea before 2^size + 100 episodes, the time of undirected search."""
    return float(np.mean(solved < 2.0**size + TRIES))
