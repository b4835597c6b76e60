"""What the experiments on control share: problems, the step size of the proof, and samples until a goal."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from fcritic.theory.control import Control, TabularSoftmax, periodic
from fcritic.theory.features import Successor
from fcritic.theory.mdp import FiniteMDP, float64
from fcritic.theory.problems import linear_mdp, river_swim, uniform_policy

STATES, ACTIONS, DIM = 10, 3, 4


def linear_problem(seed: int) -> tuple[FiniteMDP, Successor]:
    """A linear MDP with features in coordinates that suit gradient steps under the uniform policy."""
    mdp, features = linear_mdp(seed, STATES, ACTIONS, DIM)
    return mdp, features.whitened(mdp, uniform_policy(mdp))


def tabular_control(seed: int) -> Control:
    """Softmax policies with a preference for each pair; J starts from the uniform policy's stationary states.

    That policy is the first behaviour policy, so Off-PAC and the emphatic gradient aim at the same J as the others.
    """
    mdp, features = linear_problem(seed)
    return Control(mdp, features, TabularSoftmax(STATES, ACTIONS), mdp.stationary(uniform_policy(mdp)))


def exact_features(mdp: FiniteMDP) -> Successor:
    """Successor features of a tabular problem: any finite MDP is linear in the indicators of its pairs."""
    size = mdp.states * mdp.actions
    return Successor(
        np.eye(size).reshape(mdp.states, mdp.actions, size), mdp.P.reshape(size, -1), mdp.r.ravel(), mdp.gamma
    )


def river_control() -> Control:
    """RiverSwim with six states: the uniform policy hardly ever sees the reward, so coverage is what counts."""
    mdp = river_swim(6, gamma=0.9)
    policy = TabularSoftmax(mdp.states, mdp.actions)
    return Control(mdp, exact_features(mdp), policy, mdp.stationary(uniform_policy(mdp)))


def periodic_control(seed: int) -> Control:
    """The same MDP with periodic policies."""
    mdp, features = linear_problem(seed)
    return Control(mdp, features, periodic(STATES, ACTIONS, seed=seed), mdp.stationary(uniform_policy(mdp)))


@float64
def safe_step(problem: Control, theta: Float[Array, " parameters"], steps: int = 200) -> float:
    """1 / (8 L), the step size of the proof of Theorem 2.

    L is the largest norm of the Hessian of J on the way of the exact gradient: first a rough way with a guess of L
    at its start, then again with the step that this gives.
    """
    size = 1 / (8 * _largest_curvature(problem, 0.0, 1, theta))
    return float(1 / (8 * _largest_curvature(problem, size, steps, theta)))


@functools.partial(jax.jit, static_argnums=2)
def _largest_curvature(problem: Control, step_size: float, steps: int, theta: Array) -> Array:
    def move(theta: Array, _: None) -> tuple[Array, Array]:
        curvature = jnp.linalg.norm(jax.hessian(problem.objective)(theta), ord=2)
        return theta + step_size * jax.grad(problem.objective)(theta), curvature

    return jnp.max(jax.lax.scan(move, jnp.asarray(theta), None, steps)[1])


def samples_until(reached: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """For each seed the samples drawn when a goal is first reached; infinite where it never is."""
    first = np.argmax(reached, axis=1)
    found = np.take_along_axis(samples, first[:, None], axis=1)[:, 0]
    return np.where(reached.any(axis=1), found, np.inf)


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """The slope of a line through log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
