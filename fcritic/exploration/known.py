"""Known answers to exploration: exact values, the exact posterior, and tabular learners that play by them.

Values come from backward induction, for many models at once. The posterior over a task is Dirichlet for transitions
and normal-gamma for rewards. Learners plan one episode at a time from the data of all seeds, and a `History` scores
their episodes.
"""

import abc
import dataclasses

from jaxtyping import Bool, Float, Int
import numpy as np

from fcritic.envs.exact import Task

# Exact values by backward induction; leading axes `...` are models


def backup(
    task: Task,
    P: Float[np.ndarray, "*models layers states 2 next"],
    reward: Float[np.ndarray, "*models layers states 2"],
    values: Float[np.ndarray, "*models states"],
    time: int,
) -> Float[np.ndarray, "*models states 2"]:
    """Returns Q_h(s, a) = r(s, a) + sum_s' P(s'|s, a) V_{h+1}(s')."""
    layer = time % task.layers
    following = values[..., task.successors]
    return reward[..., layer, :, :] + np.einsum("...sak,...sk->...sa", P[..., layer, :, :, :], following)


def best_values(
    task: Task,
    P: Float[np.ndarray, "*models layers states 2 next"],
    reward: Float[np.ndarray, "*models layers states 2"],
) -> Float[np.ndarray, "*models horizon states 2"]:
    """Returns Q*_h(s, a) for each time h."""
    q = np.empty((*P.shape[:-4], task.horizon, task.states, 2))
    values = np.zeros((*P.shape[:-4], task.states))
    for time in reversed(range(task.horizon)):
        q[..., time, :, :] = backup(task, P, reward, values, time)
        values = q[..., time, :, :].max(axis=-1)
    return q


def optimal_return(task: Task) -> float:
    """Returns V* of the first state."""
    return float(best_values(task, task.P, task.reward)[0, 0].max())


def policy_returns(
    task: Task,
    P: Float[np.ndarray, "*models layers states 2 next"],
    reward: Float[np.ndarray, "*models layers states 2"],
    policy: Float[np.ndarray, "*models horizon states"],
) -> Float[np.ndarray, "*models"]:
    """Returns J(pi), the expected return from the first state; `policy` has the probability of action 1."""
    values = np.zeros((*policy.shape[:-2], task.states))
    for time in reversed(range(task.horizon)):
        q = backup(task, P, reward, values, time)
        values = q[..., 0] + policy[..., time, :] * (q[..., 1] - q[..., 0])
    return values[..., 0]


# The posterior; data are counts with a leading axis of seeds, so that learning from an episode is addition


@dataclasses.dataclass(frozen=True)
class Prior:
    """The belief about every pair (s, a) before any data."""

    transition: float = 1.0
    """Dirichlet count of each state that may follow."""
    mean: float = 0.0
    """mu_0, the prior mean of the mean reward."""
    weight: float = 1.0
    """kappa_0, the number of observations that mu_0 is worth."""
    shape: float = 2.0
    """alpha_0 of the precision. Above 1 the mean reward has a finite variance, here 1 with the other defaults."""
    rate: float = 1.0
    """beta_0 of the precision."""
    noise: float | None = None
    """The standard deviation of rewards where it is known, the limit of a large shape and rate."""


@dataclasses.dataclass(frozen=True)
class Episode:
    """One episode of each seed, in order of time."""

    states: Int[np.ndarray, "seeds horizon"]
    actions: Int[np.ndarray, "seeds horizon"]
    outcomes: Int[np.ndarray, "seeds horizon"]
    """Index of the next state among the possible ones."""
    rewards: Float[np.ndarray, "seeds horizon"]


