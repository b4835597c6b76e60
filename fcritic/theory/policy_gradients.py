"""Policy gradients from a critic's weights: with both terms, with the first alone, emphatic, and on-policy.

All are expectations over states that are computed, not sampled, so that they differ in their formula alone.
"""

from collections.abc import Callable
import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from fcritic.theory.features import AbstractFeatures
from fcritic.theory.mdp import FiniteMDP
from fcritic.theory.policies import AbstractPolicy
from fcritic.theory.precision import float64

GRADIENTS = {
    "both": "both terms of eq. (2), the functional critic's gradient of J_rho",
    "first": "the first term alone, states weighted by d_mu / (1 - gamma), which is exact at mu = pi: Off-PAC",
    "emphatic": "the first term, states weighted by the emphasis of d_mu, which is computed exactly",
    "emphatic-printed": "the same with the emphasis as printed under eq. (3), its endless sum cut",
    "on-policy": "the first term, states weighted by the discounted visits of the policy itself",
    "exact": "the exact gradient of J_rho; no critic",
}
"""Name and meaning of each formula."""


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["mdp", "features", "policy", "rho"], meta_fields=[]
)
@dataclasses.dataclass(frozen=True, eq=False)
class Control:
    """A problem of control: an MDP, features of policies, and how parameters make a policy.

    It can be an argument of a compiled program, which then serves all problems of a size.
    """

    mdp: FiniteMDP
    features: AbstractFeatures
    """Functional features phi; where they are exact, its `weights` are xi*."""
    policy: AbstractPolicy
    rho: Float[Array, " states"]
    """The distribution of first states in J_rho."""

    @float64
    def objective(self, theta: Float[Array, " parameters"]) -> Float[Array, ""]:
        """J_rho of the parameters."""
        return self.mdp.objective(self.policy(theta), self.rho)

    @property
    def optimum(self) -> float:
        """The largest J_rho of any policy, by policy iteration. Softmax policies come as close as one likes."""
        pi = np.eye(self.mdp.actions)[np.argmax(self.mdp.r, axis=1)]
        while True:
            better = np.eye(self.mdp.actions)[np.argmax(self.mdp.q(pi), axis=1)]
            if np.dot(self.rho, self.mdp.v(better) - self.mdp.v(pi)) < 1e-12:
                return float(self.mdp.objective(pi, self.rho))
            pi = better

    @float64
    def pairs(self, pi: Float[Array, "states actions"]) -> Float[Array, "states actions"]:
        """The stationary measure of a policy over pairs."""
        return self.mdp.pairs(self.mdp.stationary(pi), pi)


@float64
def emphasis(
    mdp: FiniteMDP, pi: Float[Array, "states actions"], first: Float[Array, " states"]
) -> Float[Array, " states"]:
    """m with m' = first' (I - gamma P_pi)^-1: the policy's discounted visits to each state, from `first` on."""
    return mdp.occupancy(pi, first) / (1 - mdp.gamma)


@float64
def printed_emphasis(
    mdp: FiniteMDP, pi: Float[Array, "states actions"], first: Float[Array, " states"]
) -> Float[Array, " states"]:
    """The sum under eq. (3) to the letter, E[sum_t first(s_t) | s_0 = s]: no discount, and it looks ahead.

    Without a discount it does not converge, so it ends after ln(0.01) / ln(gamma) steps.
    """
    chain = mdp.chain(pi)
    count = math.ceil(math.log(0.01) / math.log(mdp.gamma)) if mdp.gamma > 0 else 1
    step = lambda ahead, _: (jnp.asarray(first) + chain @ ahead, None)
    return jax.lax.scan(step, jnp.zeros(mdp.states), None, count)[0]


@float64
def estimated_objective(
    problem: Control, theta: Float[Array, " parameters"], weights: Float[Array, " d"]
) -> Float[Array, ""]:
    """J_rho by the functional critic: E_rho sum_a pi(a|s) <phi^pi(s, a), xi>."""
    pi = problem.policy(theta)
    return jnp.einsum("s,sa,sad,d->", problem.rho, pi, problem.features(pi), weights)


@float64
def first_term(
    problem: Control,
    theta: Float[Array, " parameters"],
    weights: Float[Array, " d"],
    states: Float[Array, " states"],
) -> Float[Array, " parameters"]:
    """sum_s states(s) sum_a grad pi(a|s) <phi^pi(s, a), xi>: the policy enters by its actions alone."""
    q = problem.features(problem.policy(theta)) @ weights
    return jax.grad(lambda at: jnp.einsum("s,sa,sa->", states, problem.policy(at), q))(theta)


@float64
def policy_gradient(
    kind: str | Int[Array, ""],
    problem: Control,
    theta: Float[Array, " parameters"],
    weights: Float[Array, " d"],
    behaviour: Float[Array, "states actions"],
) -> Float[Array, " parameters"]:
    """The gradient by one of `GRADIENTS`, from a critic's weights and the behaviour policy mu.

    **Arguments:** `kind` is a name, or its place in `GRADIENTS`, which a compiled program can be given.
    """
    theta, weights = jnp.asarray(theta), jnp.asarray(weights)

    def both() -> Array:
        return jax.grad(lambda at: estimated_objective(problem, at, weights))(theta)

    def exact() -> Array:
        return jax.grad(problem.objective)(theta)

    def weighted(states: Callable[[], Array]) -> Callable[[], Array]:
        return lambda: first_term(problem, theta, weights, states())

    pi, mdp = problem.policy(theta), problem.mdp
    formulas = {
        "both": both,
        "first": weighted(lambda: mdp.stationary(behaviour) / (1 - mdp.gamma)),
        "emphatic": weighted(lambda: emphasis(mdp, pi, mdp.stationary(behaviour))),
        "emphatic-printed": weighted(lambda: printed_emphasis(mdp, pi, mdp.stationary(behaviour))),
        "on-policy": weighted(lambda: emphasis(mdp, pi, problem.rho)),
        "exact": exact,
    }
    if isinstance(kind, str):
        return formulas[kind]()
    return jax.lax.switch(kind, [lambda formula=formulas[name]: jnp.asarray(formula()) for name in GRADIENTS])
