"""Families of policies with one or two parameters, and beliefs about their returns: `fig:psrl`.

J(pi_p) for p in [0, 1], the probability of going right in every state, is a curve for each MDP, one of the green
ones. The posterior over MDPs is a distribution over curves, and so is an ensemble; `measures` compares the two.
With two parameters, the probabilities of going right in the left and in the right half of the river, curves are
surfaces.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from fcritic.envs.exact import Task
from fcritic.exploration.ensembles import Counts, Critic, Ensemble, begin
from fcritic.exploration.known import Data, Prior, play, sample_models
from fcritic.exploration.learning import Rules, fit
from studies.exploration.methods import Method

GRID = np.linspace(0, 1, 21)
"""Values of p at which curves are compared."""
LINE = GRID[:, None]
"""Parameters of policies with one parameter."""
SIDE = np.linspace(0, 1, 9)
PLANE = np.stack(np.meshgrid(SIDE, SIDE, indexing="ij"), axis=-1).reshape(-1, 2)
"""Parameters of policies with two."""
GAMMA = 0.9
SWEEPS = 150
"""Sweeps of evaluation. After them gamma^t is about 1e-7, so that critics have converged."""
DRAWS = 1000
"""Number of MDPs drawn from the posterior."""

Curves = Float[np.ndarray, "_ grid"]
"""Returns over the family, one row per draw or member."""
Points = Float[np.ndarray, "grid parameters"]


@dataclasses.dataclass(frozen=True)
class Record:
    """The data so far: steps of the uniformly random policy in order of time."""

    layers: np.ndarray
    states: np.ndarray
    actions: np.ndarray
    outcomes: np.ndarray
    rewards: np.ndarray

    def counts(self, task: Task, members: int, mask: bool, random: np.random.Generator) -> Counts:
        """Returns the counts of each member; with masks each transition counts twice or never."""
        weight = 2.0 * random.integers(0, 2, (members, len(self.states))) if mask else None
        weight = np.ones((members, len(self.states))) if weight is None else weight
        transitions = np.zeros((members, *task.P.shape))
        rewards = np.zeros((members, *task.reward.shape))
        where = (np.arange(members)[:, None], self.layers[None], self.states[None], self.actions[None])
        np.add.at(transitions, (*where, self.outcomes[None]), weight)
        np.add.at(rewards, where, weight * self.rewards[None])
        return Counts(jnp.asarray(transitions, jnp.float32), jnp.asarray(rewards, jnp.float32))


def discounted_returns(
    P: Float[np.ndarray, "models states 2 next"],
    reward: Float[np.ndarray, "models states 2"],
    policies: Float[np.ndarray, "policies states"],
    gamma: float,
) -> Float[np.ndarray, "models policies"]:
    """Returns J(pi) = sum_t gamma^t r_t from the first state, without a horizon; successors are all states.

    Solves V = r_pi + gamma P_pi V for each model and policy.
    """
    share = np.stack([1 - policies, policies], axis=-1)
    chain = np.einsum("psa,msat->mpst", share, P)
    rewards = np.einsum("psa,msa->mps", share, reward)
    values = np.linalg.solve(np.eye(P.shape[1]) - gamma * chain, rewards[..., None])
    return values[:, :, 0, 0]


def collect(task: Task, episodes: int, random: np.random.Generator) -> tuple[Data, Record]:
    """Plays the random policy and returns its data as counts and as a record."""
    data = Data(task, 1)
    seen = [play(task, np.full((1, task.horizon, task.states), 0.5), random) for _ in range(episodes)]
    for each in seen:
        data.add(each)
    layers = np.tile(np.arange(task.horizon) % task.layers, episodes)
    lists = (
        np.concatenate([getattr(each, name)[0] for each in seen])
        for name in ("states", "actions", "outcomes", "rewards")
    )
    return data, Record(layers, *lists)


def policies_at(task: Task, points: Points) -> Float[np.ndarray, "grid states"]:
    """Returns pi_p(right | s) = p_k for the part k of the river that contains s."""
    return points[:, np.arange(task.states) * points.shape[1] // task.states]


def posterior_curves(
    task: Task, data: Data, prior: Prior, draws: int, random: np.random.Generator, points: Points = LINE
) -> Curves:
    """Returns J(pi_p) in MDPs from the posterior, each evaluated exactly."""
    many = Data(task, draws)
    many.transitions += data.transitions
    many.reward_sum += data.reward_sum
    many.square_sum += data.square_sum
    P, reward = sample_models(prior, many, random)
    return discounted_returns(P[:, 0], reward[:, 0], policies_at(task, points), GAMMA)


def true_curve(task: Task, points: Points = LINE) -> Float[np.ndarray, " grid"]:
    """Returns J(pi_p) in the task itself."""
    return discounted_returns(task.P, task.reward, policies_at(task, points), GAMMA)[0]


def prior_spread(task: Task, prior: Prior, random: np.random.Generator) -> float:
    """Returns J's standard deviation under the prior, averaged over the family: the scale of prior functions."""
    return float(posterior_curves(task, Data(task, 1), prior, DRAWS, random).std(axis=0).mean())