class Data:
    """Counts of transitions and moments of rewards for each seed; `add` changes them in place."""

    def __init__(self, task: Task, seeds: int):
        """Begins without data."""
        self.task = task
        self.transitions = np.zeros((seeds, *task.P.shape))
        self.reward_sum = np.zeros((seeds, *task.reward.shape))
        self.square_sum = np.zeros((seeds, *task.reward.shape))

    @property
    def visits(self) -> Float[np.ndarray, "seeds layers states 2"]:
        """n(s, a)."""
        return self.transitions.sum(axis=-1)

    def add(self, episode: Episode) -> None:
        """Counts an episode of every seed."""
        seeds, horizon = episode.states.shape
        layers = np.arange(horizon) % self.task.layers
        where = (np.arange(seeds)[:, None], layers[None], episode.states, episode.actions)
        np.add.at(self.transitions, (*where, episode.outcomes), 1)
        np.add.at(self.reward_sum, where, episode.rewards)
        np.add.at(self.square_sum, where, episode.rewards**2)

    def empirical(self) -> tuple[Float[np.ndarray, "*pairs next"], Float[np.ndarray, "*pairs"]]:
        """Returns shares of next states and mean rewards, zero for pairs without data."""
        visits = np.maximum(self.visits, 1)
        return self.transitions / visits[..., None], self.reward_sum / visits


@dataclasses.dataclass(frozen=True)
class RewardPosterior:
    """Normal-gamma: precision tau ~ Gamma(shape, rate), mean reward ~ N(mean, 1 / (weight tau))."""

    mean: Float[np.ndarray, "*pairs"]
    weight: Float[np.ndarray, "*pairs"]
    shape: Float[np.ndarray, "*pairs"]
    rate: Float[np.ndarray, "*pairs"]

    def sample(self, random: np.random.Generator) -> Float[np.ndarray, "*pairs"]:
        """Draws a mean reward for each pair."""
        precision = random.gamma(self.shape) / self.rate
        return self.mean + random.standard_normal(self.mean.shape) / np.sqrt(self.weight * precision)


def reward_posterior(prior: Prior, data: Data) -> RewardPosterior:
    """Returns the conjugate posterior of every pair."""
    visits = data.visits
    if prior.noise is not None:
        return _known_noise(prior, prior.noise, data, visits)
    average = data.reward_sum / np.maximum(visits, 1)
    scatter = np.maximum(data.square_sum - visits * average**2, 0)
    weight = prior.weight + visits
    moved = prior.weight * visits * (average - prior.mean) ** 2 / weight
    return RewardPosterior(
        mean=(prior.weight * prior.mean + data.reward_sum) / weight,
        weight=weight,
        shape=prior.shape + visits / 2,
        rate=prior.rate + (scatter + moved) / 2,
    )


def _known_noise(prior: Prior, noise: float, data: Data, visits: Float[np.ndarray, "*pairs"]) -> RewardPosterior:
    """Returns the posterior at a precision of 1 / noise^2, from which its narrow Gamma differs by a millionth."""
    weight = prior.weight + visits
    sure = np.full_like(weight, 1e12)
    mean = (prior.weight * prior.mean + data.reward_sum) / weight
    return RewardPosterior(mean, weight, sure, sure * noise**2)


def sample_models(
    prior: Prior, data: Data, random: np.random.Generator
) -> tuple[Float[np.ndarray, "*pairs next"], Float[np.ndarray, "*pairs"]]:
    """Draws P and mean rewards of one MDP from the posterior of each seed."""
    drawn = random.gamma(prior.transition + data.transitions)
    return drawn / drawn.sum(axis=-1, keepdims=True), reward_posterior(prior, data).sample(random)


# Tabular learners with known behaviour, which plan for the horizon

Policy = Float[np.ndarray, "seeds horizon states"]


class Learner(abc.ABC):
    """A rule for the policy of the next episode."""

    @abc.abstractmethod
    def plan(self, data: Data, random: np.random.Generator) -> Policy:
        """Returns the probability of action 1 at each time and state."""


@dataclasses.dataclass(frozen=True)
class PosteriorSampling(Learner):
    """PSRL, which draws an MDP from the posterior and acts optimally in it for one episode."""

    prior: Prior = Prior()

    def plan(self, data: Data, random: np.random.Generator) -> Policy:
        """Returns the optimal policy of one sampled MDP for each seed."""
        return greedy(best_values(data.task, *sample_models(self.prior, data, random)))


