"""The paper's explicit choice of step size and inner length for Algorithm 2, and a practical one."""

import math
from typing import NamedTuple

import numpy as np

from fcritic.errors import UsageError
from fcritic.theory.evaluation import evaluate_exact
from fcritic.theory.tasks import Task
from fcritic.theory.trust import RANK_TOLERANCE, covariance


class Choice(NamedTuple):
    """A step size and an inner length, with what they were computed from."""

    step: float
    """alpha."""
    inner: int
    """K."""
    smallest: float
    """lambda_min^+ of A~, its smallest eigenvalue that is not zero."""
    rate: float
    """rho of the geometric mixing bound C rho^k."""
    constant: float
    """C of that bound."""
    mixing: int
    """tau_alpha, the steps until the chain is within alpha of its limit."""


def smallest_eigenvalue(task: Task) -> float:
    """lambda_min^+ of the data's covariance A~ = E_mu[phi phi'], the smallest eigenvalue that is not zero."""
    values = np.linalg.eigvalsh(covariance(task.phi, task.pairs))
    return float(values[values > RANK_TOLERANCE * values[-1]].min())


def printed_choice(task: Task, epsilon: float) -> Choice:
    """The remark's alpha and K for an inner accuracy of epsilon, with c_1 = 1 / ((1 - gamma)^2 lambda_min^+).

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
    """alpha = decay / (lambda_min^+ K): the smallest step with which the start is forgotten, e^-decay, in K steps.

    This is the remark's relation between alpha and K, without its worst-case constants. It is at most one over the
    largest squared length of a feature, beyond which single steps overshoot.
    """
    longest = float(np.max(np.sum(np.square(task.phi), axis=-1)))
    return min(decay / (smallest_eigenvalue(task) * inner), 1 / longest)


def _first_distance(task: Task) -> float:
    """V_0: the squared distance of zero from the first inner solution, in the norm of A~."""
    solution = evaluate_exact(task, outer=1)[1]
    return float(solution @ covariance(task.phi, task.pairs) @ solution)


def _distances(task: Task, longest: int = 2000) -> np.ndarray:
    """The total variation between the state after k = 0, 1, ... steps of mu and its limit, for the worst start."""
    chain = task.mdp.chain(task.behaviour)
    power, found = np.eye(len(chain)), []
    while len(found) < longest:
        found.append(0.5 * np.abs(power - np.asarray(task.states)[None, :]).sum(1).max())
        if found[-1] < 1e-10:  # rounding takes over
            break
        power = power @ chain
    return np.array(found)


def _mixing_bound(distances: np.ndarray) -> tuple[float, float]:
    """rho and the smallest C with distance(k) <= C rho^k, of (s, a, s'), which lags the state by one step."""
    if distances[-1] > 0.5:
        raise UsageError("the behaviour's chain does not mix; give every action some probability")
    steps = np.arange(len(distances))
    seen = distances > 1e-10
    last = int(steps[seen][-1])
    rate = float(np.clip((distances[last] / distances[0]) ** (1 / max(last, 1)), 1e-3, 1 - 1e-9))
    constant = float(np.max(distances[seen] / rate ** (steps[seen] + 1)))
    return rate, max(constant, 1.0)
