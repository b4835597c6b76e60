"""Tabular learners whose behaviour is known: posterior sampling, randomised value iteration, greedy.

A learner reads the data of all seeds and answers with the policy of the next episode. Each plans for the horizon.
"""

import abc
import dataclasses

from jaxtyping import Float
import numpy as np

from fcritic.exploration.planning import best_values
from fcritic.exploration.posterior import Data, Prior, sample_models

Policy = Float[np.ndarray, "seeds horizon states"]


class Learner(abc.ABC):
    """How the next episode is played."""

    @abc.abstractmethod
    def plan(self, data: Data, random: np.random.Generator) -> Policy:
        """The probability of action 1 at each time and state."""


@dataclasses.dataclass(frozen=True)
class PosteriorSampling(Learner):
    """PSRL: draw an MDP from the posterior, act for one episode as if it were the true one."""

    prior: Prior = Prior()

    def plan(self, data: Data, random: np.random.Generator) -> Policy:
        """The optimal policy of one sampled MDP for each seed."""
        return greedy(best_values(data.task, *sample_models(self.prior, data, random)))


@dataclasses.dataclass(frozen=True)
class RandomisedValues(Learner):
    """RLSVI: Bayesian regression of r + V_{h+1}(s') for each pair, a draw from it at every time, backwards.

    With indicator features the posterior of Q_h(s, a) is N(n y / (n + lambda), sigma^2 / (n + lambda)), where y is
    the mean target of n visits. `sigma` 0 and `epsilon` make greedy learners of it.
    """

    sigma: float = 1.0
    """Standard deviation of a target's noise."""
    weight: float = 1.0
    """lambda, how many observations the prior mean of zero is worth."""
    epsilon: float = 0.0
    """Share of actions that are drawn at random."""

    def plan(self, data: Data, random: np.random.Generator) -> Policy:
        """Greedy in the drawn values."""
        policy = greedy(self.values(data, random))
        return policy * (1 - self.epsilon) + self.epsilon / 2

    def values(self, data: Data, random: np.random.Generator) -> Float[np.ndarray, "seeds horizon states 2"]:
        """One draw of Q_h(s, a) for each seed."""
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
    """1 where action 1 is better; ties go to action 0."""
    return (q[..., 1] > q[..., 0]).astype(float)


LEARNERS: dict[str, Learner] = {
    "psrl": PosteriorSampling(Prior(noise=1.0)),
    "psrl-normal-gamma": PosteriorSampling(),
    "rlsvi": RandomisedValues(),
    "epsilon-greedy": RandomisedValues(sigma=0.0, epsilon=0.1),
    "greedy": RandomisedValues(sigma=0.0),
}
"""Known answers. `psrl` believes, as `rlsvi` does, that rewards have noise of standard deviation 1; the other one
learns the noise, and finds in RiverSwim that there is none."""
