"""The plain inverses and eigenvalues against NumPy's, alone and in batches."""

import jax
import numpy as np
import pytest

from fcritic.theory.mdp import eigen, float64, inverse, solve


def batch(size: int, count: int = 5) -> np.ndarray:
    return np.random.default_rng(size).normal(size=(count, size, size))


@pytest.mark.parametrize("size", [1, 4, 23])
def test_inverses_and_solutions(size: int):
    matrices = batch(size)
    found = float64(jax.jit(jax.vmap(inverse)))(matrices)
    np.testing.assert_allclose(found @ matrices, np.tile(np.eye(size), (5, 1, 1)), atol=1e-10)
    right = np.arange(size, dtype=float)
    many = float64(jax.jit(jax.vmap(lambda each: solve(each, right))))(matrices)
    np.testing.assert_allclose(many, [np.linalg.solve(each, right) for each in matrices], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(float64(solve)(matrices[0], right), many[0], rtol=1e-9, atol=1e-10)


def test_a_pivot_of_zero_is_avoided():
    matrix = np.array([[0.0, 2.0], [1.0, 0.0]])
    np.testing.assert_allclose(float64(jax.jit(inverse))(matrix), [[0.0, 1.0], [0.5, 0.0]])


def test_the_inverse_can_be_differentiated():
    matrix, step = batch(4)[0], 1e-6
    total = float64(lambda at: (jax.jit(inverse)(at) ** 2).sum())
    slope = float64(jax.grad(lambda at: (inverse(at) ** 2).sum()))(matrix)
    for place in ((0, 0), (2, 1)):
        moved = np.zeros((4, 4))
        moved[place] = step
        assert (total(matrix + moved) - total(matrix - moved)) / (2 * step) == pytest.approx(slope[place], rel=1e-5)


@pytest.mark.parametrize("size", [1, 4, 12])
def test_eigenvalues_and_vectors(size: int):
    roots = batch(size)
    roots[:, :, 0] *= 1e-6  # nearly singular, as covariances are
    matrices = roots @ roots.transpose(0, 2, 1)
    values, vectors = float64(jax.jit(jax.vmap(eigen)))(matrices)
    expected = np.linalg.eigvalsh(matrices)
    np.testing.assert_allclose(np.sort(values), expected, atol=1e-12 * expected.max())
    rebuilt = np.einsum("nik,nk,njk->nij", vectors, values, vectors)
    np.testing.assert_allclose(rebuilt, matrices, atol=1e-11 * expected.max())


def test_two_batches_at_once_do_not_wait_for_each_other():
    """With LAPACK this program hangs on two cores."""
    matrices = np.eye(10) - 0.9 * np.random.default_rng(0).dirichlet(np.ones(10), (400, 10))

    @jax.jit
    def both(given):
        pair = jax.vmap(lambda each: (inverse(each), inverse(each.T + 1.0), eigen(each @ each.T)[0]))
        return jax.lax.fori_loop(0, 3, lambda _, total: total + sum(part.sum() for part in pair(given)), 0.0)

    assert np.isfinite(float64(both)(matrices))
