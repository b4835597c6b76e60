"""What a policy's Bellman equation says on logged rows, in features in which a critic's values are linear.

Target-based evaluation, Algorithm 2, moves the weights of values phi' w toward the solution of this equation,
projected on the features. With the last hidden layer of a trained critic as phi it can be solved at once, for any
policy and without learning, beginning at the weights that the critic has.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from fcritic.agents.losses import encode_all
from fcritic.networks.critics import FunctionalCritic, PrimedHead
from fcritic.types import Transition

RIDGE = 0.001
"""What is added to the features' second moment before it is inverted, as a share of its mean eigenvalue."""

CAUTION = 0.001
"""How much a correction has to explain: in directions where the equation says less about the weights than this, in
units of the features' standard deviation, they stay as they were learned. Both constants were chosen between 0.0001
and 0.01 on one split of tasks of the study of evaluation, and on an agent on cartpole-swingup."""


class BellmanEquation(NamedTuple):
    """(moment - ahead) w = reward, the projected equation for values phi(s, a)' w of one policy."""

    moment: Float[Array, "*critics features features"]
    """E[phi phi'], the second moment of Definition 1."""
    ahead: Float[Array, "*critics features features"]
    """gamma E[phi phi(s', pi(s'))']."""
    reward: Float[Array, "*critics features"]
    """E[phi r]; where a row ends its task r holds what that is worth."""
    first: Float[Array, "*critics features"]
    """E[phi(s_0, pi(s_0))] over the states whose value is asked."""
    weights: Float[Array, "*critics features"]
    """What the critic has learned: its value is phi' weights."""


def bellman_equation(
    here: Float[Array, "rows features"],
    there: Float[Array, "rows features"],
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    first: Float[Array, "starts features"],
    weights: Float[Array, " features"],
) -> BellmanEquation:
    """Returns the equation from features of logged pairs, of what the policy does next, and of its first pairs."""
    rows = len(here)
    ahead = here.T @ (discount[:, None] * there) / rows
    return BellmanEquation(here.T @ here / rows, ahead, reward @ here / rows, first.mean(axis=0), weights)


def equations_of_policies(
    critics: FunctionalCritic,
    policies: Any,
    starts: Float[Array, "policies starts obs"],
    logged: Transition,
    discount: float,
) -> BellmanEquation:
    """Returns the equation of every policy in the features of every critic, with axes (policies, critics).

    A prior is no part of phi' w: what it adds to the value of a pair is taken from the reward.
    """

    def of_policy(given: tuple[Any, Array, Array]) -> BellmanEquation:
        policy, codes, states = given
        next_act, first_act = vmap(policy)(logged.next_obs), vmap(policy)(states)

        def of_critic(head: Any, code: Float[Array, " code"]) -> BellmanEquation:
            plain, reward = head, logged.reward
            if isinstance(head, PrimedHead):
                plain, prior = head.head, vmap(head.prior)
                after = logged.discount * prior(logged.next_obs, next_act)
                reward = reward + discount * after - prior(logged.obs, logged.act)
            seen = vmap(partial(plain.features, code))
            here, there = seen(logged.obs, logged.act), seen(logged.next_obs, next_act)
            first = seen(states, first_act)
            return bellman_equation(here, there, reward, discount * logged.discount, first, plain.joint.weights)

        return vmap(of_critic)(critics.head, codes)

    codes = jnp.moveaxis(encode_all(critics, policies), 0, 1)
    return jax.lax.map(of_policy, (policies, codes, starts))


def corrections(given: BellmanEquation) -> Float[np.ndarray, "*critics"]:
    """Returns by how much each critic's value at first states changes when its weights solve the equation.

    The change of the weights is the smallest that explains what the learned ones leave open: with S the damped
    second moment, it minimises |(S - ahead) change - left open|^2 in the norm of S^-1 plus CAUTION^2 |change|^2 in
    that of S. So it stays near zero where the equation is nearly singular, where its plain solution would explode.
    """
    moment, ahead, reward, first, weights = (np.asarray(part, np.float64) for part in given)
    column = lambda vector: vector[..., None]
    size = np.trace(moment, axis1=-2, axis2=-1)[..., None, None] / moment.shape[-1]
    damped = moment + RIDGE * size * np.eye(moment.shape[-1])
    root = np.linalg.cholesky(damped)
    slope = np.linalg.solve(root, damped - ahead)
    left_open = np.linalg.solve(root, column(reward) - (moment - ahead) @ column(weights))
    across = np.swapaxes(slope, -1, -2)
    change = np.linalg.solve(across @ slope + CAUTION**2 * damped, across @ left_open)
    return np.asarray((first * change[..., 0]).sum(axis=-1))
