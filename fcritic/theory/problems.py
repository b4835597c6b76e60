"""Generators of finite problems: linear MDPs, classic counterexamples, Garnets, RiverSwim, pairs of policies.

Generators are deterministic: the same seed gives the same problem.
"""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from fcritic.envs.exact import river_model
from fcritic.errors import UsageError
from fcritic.theory.features import AbstractFeatures, Fixed, Perturbed, Successor
from fcritic.theory.mdp import FiniteMDP


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """The evaluation of a target policy from data of a behaviour policy."""

    mdp: FiniteMDP
    target: np.ndarray
    """pi[S, A], the policy that is evaluated."""
    behaviour: np.ndarray
    """mu[S, A], the policy that generates the data."""
    features: AbstractFeatures
    first: np.ndarray | None = None
    """A counterexample's classic initial weights[d]; zero where None."""


def linear_mdp(
    seed: int = 0, states: int = 20, actions: int = 4, dim: int = 6, gamma: float = 0.9, spread: float = 0.3
) -> tuple[FiniteMDP, Successor]:
    """Returns a low-rank MDP, P(s'|s, a) = <x(s, a), m(s')> and r = <x(s, a), w>, and its successor features.

    Rewards lie in [0, 1]. The linear functional assumption holds exactly, with one xi* for all policies.
    Completeness holds for each policy.

    **Arguments:** `spread` is the parameter of the Dirichlet draws. A small one gives most pairs a single factor.
    """
    rng = np.random.default_rng(seed)
    x = rng.dirichlet(np.full(dim, spread), (states, actions))
    m = rng.dirichlet(np.full(states, 0.5), dim)
    w = rng.uniform(size=dim)
    mdp = FiniteMDP(np.einsum("sai,ix->sax", x, m), x @ w, gamma, np.full(states, 1 / states))
    return mdp, Successor(x, m, w, gamma)


def perturb(mdp: FiniteMDP, features: AbstractFeatures, size: float, seed: int = 0) -> Perturbed:
    """Returns the features with an error near `size` in Q at the true weights, or in each entry without such."""
    shape = np.shape(features(uniform_policy(mdp)))
    noise = np.random.default_rng(seed).normal(size=shape)
    if features.weights is not None:
        noise = noise / np.sqrt(np.mean((noise @ features.weights) ** 2))
    return Perturbed(features, size, noise)


def garnet(seed: int = 0, states: int = 30, actions: int = 3, branches: int = 4, gamma: float = 0.9) -> FiniteMDP:
    """Returns a random MDP in which each pair leads to a few random states and, rarely, to any state.

    The rare moves, with probability 1e-3 in all, make every chain irreducible. Rewards are uniform in [0, 1].
    """
    if not 1 <= branches <= states:
        raise UsageError(f"branches must be between 1 and the {states} states, not {branches}")
    rng = np.random.default_rng(seed)
    P = np.full((states, actions, states), 1e-3 / states)
    for state in range(states):
        for action in range(actions):
            following = rng.choice(states, branches, replace=False)
            P[state, action, following] += (1 - 1e-3) * rng.dirichlet(np.ones(branches))
    return FiniteMDP(P, rng.uniform(size=(states, actions)), gamma, np.full(states, 1 / states))


def river_swim(length: int = 6, gamma: float = 0.95) -> FiniteMDP:
    """Returns RiverSwim without a time limit: `fcritic.envs.exact.river_model`, begun in the first state."""
    return FiniteMDP(*river_model(length), gamma, np.eye(length)[0])


def baird(gamma: float = 0.99, rewards: ArrayLike | None = None) -> Problem:
    """Returns Baird's star of 7 states: dashed leads to one of the first six, solid to the seventh.

    The target is solid. Solid pairs have the classic eight features. Dashed pairs, which the target never takes,
    have one weight each. The critic thus values pairs and needs no importance ratio; its expected update is the
    classic one over seven. The features are complete. Behaviour is dashed with probability 6/7, so that all states
    are equally frequent.

    **Arguments:** `rewards[7]` are those of the solid pairs; zero where None, as in the classic example.
    """
    P = np.zeros((7, 2, 7))
    P[:, 0, :6], P[:, 1, 6] = 1 / 6, 1.0
    star = np.zeros((7, 8))
    star[:6, :6], star[:6, 7] = 2 * np.eye(6), 1.0
    star[6, 6], star[6, 7] = 1.0, 2.0
    r = np.zeros((7, 2))
    r[:, 1] = 0.0 if rewards is None else rewards
    mdp = FiniteMDP(P, r, gamma, np.full(7, 1 / 7))
    first = np.concatenate([[1.0] * 6, [10.0, 1.0], np.zeros(7)])
    behaviour = np.tile([6 / 7, 1 / 7], (7, 1))
    return Problem(mdp, np.tile([0.0, 1.0], (7, 1)), behaviour, _beside(star, target_action=1), first)


def tsitsiklis_van_roy(gamma: float = 0.99) -> Problem:
    """Returns two states with values w and 2 w, where the target moves to the second one for good without reward.

    A second action leads to the first state, so that behaviour visits both equally often. The features are not
    complete: one exact evaluation step multiplies w by 6 gamma / 5.
    """
    P = np.zeros((2, 2, 2))
    P[:, 0, 1], P[:, 1, 0] = 1.0, 1.0
    mdp = FiniteMDP(P, np.zeros((2, 2)), gamma, np.full(2, 0.5))
    features = _beside(np.array([[1.0], [2.0]]), target_action=0)
    return Problem(mdp, np.tile([1.0, 0.0], (2, 1)), np.full((2, 2), 0.5), features, np.array([1.0, 0.0, 0.0]))