def ensemble_curves(
    task: Task,
    record: Record,
    method: Method,
    scale: float,
    members: int,
    seed: int,
    refit: bool = False,
    points: Points = LINE,
) -> Curves:
    """Returns each member's estimate of the return of every policy in the grid.

    A functional critic is trained at as many random policies as the ensemble has members and generalises to the
    others. A standard critic has the values of one policy, its own greedy one; its estimate for another takes one
    step of it, sum_a pi_p(a|s) Q(s, a). With `refit` it is instead trained anew on every policy in the grid, from
    the same data, masks and prior.
    """
    random = np.random.default_rng([seed, 1])
    ensemble = dataclasses.replace(method.ensemble, members=members)
    ensemble = dataclasses.replace(ensemble, kind="actors") if refit else ensemble
    counts = record.counts(task, members, method.mask, random)
    options = method.options(scale)
    shape = (task.layers, task.states, task.P.shape[-1])
    critics = _begin(ensemble, shape, options, jax.random.key(seed)).critics
    parameters = points.shape[1]
    trained = (
        random.random((members, parameters)) if ensemble.kind == "functional" else np.full((1, parameters), 0.5)
    )
    tables = [jnp.asarray(policies_at(task, each)[:, None], jnp.float32) for each in (trained, points)]
    rules = Rules(task.shifts, GAMMA, ends=False)
    found = _beliefs(ensemble, refit, rules, counts, options.prior_weight, critics, *tables)
    return np.asarray(found, float)


_begin = jax.jit(begin, static_argnums=(0, 1))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _beliefs(
    ensemble: Ensemble,
    refit: bool,
    rules: Rules,
    counts: Counts,
    weight: Float[Array, ""],
    critics: Critic,
    trained: Float[Array, "policies 1 states"],
    grid: Float[Array, "grid 1 states"],
) -> Float[Array, "members grid"]:
    def after_training(policies: Float[Array, "policies 1 states"]) -> Critic:
        tables = jnp.broadcast_to(policies[None], (ensemble.members, *policies.shape))
        return fit(ensemble, rules, counts, weight, critics, tables, SWEEPS)

    def says(critic: Critic, policy: Float[Array, "1 states"]) -> Float[Array, ""]:
        q = critic(policy)[0, 0]
        return q[0] + policy[0, 0] * (q[1] - q[0])

    if refit:
        return jax.vmap(lambda policy: jax.vmap(lambda critic: says(critic, policy))(after_training(policy[None])))(
            grid
        ).T
    learned = after_training(trained)
    return jax.vmap(lambda critic: jax.vmap(lambda policy: says(critic, policy))(grid))(learned)


# Distances between the curves of an ensemble and those of the posterior

LEVELS = (np.arange(1000) + 0.5) / 1000


def measures(believed: Curves, exact: Curves, grid: Float[np.ndarray, " grid"]) -> dict[str, float]:
    """Returns all measures; `mean_error`, `std_error` and `wasserstein` are in units of the exact spread.

    `mean_error`, `std_error`: root mean square over policies. `std_ratio`: spread over the posterior's, ideally 1.
    `wasserstein`: distance of the distributions of J(pi_p), averaged over policies. `correlation_error`: root mean
    square difference of correlations between policies. `argmax_distance`: distance between the distributions of the
    best policy, in units of p.
    """
    unit = np.sqrt(np.mean(exact.var(axis=0)))
    mean_gap = believed.mean(axis=0) - exact.mean(axis=0)
    std_gap = believed.std(axis=0) - exact.std(axis=0)
    best = (grid[each.argmax(axis=1)] for each in (believed, exact))
    return {
        "mean_error": float(np.sqrt(np.mean(mean_gap**2)) / unit),
        "std_error": float(np.sqrt(np.mean(std_gap**2)) / unit),
        "std_ratio": float(believed.std(axis=0).mean() / exact.std(axis=0).mean()),
        "wasserstein": float(np.mean(wasserstein(believed, exact)) / unit),
        "correlation_error": float(np.sqrt(np.mean((correlations(believed) - correlations(exact)) ** 2))),
        "argmax_distance": float(wasserstein(*(each[:, None] for each in best))[0]),
    }


def wasserstein(first: Curves, second: Curves) -> Float[np.ndarray, " grid"]:
    """Returns W_1 of two samples at each policy, the mean gap between their quantiles."""
    quantiles = (np.quantile(each, LEVELS, axis=0, method="inverted_cdf") for each in (first, second))
    return np.mean(np.abs(np.subtract(*quantiles)), axis=0)


def correlations(curves: Curves) -> Float[np.ndarray, "grid grid"]:
    """Returns correlations between policies over draws, zero where all draws are equal."""
    centred = curves - curves.mean(axis=0)
    length = np.sqrt((centred**2).sum(axis=0))
    flat = length < 1e-9 * max(1.0, float(np.abs(curves).max()))
    product = (
        centred.T @ centred / np.where(np.outer(flat, flat) | flat | flat[:, None], 1, np.outer(length, length))
    )
    return np.where(flat | flat[:, None], 0.0, product)
