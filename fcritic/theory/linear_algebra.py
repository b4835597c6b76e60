"""Inverses and eigenvalues of small matrices in plain JAX, for use under `vmap` and `jit`.

JAX hands a batch of matrices to LAPACK in parts that run on the threads of the compiled program itself. Two such
calls at once on a machine with two cores wait for each other for ever (JAX 0.10.2). Plain array operations cannot,
and for many small matrices they are no slower. Where nothing is traced LAPACK does the work.
"""

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np

from fcritic.theory.precision import is_traced

SWEEPS = 9
"""Jacobi's method converges quadratically; matrices of our sizes need six to eight sweeps."""


def solve(matrix: Array, right: Array) -> Array:
    """x with matrix x = right; `right` is a vector or has columns."""
    return inverse(matrix) @ right if is_traced(matrix) else jnp.linalg.solve(matrix, right)


@jax.custom_jvp
def inverse(matrix: Array) -> Array:
    """The inverse of a matrix[n, n], by elimination with pivots."""
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
    """Eigenvalues[n], in no order, and eigenvectors, the columns of [n, n], of a symmetric matrix.

    Jacobi's method: rotations that set one entry after the other to zero.
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
    """The rotation in the plane of two axes that makes their entry zero, by the smaller of its two angles."""
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
