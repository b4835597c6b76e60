"""Algorithm 2: evaluation of a target policy from another policy's data, with a target that is held fixed.

The critic is linear, Q(s, a) = <phi^pi(s, a), xi>. An outer iteration fits r + gamma E_pi[Q_target(s', .)] by K
gradient steps on sampled transitions, then copies the weights to the target. The mean over the target policy's
actions is exact, so there is no importance ratio. The paper's choice of step size and inner length, and a practical
one, come last.
"""

import functools
import math
from typing import NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fcritic.errors import UsageError, did_you_mean
from fcritic.theory.mdp import FiniteMDP, float64
from fcritic.theory.problems import Problem
from fcritic.theory.trust import RANK_TOLERANCE, covariance, invert


class Task(NamedTuple):
    """The inputs of an evaluation: arrays alone, so that one compiled program serves all policies of a size."""

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
    """Returns the evaluation of `target` from the stationary data of `behaviour`, with features `phi[S, A, d]`."""
    mu, pi, phi = np.asarray(behaviour, float), np.asarray(target, float), np.asarray(phi, float)
    if phi.ndim != 3 or phi.shape[:2] != mdp.r.shape:
        raise UsageError(
            f"features must have the shape [S, A, d] = {list(mdp.r.shape)} and d, not {list(phi.shape)}"
        )
    mdp.policy(pi)
    return Task(phi, mdp.r, np.float64(mdp.gamma), pi, mu, mdp.P, mdp.stationary(mu))


def task_of(problem: Problem) -> Task:
    """Returns the evaluation task of a problem."""
    return make_task(problem.mdp, problem.behaviour, problem.target, problem.features(problem.target))


def value_errors(task: Task, weights: ArrayLike) -> np.ndarray:
    """Returns ||Q - Q^pi|| in L2(d_pi), the root mean squared error, for weights [..., d]."""
    error = np.einsum("sad,...d->...sa", task.phi, weights) - task.mdp.q(task.target)
    with np.errstate(over="ignore", invalid="ignore"):  # weights that diverged
        return np.sqrt(np.einsum("...sa,sa->...", error**2, task.target_pairs))


SAMPLINGS = ("independent", "trajectory")
"""Ways to draw transitions: s ~ d_mu afresh each time, or along one path of mu (Markovian)."""
BLOCK = 1000
"""Transitions drawn at once. Inner lengths that are multiples of it share a compiled program."""


