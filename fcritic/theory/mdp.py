"""Finite Markov decision processes with exact values, gradients and distributions.

Policies and distributions are plain arrays: `pi[S, A]` holds pi(a|s), a distribution over states is `d[S]`, over
pairs `d[S, A]`. JAX can differentiate and vmap everything in the policy.

The theory is computed in double precision (`float64`), while the rest of the package stays in single precision. It
also has its own inverses and eigenvalues of small matrices.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, TypeVar

import jax
from jax import Array
from jax.core import Tracer
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fcritic.errors import UsageError

# Double precision

Function = TypeVar("Function", bound=Callable)


def float64(function: Function) -> Function:
    """Returns the function in double precision; its results are NumPy arrays.

    A JAX array would fall back to single precision in the first operation outside. While JAX traces the function
    (`jit`, `vmap`, `grad`), tracers pass through unchanged.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(True):
            return jax.tree.map(_to_numpy, function(*args, **kwargs))

    return wrapped


def is_traced(value: Any) -> bool:
    """Returns whether JAX is tracing this value, so that its numbers are unknown."""
    return isinstance(value, Tracer)


def _to_numpy(leaf: Any) -> Any:
    if is_traced(leaf) or not isinstance(leaf, jax.Array):
        return leaf
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return np.asarray(leaf)


# Small matrices, in plain JAX where it traces
#
# JAX splits a batch of matrices into parts, and LAPACK solves them on the threads of the compiled program itself.
# On a machine with two cores two such calls at once deadlock (JAX 0.10.2). Plain array operations cannot, and for
# many small matrices they are no slower. Where nothing is traced LAPACK does the work.

SWEEPS = 9
"""Sweeps of Jacobi's method, which converges quadratically; matrices of our sizes need six to eight."""


def solve(matrix: Array, right: Array) -> Array:
    """Returns x with matrix x = right; `right` is a vector or has columns."""
    return inverse(matrix) @ right if is_traced(matrix) else jnp.linalg.solve(matrix, right)


@jax.custom_jvp
def inverse(matrix: Array) -> Array:
    """Returns the inverse of a matrix[n, n], by Gauss-Jordan elimination with pivots."""
    if not is_traced(matrix):
        return jnp.linalg.inv(matrix)
    size = matrix.shape[0]
    index = jnp.arange(size)

    def eliminate(column: Array, rows: Array) -> Array:
        pivot = jnp.argmax(jnp.where(index >= column, jnp.abs(rows[:, column]), -1.0))
        chosen, displaced = rows[pivot], rows[column]
        chosen = chosen / chosen[column]
        rows = rows.at[pivot].set(displaced).at[column].set(chosen)
        factors = jnp.where(index == column, 0.0, rows[:, column])
        return rows - factors[:, None] * chosen[None, :]

    start = jnp.concatenate([matrix, jnp.eye(size, dtype=matrix.dtype)], axis=1)
    return jax.lax.fori_loop(0, size, eliminate, start)[:, size:]


@inverse.defjvp
def _inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    found = inverse(primals[0])
    return found, -found @ tangents[0] @ found