def kolter(share: float = 0.7, error: float = 1e-3, gamma: float = 0.99) -> Problem:
    """Returns Kolter's two states: values 1 and 1.05, features 1 and 1.05 + error, and off-policy data.

    The target moves to either state with probability one half. `share` is the share of data from the first one.
    Near a critical share the error of TD's fixed point is unbounded, although the best fit is almost exact.
    """
    if not 0.05 < share < 0.95:
        raise UsageError(f"share must be between 0.05 and 0.95, not {share:g}")
    mix = 0.1  # how often behaviour takes the target's action; the other action makes up for the share
    other = (share - mix / 2) / (1 - mix)
    P = np.empty((2, 2, 2))
    P[:, 0], P[:, 1] = 0.5, [other, 1 - other]
    value = np.array([1.0, 1.05])
    r = np.zeros((2, 2))
    r[:, 0] = value - gamma * value.mean()
    mdp = FiniteMDP(P, r, gamma, np.full(2, 0.5))
    features = _beside(np.array([[1.0], [1.05 + error]]), target_action=0)
    return Problem(mdp, np.tile([1.0, 0.0], (2, 1)), np.tile([mix, 1 - mix], (2, 1)), features)


def disjoint_policies(mdp: FiniteMDP, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns a target that takes the lower half of the actions and a behaviour that takes the upper half."""
    if mdp.actions < 2:
        raise UsageError("policies with disjoint support need at least 2 actions")
    half = mdp.actions // 2
    rng = np.random.default_rng(seed)
    target, behaviour = np.zeros(mdp.r.shape), np.zeros(mdp.r.shape)
    target[:, :half] = rng.dirichlet(np.ones(half), mdp.states)
    behaviour[:, half:] = rng.dirichlet(np.ones(mdp.actions - half), mdp.states)
    return target, behaviour


def rare_action(share: float, seed: int = 0, dim: int = 6, gamma: float = 0.9) -> Problem:
    """Returns a linear MDP in which only the last action has one of the factors and behaviour rarely takes it.

    One direction of the features is rare: C(pi, mu) is about dim - 1 plus a term proportional to 1 / `share`. It is
    infinite at share zero. The target takes every action equally often. Features are whitened under the target.
    """
    rng = np.random.default_rng(seed)
    x = np.zeros((20, 4, dim))
    x[:, :-1, :-1] = rng.dirichlet(np.full(dim - 1, 0.3), (20, 3))
    x[:, -1] = np.eye(dim)[-1]
    return _shared_out(x, rng, gamma, np.array([1 - share] * 3 + [3 * share]) / 3)


def idle_behaviour(share: float, seed: int = 0, dim: int = 6, gamma: float = 0.9) -> Problem:
    """Returns a linear MDP in which the last action always has the first factor and behaviour mostly takes it.

    All other directions are rare: C(pi, mu) grows as 1 / `share`, the frequency of behaviour's other actions. The
    target takes every action equally often. Features are whitened under the target.
    """
    rng = np.random.default_rng(seed)
    x = rng.dirichlet(np.full(dim, 0.3), (20, 4))
    x[:, -1] = np.eye(dim)[0]
    return _shared_out(x, rng, gamma, np.array([share] * 3 + [3 * (1 - share)]) / 3)


def _shared_out(x: np.ndarray, rng: np.random.Generator, gamma: float, behaviour: np.ndarray) -> Problem:
    """Returns a linear MDP of given factors with a uniform target and the same behaviour in every state."""
    if not ((behaviour >= 0) & (behaviour <= 1)).all():
        raise UsageError("share must be a probability, between 0 and 1")
    states, _, dim = x.shape
    m, w = rng.dirichlet(np.full(states, 0.5), dim), rng.uniform(size=dim)
    mdp = FiniteMDP(np.einsum("sai,ix->sax", x, m), x @ w, gamma, np.full(states, 1 / states))
    target = uniform_policy(mdp)
    features = Successor(x, m, w, gamma).whitened(mdp, target)
    return Problem(mdp, target, np.tile(behaviour, (states, 1)), features)


def uniform_policy(mdp: FiniteMDP) -> np.ndarray:
    """Returns the policy that takes every action with the same probability."""
    return np.full(mdp.r.shape, 1 / mdp.actions)


def random_policy(mdp: FiniteMDP, seed: int = 0, spread: float = 1.0) -> np.ndarray:
    """Draws each state's probabilities from a Dirichlet distribution with this parameter."""
    return np.random.default_rng(seed).dirichlet(np.full(mdp.actions, spread), mdp.states)


def _beside(state_features: np.ndarray, target_action: int) -> Fixed:
    """Returns features of pairs: the given ones for the target's action, one weight per state for the other."""
    states, dim = state_features.shape
    phi = np.zeros((states, 2, dim + states))
    phi[:, target_action, :dim] = state_features
    phi[:, 1 - target_action, dim:] = np.eye(states)
    return Fixed(phi)
