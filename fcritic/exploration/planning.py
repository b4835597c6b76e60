"""Exact values by backward induction, for many models at once. Leading axes `...` are models."""

from jaxtyping import Float
import numpy as np

from fcritic.envs.exact import Task


def backup(
    task: Task,
    P: Float[np.ndarray, "*models layers states 2 next"],
    reward: Float[np.ndarray, "*models layers states 2"],
    values: Float[np.ndarray, "*models states"],
    time: int,
) -> Float[np.ndarray, "*models states 2"]:
    """Q_h(s, a) = r(s, a) + sum_s' P(s'|s, a) V_{h+1}(s')."""
    layer = time % task.layers
    following = values[..., task.successors]
    return reward[..., layer, :, :] + np.einsum("...sak,...sk->...sa", P[..., layer, :, :, :], following)


def best_values(
    task: Task,
    P: Float[np.ndarray, "*models layers states 2 next"],
    reward: Float[np.ndarray, "*models layers states 2"],
) -> Float[np.ndarray, "*models horizon states 2"]:
    """Q*_h(s, a) for each time h."""
    q = np.empty((*P.shape[:-4], task.horizon, task.states, 2))
    values = np.zeros((*P.shape[:-4], task.states))
    for time in reversed(range(task.horizon)):
        q[..., time, :, :] = backup(task, P, reward, values, time)
        values = q[..., time, :, :].max(axis=-1)
    return q


def optimal_return(task: Task) -> float:
    """V* of the first state."""
    return float(best_values(task, task.P, task.reward)[0, 0].max())


def policy_returns(
    task: Task,
    P: Float[np.ndarray, "*models layers states 2 next"],
    reward: Float[np.ndarray, "*models layers states 2"],
    policy: Float[np.ndarray, "*models horizon states"],
) -> Float[np.ndarray, "*models"]:
    """J(pi), the expected return from the first state; `policy` is the probability of action 1 at each time."""
    values = np.zeros((*policy.shape[:-2], task.states))
    for time in reversed(range(task.horizon)):
        q = backup(task, P, reward, values, time)
        values = q[..., 0] + policy[..., time, :] * (q[..., 1] - q[..., 0])
    return values[..., 0]


def discounted_returns(
    P: Float[np.ndarray, "models states 2 next"],
    reward: Float[np.ndarray, "models states 2"],
    policies: Float[np.ndarray, "policies states"],
    gamma: float,
) -> Float[np.ndarray, "models policies"]:
    """J(pi) = sum_t gamma^t r_t from the first state, without a horizon; successors are all states.

    The linear equations V = r_pi + gamma P_pi V, for each model and policy.
    """
    share = np.stack([1 - policies, policies], axis=-1)
    chain = np.einsum("psa,msat->mpst", share, P)
    rewards = np.einsum("psa,msa->mps", share, reward)
    values = np.linalg.solve(np.eye(P.shape[1]) - gamma * chain, rewards[..., None])
    return values[:, :, 0, 0]