@dataclasses.dataclass(frozen=True)
class RandomisedValues(Learner):
    """RLSVI, Bayesian regression of r + V_{h+1}(s') for each pair with a draw at every time, backwards.

    With indicator features the posterior of Q_h(s, a) is N(n y / (n + lambda), sigma^2 / (n + lambda)), where y is
    the mean target of n visits. A `sigma` of 0 makes it greedy, and with `epsilon` epsilon-greedy.
    """

    sigma: float = 1.0
    """Standard deviation of a target's noise."""
    weight: float = 1.0
    """lambda, the number of observations that the prior mean of zero is worth."""
    epsilon: float = 0.0
    """Share of uniformly random actions."""

    def plan(self, data: Data, random: np.random.Generator) -> Policy:
        """Returns the greedy policy of the drawn values, mixed with random actions."""
        policy = greedy(self.values(data, random))
        return policy * (1 - self.epsilon) + self.epsilon / 2

    def values(self, data: Data, random: np.random.Generator) -> Float[np.ndarray, "seeds horizon states 2"]:
        """Draws Q_h(s, a) once for each seed."""
        task, visits = data.task, data.visits
        P, reward = data.empirical()
        share = visits / (visits + self.weight)
        spread = self.sigma / np.sqrt(visits + self.weight)
        q = random.standard_normal((len(visits), task.horizon, task.states, 2))
        values = np.zeros((len(visits), task.states))
        for time in reversed(range(task.horizon)):
            layer = time % task.layers
            following = np.einsum("nsak,nsk->nsa", P[:, layer], values[:, task.successors])
            target = reward[:, layer] + following
            q[:, time] = share[:, layer] * target + spread[:, layer] * q[:, time]
            values = q[:, time].max(axis=-1)
        return q


def greedy(q: Float[np.ndarray, "*leading 2"]) -> Float[np.ndarray, "*leading"]:
    """Returns 1 where action 1 is better; ties go to action 0."""
    return (q[..., 1] > q[..., 0]).astype(float)


LEARNERS: dict[str, Learner] = {
    "psrl": PosteriorSampling(Prior(noise=1.0)),
    "psrl-normal-gamma": PosteriorSampling(),
    "rlsvi": RandomisedValues(),
    "epsilon-greedy": RandomisedValues(sigma=0.0, epsilon=0.1),
    "greedy": RandomisedValues(sigma=0.0),
}
"""Learners with known behaviour. `psrl` assumes, as `rlsvi` does, reward noise of standard deviation 1.
`psrl-normal-gamma` learns the noise, which is zero in RiverSwim."""


# Episodes of many seeds side by side, and their scores

SOLVED_BELOW = 0.9
"""A DeepSea is solved in the first episode after which the share of bad episodes is below this."""
GOOD_SHARE = 0.5
"""Where steps may fail, an episode is bad if its policy's return is below this share of V*."""


@dataclasses.dataclass(frozen=True)
class History:
    """Scores of a learner, episode by episode."""

    regret: Float[np.ndarray, "seeds episodes"]
    """V* - J(pi_k) for the policy of each episode, rather than for its sampled return."""
    bad: Bool[np.ndarray, "seeds episodes"]
    """Whether it went left on the diagonal, from which the treasure is out of reach. Where steps may fail: whether
    its policy's return was below half of V*. There failed steps leave the diagonal too, and the first rule would
    call one episode in eleven of a random diver good."""


def play(task: Task, policy: Float[np.ndarray, "seeds horizon states"], random: np.random.Generator) -> Episode:
    """Plays one episode of each seed."""
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
    """Returns whether an episode of DeepSea left the diagonal by a step left."""
    times = np.arange(task.horizon)
    right = task.right[times % task.layers, episode.states]
    return ((episode.actions != right) & (episode.states == times)).any(axis=1)


def explore(task: Task, learner: Learner, episodes: int, seeds: int, stop_when_solved: bool = False) -> History:
    """Plays and learns for some episodes. Random streams depend on the task and the number of seeds alone."""
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
    """Returns the first episode, counted from 1, at which the share of bad ones is below 0.9, or infinity."""
    count = np.arange(1, bad.shape[1] + 1)
    solved = bad.cumsum(axis=1) / count < SOLVED_BELOW
    return np.where(solved.any(axis=1), solved.argmax(axis=1) + 1.0, np.inf)
