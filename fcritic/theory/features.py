"""Feature maps of a policy: `features(pi)` is phi[S, A, d]; exact ones have Q^pi(s, a) = <phi^pi(s, a), xi*>.

JAX can differentiate and vmap every map in the policy. A map can also be an argument of a compiled program, which
then serves all maps of a size.
"""

import abc
import dataclasses
import functools

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fcritic.theory.mdp import FiniteMDP, float64, inverse, solve


class AbstractFeatures(abc.ABC):
    """A map from a policy pi[S, A] to features phi[S, A, d]."""

    weights: np.ndarray | None = None
    """xi*[d], one weight vector that gives Q^pi for every policy; None where the map has none."""

    @abc.abstractmethod
    def __call__(self, pi: ArrayLike) -> Array:
        """Returns phi^pi[S, A, d]."""


@functools.partial(jax.tree_util.register_dataclass, data_fields=["phi", "weights"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class Fixed(AbstractFeatures):
    """The same phi[S, A, d] for every policy: standard linear function approximation."""

    phi: np.ndarray
    weights: np.ndarray | None = None

    @float64
    def __call__(self, pi: ArrayLike) -> Array:
        """Returns phi[S, A, d] for any policy."""
        return jnp.asarray(self.phi)


def tabular(mdp: FiniteMDP) -> Fixed:
    """Returns one indicator per pair, d = S A. They do not generalise: a pair that was never seen has no value."""
    size = mdp.states * mdp.actions
    return Fixed(np.eye(size).reshape(mdp.states, mdp.actions, size))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["x", "m", "w", "change"], meta_fields=["gamma"])
@dataclasses.dataclass(frozen=True, eq=False)
class Successor(AbstractFeatures):
    """phi^pi = (1 - gamma) x (I - gamma M^pi)^-1, the discounted sum of x(s, a) along the policy, in a linear MDP.

    With P(s'|s, a) = <x(s, a), m(s')> the sum only needs the d x d matrix M^pi. Q^pi is linear in phi^pi with one
    xi* = w / (1 - gamma) for all policies, and H^pi maps the span of phi^pi into itself.
    """

    x: np.ndarray
    """x[S, A, d], each a distribution over d latent factors."""
    m: np.ndarray
    """m[d, S], each row a distribution over next states."""
    w: np.ndarray
    """w[d], with r(s, a) = <x(s, a), w>."""
    gamma: float
    change: np.ndarray | None = None
    """An invertible B[d, d], the same for all policies: phi B with weights B^-1 xi*. Identity where None."""

    @property
    def weights(self) -> np.ndarray:
        """xi* = w / (1 - gamma), in the coordinates of `change`."""
        plain = self.w / (1 - self.gamma)
        return plain if self.change is None else float64(solve)(self.change, plain)

    @float64
    def __call__(self, pi: ArrayLike) -> Array:
        """Returns phi^pi[S, A, d]."""
        step = jnp.einsum("is,sa,saj->ij", self.m, jnp.asarray(pi), self.x)  # M^pi
        total = inverse(jnp.eye(len(self.w)) - self.gamma * step)
        phi = (1 - self.gamma) * jnp.einsum("sai,ij->saj", self.x, total)
        return phi if self.change is None else jnp.einsum("sai,ij->saj", phi, self.change)

    def whitened(self, mdp: FiniteMDP, pi: ArrayLike) -> "Successor":
        """Returns these features in the unit ball, in coordinates where their covariance under `pi` is isotropic.

        C(pi, mu) does not depend on the coordinates, but the number of gradient steps does: plain successor
        features are nearly collinear.
        """
        plain = dataclasses.replace(self, change=None)
        phi, pairs = plain(pi), mdp.pairs(mdp.stationary(pi), pi)
        values, vectors = np.linalg.eigh(np.einsum("sa,sai,saj->ij", pairs, phi, phi))
        change = vectors / np.sqrt(values)
        largest = np.linalg.norm(phi @ change, axis=-1).max()
        return dataclasses.replace(self, change=change / largest)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["base", "size", "noise"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class Perturbed(AbstractFeatures):
    """Features with an error, phi^pi + size * noise, which sets E_approx."""

    base: AbstractFeatures
    size: float
    noise: np.ndarray
    """noise[S, A, d], the same for every policy."""

    @property
    def weights(self) -> np.ndarray | None:
        """Weights of the exact features, which give Q^pi up to `size` times |<noise, xi*>|."""
        return self.base.weights

    @float64
    def __call__(self, pi: ArrayLike) -> Array:
        """Returns phi^pi[S, A, d] with its error."""
        return self.base(pi) + self.size * jnp.asarray(self.noise)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["base", "anchor"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class FirstOrder(AbstractFeatures):
    """The first-order expansion of exact features around an anchor policy, phi^0 + D phi^0 [pi - pi_0]."""

    base: AbstractFeatures
    anchor: np.ndarray
    """pi_0[S, A]."""

    @property
    def weights(self) -> np.ndarray | None:
        """Weights of the exact features; the error grows with the square of pi - pi_0."""
        return self.base.weights

    @float64
    def __call__(self, pi: ArrayLike) -> Array:
        """Returns phi[S, A, d], affine in pi."""
        anchor = jnp.asarray(self.anchor)
        value, slope = jax.jvp(lambda each: jnp.asarray(self.base(each)), (anchor,), (jnp.asarray(pi) - anchor,))
        return value + slope


@functools.partial(jax.tree_util.register_dataclass, data_fields=["x", "anchor"], meta_fields=["constant"])
@dataclasses.dataclass(frozen=True, eq=False)
class Tangent(AbstractFeatures):
    """The appendix's construction, phi^pi(s, a) = vec(x(s, a) (pi - pi_0)'): zero at the anchor itself."""

    x: np.ndarray
    """x[S, A, d], which should contain a constant."""
    anchor: np.ndarray
    """pi_0[S, A]."""
    constant: bool = False
    """Whether x(s, a) itself comes first, so that the anchor's features are not zero."""

    @float64
    def __call__(self, pi: ArrayLike) -> Array:
        """Returns phi[S, A, d S A], preceded by d more where `constant`."""
        states, actions, _ = self.x.shape
        shift = (jnp.asarray(pi) - self.anchor).ravel()
        phi = jnp.einsum("sai,j->saij", self.x, shift).reshape(states, actions, -1)
        return jnp.concatenate([jnp.asarray(self.x), phi], axis=-1) if self.constant else phi
