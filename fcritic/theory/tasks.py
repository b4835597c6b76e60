"""What an evaluation is given: a target policy's features, another policy's data, and how its error is measured."""

from typing import NamedTuple

from jax import Array
import numpy as np
from numpy.typing import ArrayLike

from fcritic.errors import UsageError
from fcritic.theory.mdp import FiniteMDP, Transitions
from fcritic.theory.problems import Problem


class Task(NamedTuple):
    """What an evaluation reads. Only arrays, so one compiled program serves all policies of a size."""

    phi: Array
    """phi^pi[S, A, d], the features of the target policy."""
    r: Array
    """r[S, A]."""
    gamma: Array
    target: Array
    """pi[S, A]."""
    behaviour: Array
    """mu[S, A]."""
    P: Array
    """p(s'|s, a) as [S, A, S]."""
    states: Array
    """d_mu[S], the distribution of states in the data."""

    @property
    def rows(self) -> tuple[Array, Array]:
        """Features and rewards with one row per pair, in the order s A + a."""
        return self.phi.reshape(-1, self.phi.shape[-1]), self.r.reshape(-1)

    @property
    def pairs(self) -> Array:
        """The distribution of pairs in the data, [S, A]."""
        return self.states[:, None] * self.behaviour

    @property
    def mdp(self) -> FiniteMDP:
        """The MDP, with the data's states as the first ones."""
        return FiniteMDP(self.P, self.r, float(self.gamma), self.states)

    @property
    def target_pairs(self) -> np.ndarray:
        """The stationary distribution of pairs under the target policy, [S, A]."""
        return self.mdp.pairs(self.mdp.stationary(self.target), self.target)


def make_task(mdp: FiniteMDP, behaviour: ArrayLike, target: ArrayLike, phi: ArrayLike) -> Task:
    """The evaluation of `target` from the stationary data of `behaviour`, with features `phi[S, A, d]`."""
    mu, pi, phi = np.asarray(behaviour, float), np.asarray(target, float), np.asarray(phi, float)
    if phi.ndim != 3 or phi.shape[:2] != mdp.r.shape:
        raise UsageError(
            f"features must have the shape [S, A, d] = {list(mdp.r.shape)} and d, not {list(phi.shape)}"
        )
    mdp.policy(pi)
    return Task(phi, mdp.r, np.float64(mdp.gamma), pi, mu, mdp.P, mdp.stationary(mu))


def task_of(problem: Problem) -> Task:
    """The evaluation that a problem poses."""
    return make_task(problem.mdp, problem.behaviour, problem.target, problem.features(problem.target))


def empirical(task: Task, transitions: Transitions) -> Task:
    """The same task on a data set: its frequencies stand for d_mu, mu and p. Pairs never seen weigh nothing."""
    counts = np.zeros(np.shape(task.P))
    np.add.at(counts, (transitions.state, transitions.action, transitions.next_state), 1.0)
    pairs = counts.sum(-1)
    states = pairs.sum(-1)
    return task._replace(
        P=counts / np.maximum(pairs, 1)[:, :, None],
        behaviour=pairs / np.maximum(states, 1)[:, None],
        states=states / states.sum(),
    )


def value_errors(task: Task, weights: ArrayLike) -> np.ndarray:
    """||Q - Q^pi|| in L2(d_pi), the root of the mean squared error, for weights [..., d]."""
    error = np.einsum("sad,...d->...sa", task.phi, weights) - task.mdp.q(task.target)
    with np.errstate(over="ignore", invalid="ignore"):  # weights that ran away
        return np.sqrt(np.einsum("...sa,sa->...", error**2, task.target_pairs))