@float64
def evaluate(
    task: Task,
    keys: Array,
    *,
    outer: int,
    inner: int,
    step: ArrayLike,
    truncate: ArrayLike = True,
    reset: ArrayLike = True,
    sampling: str = "independent",
    first: ArrayLike | None = None,
) -> Array:
    """Runs Algorithm 2 for several seeds and returns the targets' weights [seeds, outer + 1, d].

    The last target is the result. The defaults are as printed. `reset=False` starts the inner loop from the target
    instead of zero. To compare step sizes or variants, `vmap` over `step`, `truncate` and `reset`.

    **Arguments:**

    - `keys`: one key per seed.
    - `outer`, `inner`, `step`: T, K and alpha.
    - `truncate`: cut the target's values to [0, 1 / (1 - gamma)].
    - `sampling`: `independent` or `trajectory`.
    - `first`: the first target's weights [d]; zero where None.
    """
    if sampling not in SAMPLINGS:
        hint = did_you_mean(sampling, SAMPLINGS) or f"; known are {', '.join(SAMPLINGS)}"
        raise UsageError(f"unknown sampling '{sampling}'{hint}")
    if outer < 1 or inner < 1:
        raise UsageError(f"outer and inner iterations must be at least 1, not {outer} and {inner}")
    numbers = (jnp.asarray(step, jnp.float64), _limits(task, truncate), jnp.where(reset, 0.0, 1.0))
    block = BLOCK if inner % BLOCK == 0 else inner
    return _evaluate(task, keys, numbers, inner // block, _first(task, first), outer, block, sampling)


@functools.partial(jax.jit, static_argnames=("outer", "block", "sampling"))
def _evaluate(
    task: Task,
    keys: Array,
    numbers: tuple[Array, Array, Array],
    blocks: Array,
    first: Array,
    outer: int,
    block: int,
    sampling: str,
) -> Array:
    step, limits, kept = numbers  # arrays, like the number of blocks, so that variants share a compiled program

    def one_seed(key: Array) -> Array:
        def iterate(carry: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Array]:
            weights, state = carry
            values = next_values(task, weights, limits)

            def learn(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
                weights, state = carry
                state, pairs, following = sample(task, jax.random.fold_in(key, index), block, sampling, state)
                return _inner_loop(task, weights, values, pairs, following, step), state

            carry = jax.lax.fori_loop(0, blocks, learn, (kept * weights, state))
            return carry, carry[0]

        first_key, key = jax.random.split(key)
        state = jax.random.categorical(first_key, jnp.log(task.states)).astype(jnp.int32)
        targets = jax.lax.scan(iterate, (first, state), jax.random.split(key, outer))[1]
        return jnp.concatenate([first[None], targets])

    return jax.vmap(one_seed)(keys)


def _inner_loop(task: Task, weights: Array, values: Array, pairs: Array, following: Array, step: Array) -> Array:
    """Takes gradient steps on (phi' xi - y)^2 / 2 with y = r + gamma v(s') for the target's fixed values v."""
    phi, rewards = task.rows
    targets = rewards[pairs] + task.gamma * values[following]

    def move(weights: Array, seen: tuple[Array, Array]) -> tuple[Array, None]:
        pair, target = seen
        features = phi[pair]
        return weights + step * (target - jnp.dot(features, weights)) * features, None

    return jax.lax.scan(move, weights, (pairs, targets))[0]


def next_values(task: Task, weights: Array, limits: Array) -> Array:
    """Returns v[S], v(s) = sum_a pi(a|s) Q_target(s, a) with the target's values clipped to the limits."""
    values = jnp.einsum("sad,d->sa", task.phi, weights)
    return jnp.einsum("sa,sa->s", task.target, jnp.clip(values, limits[0], limits[1]))


def _limits(task: Task, truncate: ArrayLike) -> Array:
    return jnp.where(truncate, jnp.array([0.0, 1 / (1 - task.gamma)]), jnp.array([-jnp.inf, jnp.inf]))


def _first(task: Task, first: ArrayLike | None) -> Array:
    return jnp.zeros(task.phi.shape[-1]) if first is None else jnp.asarray(first, dtype=jnp.float64)


def sample(task: Task, key: Array, count: int, sampling: str, state: Array) -> tuple[Array, Array, Array]:
    """Draws `count` transitions and returns the last state, the pairs s A + a and the next states.

    One uniform number draws a whole step from its joint distribution.
    """
    states, actions = task.r.shape
    uniforms = jax.random.uniform(key, (count,), dtype=jnp.float64)
    moves = task.behaviour[:, :, None] * task.P
    if sampling == "independent":
        cumulative = jnp.cumsum((task.states[:, None, None] * moves).ravel())
        drawn = jnp.searchsorted(cumulative, uniforms * cumulative[-1], side="right")
        drawn = jnp.minimum(drawn, cumulative.size - 1)
        return state, drawn // states, drawn % states
    cumulative = jnp.cumsum(moves.reshape(states, -1), axis=1)

    def move(state: Array, uniform: Array) -> tuple[Array, Array]:
        row = cumulative[state]
        drawn = jnp.sum(row <= uniform * row[-1]).astype(jnp.int32)
        drawn = jnp.minimum(drawn, row.size - 1)
        return drawn % states, state * actions * states + drawn

    state, drawn = jax.lax.scan(move, state, uniforms)
    return state, drawn // states, drawn % states


@float64
def evaluate_exact(task: Task, *, outer: int, truncate: ArrayLike = True, first: ArrayLike | None = None) -> Array:
    """Runs Algorithm 2 with an exact inner loop (K = infinity) and returns the targets' weights [outer + 1, d].

    xi_{t+1} = A~^+ E_mu[phi (r + gamma v_t(s'))], the least-squares fit of minimum norm. Gradient steps from zero
    converge to it even where A~ is singular, because they never leave its range.
    """
    return _evaluate_exact(task, projection(task), _limits(task, truncate), _first(task, first), outer)


@functools.partial(jax.jit, static_argnames=("outer",))
def _evaluate_exact(task: Task, fit: Array, limits: Array, first: Array, outer: int) -> Array:
    def iterate(weights: Array, _: None) -> tuple[Array, Array]:
        backup = task.r + task.gamma * jnp.einsum("sax,x->sa", task.P, next_values(task, weights, limits))
        weights = fit @ backup.ravel()
        return weights, weights

    return jnp.concatenate([first[None], jax.lax.scan(iterate, first, None, length=outer)[1]])


@float64
def projection(task: Task) -> Array:
    """Returns A~^+ Phi' D [d, S A], which maps values to the weights of their least-squares fit on the data."""
    root = jnp.asarray(invert(covariance(task.phi, task.pairs)).root)
    phi, _ = task.rows
    return root @ root @ (phi * task.pairs.ravel()[:, None]).T


@float64
def fixed_point(task: Task, truncate: bool = True, limit: int = 100_000, tolerance: float = 1e-12) -> Array:
    """Returns the weights [d] to which the exact Algorithm 2 converges from zero; NaN if not within `limit`."""
    weights, block = np.zeros(task.phi.shape[-1]), 100
    for _ in range(-(-limit // block)):
        path = evaluate_exact(task, outer=block, truncate=truncate, first=weights)
        weights = path[-1]
        if not np.isfinite(weights).all():
            break
        if np.abs(path[-1] - path[-2]).max() <= tolerance * max(1.0, np.abs(weights).max()):
            return weights
    return np.full_like(weights, np.nan)


class Choice(NamedTuple):
    """A step size and an inner length, with the quantities behind them."""

    step: float
    """alpha."""
    inner: int
    """K."""
    smallest: float
    """lambda_min^+ of A~, its smallest nonzero eigenvalue."""
    rate: float
    """rho of the geometric mixing bound C rho^k."""
    constant: float
    """C of that bound."""
    mixing: int
    """tau_alpha, the steps until the chain is within alpha of its limit."""


def smallest_eigenvalue(task: Task) -> float:
    """Returns lambda_min^+ of the data's covariance A~ = E_mu[phi phi'], the smallest nonzero eigenvalue."""
    values = np.linalg.eigvalsh(covariance(task.phi, task.pairs))
    return float(values[values > RANK_TOLERANCE * values[-1]].min())


def printed_choice(task: Task, epsilon: float) -> Choice:
    """Returns the remark's alpha and K for an inner accuracy of epsilon.

    With c_1 = 1 / ((1 - gamma)^2 lambda_min^+) these are
    alpha = log(1/rho) / log(2 C / epsilon) min(lambda / (260 L^2), c_0 epsilon / (4 c_1)),
    K = log(2 V_0 / epsilon) / (c_0 alpha) + tau_alpha. The proof only says that c_1 is of that order: its own
    constants are hundreds of times larger, so the true K is larger still.
    """
    if not 0 < epsilon < 1:
        raise UsageError(f"epsilon must be in (0, 1), not {epsilon:g}")
    smallest = smallest_eigenvalue(task)
    distances = _distances(task)
    rate, constant = _mixing_bound(distances)
    lipschitz = 2 / (1 - float(task.gamma))  # max(L_1, L_2)
    slowness = math.log(1 / rate) / math.log(2 * constant / epsilon)
    ratio = smallest * (1 - float(task.gamma)) ** 2 * smallest  # c_0 / c_1
    step = slowness * min(smallest / (260 * lipschitz**2), ratio * epsilon / 4)
    mixing = max(1, math.ceil(math.log(constant / step) / math.log(1 / rate)))
    inner = math.ceil(max(0.0, math.log(2 * _first_distance(task) / epsilon)) / (smallest * step)) + mixing
    return Choice(step, inner, smallest, rate, constant, mixing)


def step_for(task: Task, inner: int, decay: float = 10.0) -> float:
    """Returns alpha = decay / (lambda_min^+ K), the smallest step that shrinks an error by e^-decay in K steps.

    This is the remark's relation between alpha and K without its worst-case constants. It is capped at one over the
    largest squared length of a feature, beyond which single steps overshoot.
    """
    longest = float(np.max(np.sum(np.square(task.phi), axis=-1)))
    return min(decay / (smallest_eigenvalue(task) * inner), 1 / longest)


def _first_distance(task: Task) -> float:
    """Returns V_0, the squared distance of zero from the first inner solution in the norm of A~."""
    solution = evaluate_exact(task, outer=1)[1]
    return float(solution @ covariance(task.phi, task.pairs) @ solution)


def _distances(task: Task, longest: int = 2000) -> np.ndarray:
    """Returns the total variation of mu's chain from its limit after 0, 1, ... steps, at the worst start."""
    chain = task.mdp.chain(task.behaviour)
    power, found = np.eye(len(chain)), []
    while len(found) < longest:
        found.append(0.5 * np.abs(power - np.asarray(task.states)[None, :]).sum(1).max())
        if found[-1] < 1e-10:  # rounding takes over
            break
        power = power @ chain
    return np.array(found)


def _mixing_bound(distances: np.ndarray) -> tuple[float, float]:
    """Returns rho and the smallest C with distance(k) <= C rho^k; (s, a, s') lags the state by one step."""
    if distances[-1] > 0.5:
        raise UsageError("the behaviour's chain does not mix; give every action some probability")
    steps = np.arange(len(distances))
    seen = distances > 1e-10
    last = int(steps[seen][-1])
    rate = float(np.clip((distances[last] / distances[0]) ** (1 / max(last, 1)), 1e-3, 1 - 1e-9))
    constant = float(np.max(distances[seen] / rate ** (steps[seen] + 1)))
    return rate, max(constant, 1.0)
