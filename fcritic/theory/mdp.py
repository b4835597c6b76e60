"""Finite Markov decision processes with exact values, gradients and distributions, and sampling.

Policies and distributions are plain arrays: `pi[S, A]` holds pi(a|s), a distribution over states is `d[S]`, over
pairs `d[S, A]`. Everything but sampling can be differentiated and vmapped by JAX in the policy.
"""

from collections.abc import Callable
import dataclasses
from typing import NamedTuple

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fcritic.errors import UsageError
from fcritic.theory.linear_algebra import solve
from fcritic.theory.precision import float64, is_traced

SUM_TOLERANCE = 1e-8
"""How far the sum of a distribution may be from one."""
RANK_TOLERANCE = 1e-10
"""Singular values of I - P below this count as zero."""


class Transitions(NamedTuple):
    """Sampled steps (s, a, r, s'); every field has the same leading axes."""

    state: Array
    action: Array
    reward: Array
    next_state: Array


@dataclasses.dataclass(frozen=True, eq=False)
class FiniteMDP:
    """A Markov decision process with S states and A actions."""

    P: np.ndarray
    """P[S, A, S], the probability p(s'|s, a)."""
    r: np.ndarray
    """r[S, A], the reward r(s, a)."""
    gamma: float
    """The discount, in [0, 1)."""
    start: np.ndarray
    """start[S], the distribution rho of the first state."""

    def __post_init__(self):
        for name in ("P", "r", "start"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        self._require_shapes()
        if not 0 <= self.gamma < 1:
            raise UsageError(f"gamma must be in [0, 1), not {self.gamma:g}")
        if not np.isfinite(self.r).all():
            raise UsageError("every reward r[s, a] must be finite")
        _require_distributions(self.P, "P[s, a]")
        _require_distributions(self.start, "start")

    def _require_shapes(self) -> None:
        if self.P.ndim != 3 or self.P.shape[0] != self.P.shape[2]:
            raise UsageError(f"P must have the shape [S, A, S], not {list(self.P.shape)}")
        if self.r.shape != self.P.shape[:2]:
            raise UsageError(
                f"r must have the shape {list(self.P.shape[:2])} of P's [S, A], not {list(self.r.shape)}"
            )
        if self.start.shape != self.P.shape[:1]:
            raise UsageError(
                f"start must have {self.P.shape[0]} entries, one per state, not {list(self.start.shape)}"
            )

    @property
    def states(self) -> int:
        """The number of states, S."""
        return self.P.shape[0]

    @property
    def actions(self) -> int:
        """The number of actions, A."""
        return self.P.shape[1]

    @property
    def value_range(self) -> float:
        """1 / (1 - gamma), the largest value where rewards lie in [0, 1]."""
        return 1 / (1 - self.gamma)

    @float64
    def chain(self, pi: ArrayLike) -> Array:
        """P_pi[S, S], the transition of states when actions follow `pi`."""
        return jnp.einsum("sa,sax->sx", self.policy(pi), self.P)

    @float64
    def pair_chain(self, pi: ArrayLike) -> Array:
        """[S A, S A], the transition of pairs: p(s'|s, a) pi(a'|s')."""
        size = self.states * self.actions
        return jnp.einsum("sax,xb->saxb", self.P, self.policy(pi)).reshape(size, size)

    @float64
    def v(self, pi: ArrayLike) -> Array:
        """V^pi[S] = (I - gamma P_pi)^-1 r_pi."""
        rewards = jnp.einsum("sa,sa->s", self.policy(pi), self.r)
        return solve(jnp.eye(self.states) - self.gamma * self.chain(pi), rewards)

    @float64
    def q(self, pi: ArrayLike) -> Array:
        """Q^pi[S, A] = r + gamma P V^pi."""
        return self.r + self.gamma * jnp.einsum("sax,x->sa", self.P, self.v(pi))

    @float64
    def backup(self, pi: ArrayLike, q: ArrayLike) -> Array:
        """H(q)[S, A] = r + gamma E[q(s', a')], a' ~ pi: the Bellman operator of `pi`."""
        value = jnp.einsum("sa,sa->s", self.policy(pi), jnp.asarray(q))
        return self.r + self.gamma * jnp.einsum("sax,x->sa", self.P, value)

    @float64
    def objective(self, pi: ArrayLike, start: ArrayLike | None = None) -> Array:
        """J_rho(pi) = sum_s rho(s) V^pi(s); rho is `start`, by default the MDP's own."""
        return jnp.dot(jnp.asarray(self.start if start is None else start), self.v(pi))

    @float64
    def gradient(
        self, theta: ArrayLike, policy: Callable[[Array], Array] | None = None, start: ArrayLike | None = None
    ) -> Array:
        """The exact gradient of J_rho in the parameters of a policy.

        **Arguments:**

        - `theta`: the parameters; with the default policy, logits[S, A].
        - `policy`: maps `theta` to pi[S, A] and can be differentiated; by default `softmax`.
        """
        policy = softmax if policy is None else policy
        return jax.grad(lambda theta: self.objective(policy(theta), start))(jnp.asarray(theta, dtype=jnp.float64))

    @float64
    def stationary(self, pi: ArrayLike) -> Array:
        """d_pi[S] with d_pi' P_pi = d_pi'. A chain with more than one such distribution is refused."""
        chain = self.chain(pi)
        if not is_traced(chain):
            _require_one_class(np.asarray(chain))
        # The equations are singular by themselves; adding the sum of d to each makes them regular.
        return solve((jnp.eye(self.states) - chain).T + 1.0, jnp.ones(self.states))

    @float64
    def occupancy(self, pi: ArrayLike, start: ArrayLike | None = None) -> Array:
        """(1 - gamma) sum_t gamma^t Pr(s_t = s), a distribution over states [S]."""
        start = jnp.asarray(self.start if start is None else start)
        moves = jnp.eye(self.states) - self.gamma * self.chain(pi)
        return (1 - self.gamma) * solve(moves.T, start)

    @float64
    def pairs(self, states: ArrayLike, pi: ArrayLike) -> Array:
        """d[S, A] = states(s) pi(a|s): a distribution over pairs from one over states."""
        return jnp.asarray(states)[:, None] * self.policy(pi)

    def policy(self, pi: ArrayLike) -> Array:
        """`pi` as an array, checked where its numbers are known."""
        if not is_traced(pi):
            pi = np.asarray(pi, dtype=np.float64)
            if pi.shape != self.r.shape:
                raise UsageError(
                    f"a policy must have the shape [S, A] = {list(self.r.shape)}, not {list(pi.shape)}"
                )
            _require_distributions(pi, "pi[s]")
        return jnp.asarray(pi)

    @float64
    def sample_independent(
        self, mu: ArrayLike, count: int, key: Array, states: ArrayLike | None = None
    ) -> Transitions:
        """`count` independent steps with s ~ d_mu, a ~ mu. `states`, a distribution, replaces d_mu."""
        pairs = self.pairs(self.stationary(mu) if states is None else states, mu)
        pair_key, next_key = jax.random.split(key)
        pair = draw(pairs.ravel(), jax.random.uniform(pair_key, (count,), dtype=jnp.float64))
        state, action = pair // self.actions, pair % self.actions
        return self._step(state, action, jax.random.uniform(next_key, (count,), dtype=jnp.float64))

    @float64
    def sample_trajectory(
        self, mu: ArrayLike, count: int, key: Array, first: ArrayLike | None = None
    ) -> Transitions:
        """`count` steps along one trajectory of `mu`; its first state is `first`, or drawn from d_mu."""
        first_key, key = jax.random.split(key)
        if first is None:
            first = draw(jnp.asarray(self.stationary(mu)), jax.random.uniform(first_key, dtype=jnp.float64))
        mu = self.policy(mu)

        def step(state: Array, uniform: Array) -> tuple[Array, Transitions]:
            action = draw(mu[state], uniform[0])
            taken = self._step(state, action, uniform[1])
            return taken.next_state, taken

        uniforms = jax.random.uniform(key, (count, 2), dtype=jnp.float64)
        return jax.lax.scan(step, jnp.asarray(first, dtype=jnp.int32), uniforms)[1]

    def _step(self, state: Array, action: Array, uniform: Array) -> Transitions:
        rows = jnp.asarray(self.P)[state, action]
        following = jax.vmap(draw)(rows, uniform) if rows.ndim == 2 else draw(rows, uniform)
        return Transitions(state, action, jnp.asarray(self.r)[state, action], following)


def _rebuild(gamma: float, arrays: tuple[Array, Array, Array]) -> FiniteMDP:
    """An MDP of arrays that JAX may be tracing, which cannot be checked."""
    mdp = object.__new__(FiniteMDP)
    for name, value in (*zip(("P", "r", "start"), arrays, strict=True), ("gamma", gamma)):
        object.__setattr__(mdp, name, value)
    return mdp


# An MDP can be an argument of a compiled program, so that one program serves all MDPs of a size.
jax.tree_util.register_pytree_node(FiniteMDP, lambda mdp: ((mdp.P, mdp.r, mdp.start), mdp.gamma), _rebuild)


@float64
def softmax(logits: ArrayLike) -> Array:
    """pi[S, A] of logits[S, A], the default parametrisation."""
    return jax.nn.softmax(jnp.asarray(logits, dtype=jnp.float64), axis=-1)


def draw(probabilities: Array, uniform: Array) -> Array:
    """The index that a uniform number in [0, 1) falls on. An index of probability zero is never drawn."""
    cumulative = jnp.cumsum(probabilities)
    found = jnp.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    return jnp.minimum(found, probabilities.shape[0] - 1)


def _require_distributions(rows: np.ndarray, name: str) -> None:
    """Refuses rows with a negative or infinite entry, or whose sum is not one."""
    if not np.isfinite(rows).all() or (rows < 0).any():
        raise UsageError(f"every entry of {name} must be a probability: finite and not negative")
    sums = np.atleast_1d(rows.sum(-1))
    wrong = np.argmax(np.abs(sums - 1))
    if abs(sums.flat[wrong] - 1) > SUM_TOLERANCE:
        place = ", ".join(str(index) for index in np.unravel_index(wrong, sums.shape)) if rows.ndim > 1 else ""
        where = f" at [{place}]" if place else ""
        raise UsageError(f"{name} must sum to one, not {sums.flat[wrong]:.10g}{where}; divide it by its sum")


def _require_one_class(chain: np.ndarray) -> None:
    """Refuses a chain that can stay in one of several parts for ever: its limit depends on where it starts."""
    values = np.linalg.svd(np.eye(len(chain)) - chain, compute_uv=False)
    parts = int((values < RANK_TOLERANCE).sum())
    if parts > 1:
        raise UsageError(
            f"the chain of this policy has {parts} closed parts and no unique stationary distribution; "
            "give every action some probability or connect the parts"
        )
