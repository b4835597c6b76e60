"""The exact posterior over a task: Dirichlet for transitions, normal-gamma for rewards.

Data are counts, so that learning from an episode is addition. The leading axis is seeds.
"""

import dataclasses

from jaxtyping import Float, Int
import numpy as np

from fcritic.envs.exact import Task


@dataclasses.dataclass(frozen=True)
class Prior:
    """What is believed of every pair (s, a) before it is tried."""

    transition: float = 1.0
    """Dirichlet count of each state that may follow."""
    mean: float = 0.0
    """mu_0, the expected mean reward."""
    weight: float = 1.0
    """kappa_0, how many observations mu_0 is worth."""
    shape: float = 2.0
    """alpha_0 of the precision. Above 1 the mean reward has a finite variance, here 1 with the other defaults."""
    rate: float = 1.0
    """beta_0 of the precision."""
    noise: float | None = None
    """The standard deviation of rewards where it is known, the limit of a large shape and rate."""


@dataclasses.dataclass(frozen=True)
class Episode:
    """What was seen in one episode by each seed, in the order of time."""

    states: Int[np.ndarray, "seeds horizon"]
    actions: Int[np.ndarray, "seeds horizon"]
    outcomes: Int[np.ndarray, "seeds horizon"]
    """Which of the possible next states followed."""
    rewards: Float[np.ndarray, "seeds horizon"]


class Data:
    """Counts of transitions and moments of rewards for each seed, which episodes are added to in place."""

    def __init__(self, task: Task, seeds: int):
        """Nothing seen yet."""
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
        """Shares of next states and mean rewards; zero where nothing was seen."""
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
        """A mean reward for each pair."""
        precision = random.gamma(self.shape) / self.rate
        return self.mean + random.standard_normal(self.mean.shape) / np.sqrt(self.weight * precision)


def reward_posterior(prior: Prior, data: Data) -> RewardPosterior:
    """The conjugate update of every pair."""
    visits = data.visits
    if prior.noise is not None:
        return _known_noise(prior, data, visits)
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


def _known_noise(prior: Prior, data: Data, visits: Float[np.ndarray, "*pairs"]) -> RewardPosterior:
    """The precision is 1 / noise^2; a Gamma of this shape is that number up to a millionth."""
    weight = prior.weight + visits
    sure = np.full_like(weight, 1e12)
    mean = (prior.weight * prior.mean + data.reward_sum) / weight
    return RewardPosterior(mean, weight, sure, sure * prior.noise**2)


def sample_models(
    prior: Prior, data: Data, random: np.random.Generator
) -> tuple[Float[np.ndarray, "*pairs next"], Float[np.ndarray, "*pairs"]]:
    """One MDP from the posterior of each seed: P and mean rewards."""
    drawn = random.gamma(prior.transition + data.transitions)
    return drawn / drawn.sum(axis=-1, keepdims=True), reward_posterior(prior, data).sample(random)