def eigen(matrix: Array) -> tuple[Array, Array]:
    """Returns the eigenvalues[n] of a symmetric matrix, in no order, and its eigenvectors, the columns of [n, n].

    By Jacobi's method, whose rotations set one entry after the other to zero.
    """
    if not is_traced(matrix):
        return tuple(jnp.linalg.eigh(matrix))
    size = matrix.shape[0]
    firsts, seconds = (jnp.asarray(np.tile(each, SWEEPS)) for each in np.triu_indices(size, 1))

    def turn(state: tuple[Array, Array], pair: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        matrix, vectors = state
        rotation = _rotation(matrix, *pair)
        return (rotation.T @ matrix @ rotation, vectors @ rotation), None

    eye = jnp.eye(size, dtype=matrix.dtype)
    (matrix, vectors), _ = jax.lax.scan(turn, (matrix, eye), (firsts, seconds))
    return jnp.diagonal(matrix), vectors


def _rotation(matrix: Array, first: Array, second: Array) -> Array:
    """Returns the rotation in the plane of two axes that zeroes their entry, by the smaller of its two angles."""
    off = matrix[first, second]
    safe = jnp.where(off == 0, 1.0, off)
    half = (matrix[second, second] - matrix[first, first]) / (2 * safe)
    tangent = jnp.where(half >= 0, 1.0, -1.0) / (jnp.abs(half) + jnp.sqrt(half**2 + 1))
    tangent = jnp.where(off == 0, 0.0, tangent)
    cosine = 1 / jnp.sqrt(tangent**2 + 1)
    sine = tangent * cosine
    eye = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    turned = eye.at[first, first].set(cosine).at[second, second].set(cosine)
    return turned.at[first, second].set(sine).at[second, first].set(-sine)


# Decision processes

SUM_TOLERANCE = 1e-8
"""Largest distance of a distribution's sum from one."""
RANK_TOLERANCE = 1e-10
"""Singular values of I - P below this count as zero."""


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
        """Returns P_pi[S, S], the transition matrix of states under `pi`."""
        return jnp.einsum("sa,sax->sx", self.policy(pi), self.P)

    @float64
    def pair_chain(self, pi: ArrayLike) -> Array:
        """Returns the transition matrix of pairs [S A, S A], p(s'|s, a) pi(a'|s')."""
        size = self.states * self.actions
        return jnp.einsum("sax,xb->saxb", self.P, self.policy(pi)).reshape(size, size)

    @float64
    def v(self, pi: ArrayLike) -> Array:
        """Returns V^pi[S] = (I - gamma P_pi)^-1 r_pi."""
        rewards = jnp.einsum("sa,sa->s", self.policy(pi), self.r)
        return solve(jnp.eye(self.states) - self.gamma * self.chain(pi), rewards)

    @float64
    def q(self, pi: ArrayLike) -> Array:
        """Returns Q^pi[S, A] = r + gamma P V^pi."""
        return self.r + self.gamma * jnp.einsum("sax,x->sa", self.P, self.v(pi))

    @float64
    def backup(self, pi: ArrayLike, q: ArrayLike) -> Array:
        """Applies the Bellman operator of `pi`: H(q)[S, A] = r + gamma E[q(s', a')], a' ~ pi."""
        value = jnp.einsum("sa,sa->s", self.policy(pi), jnp.asarray(q))
        return self.r + self.gamma * jnp.einsum("sax,x->sa", self.P, value)

    @float64
    def objective(self, pi: ArrayLike, start: ArrayLike | None = None) -> Array:
        """Returns J_rho(pi) = sum_s rho(s) V^pi(s); rho is `start`, by default the MDP's own."""
        return jnp.dot(jnp.asarray(self.start if start is None else start), self.v(pi))

    @float64
    def gradient(
        self, theta: ArrayLike, policy: Callable[[Array], Array] | None = None, start: ArrayLike | None = None
    ) -> Array:
        """Returns the exact gradient of J_rho in the parameters of a policy.

        **Arguments:**

        - `theta`: the parameters; with the default policy, logits[S, A].
        - `policy`: maps `theta` to pi[S, A] and can be differentiated; by default `softmax`.
        """
        policy = softmax if policy is None else policy
        return jax.grad(lambda theta: self.objective(policy(theta), start))(jnp.asarray(theta, dtype=jnp.float64))

    @float64
    def stationary(self, pi: ArrayLike) -> Array:
        """Returns d_pi[S] with d_pi' P_pi = d_pi'. Rejects a chain with more than one such distribution."""
        chain = self.chain(pi)
        if not is_traced(chain):
            _require_one_class(np.asarray(chain))
        # The equations are singular by themselves; adding the sum of d to each makes them regular.
        return solve((jnp.eye(self.states) - chain).T + 1.0, jnp.ones(self.states))

    @float64
    def occupancy(self, pi: ArrayLike, start: ArrayLike | None = None) -> Array:
        """Returns (1 - gamma) sum_t gamma^t Pr(s_t = s), a distribution over states [S]."""
        start = jnp.asarray(self.start if start is None else start)
        moves = jnp.eye(self.states) - self.gamma * self.chain(pi)
        return (1 - self.gamma) * solve(moves.T, start)

    @float64
    def pairs(self, states: ArrayLike, pi: ArrayLike) -> Array:
        """Returns d[S, A] = states(s) pi(a|s), a distribution over pairs from one over states."""
        return jnp.asarray(states)[:, None] * self.policy(pi)

    def policy(self, pi: ArrayLike) -> Array:
        """Returns `pi` as an array, checked where its numbers are known."""
        if not is_traced(pi):
            pi = np.asarray(pi, dtype=np.float64)
            if pi.shape != self.r.shape:
                raise UsageError(
                    f"a policy must have the shape [S, A] = {list(self.r.shape)}, not {list(pi.shape)}"
                )
            _require_distributions(pi, "pi[s]")
        return jnp.asarray(pi)


def _rebuild(gamma: float, arrays: tuple[Array, Array, Array]) -> FiniteMDP:
    """Returns an MDP of arrays that JAX may be tracing, and so without checks."""
    mdp = object.__new__(FiniteMDP)
    for name, value in (*zip(("P", "r", "start"), arrays, strict=True), ("gamma", gamma)):
        object.__setattr__(mdp, name, value)
    return mdp


# An MDP can be an argument of a compiled program, so that one program serves all MDPs of a size.
jax.tree_util.register_pytree_node(FiniteMDP, lambda mdp: ((mdp.P, mdp.r, mdp.start), mdp.gamma), _rebuild)


@float64
def softmax(logits: ArrayLike) -> Array:
    """Returns pi[S, A] of logits[S, A], the default parametrisation."""
    return jax.nn.softmax(jnp.asarray(logits, dtype=jnp.float64), axis=-1)


def _require_distributions(rows: np.ndarray, name: str) -> None:
    """Rejects rows with a negative or infinite entry or with a sum other than one."""
    if not np.isfinite(rows).all() or (rows < 0).any():
        raise UsageError(f"every entry of {name} must be a probability: finite and not negative")
    sums = np.atleast_1d(rows.sum(-1))
    wrong = np.argmax(np.abs(sums - 1))
    if abs(sums.flat[wrong] - 1) > SUM_TOLERANCE:
        place = ", ".join(str(index) for index in np.unravel_index(wrong, sums.shape)) if rows.ndim > 1 else ""
        where = f" at [{place}]" if place else ""
        raise UsageError(f"{name} must sum to one, not {sums.flat[wrong]:.10g}{where}; divide it by its sum")


def _require_one_class(chain: np.ndarray) -> None:
    """Rejects a chain with several closed parts, whose limit depends on its first state."""
    values = np.linalg.svd(np.eye(len(chain)) - chain, compute_uv=False)
    parts = int((values < RANK_TOLERANCE).sum())
    if parts > 1:
        raise UsageError(
            f"the chain of this policy has {parts} closed parts and no unique stationary distribution; "
            "give every action some probability or connect the parts"
        )
