"""Policies as functions of a parameter vector: theta -> pi[S, A]."""

import abc
import dataclasses
import functools

import jax
from jax import Array
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fcritic.theory.precision import float64


class AbstractPolicy(abc.ABC):
    """pi(a | s) proportional to exp(logits(theta)[s, a])."""

    size: int
    """The number of parameters."""

    @abc.abstractmethod
    def logits(self, theta: Array) -> Array:
        """Preferences [S, A]."""

    @float64
    def __call__(self, theta: ArrayLike) -> Array:
        """pi[S, A]."""
        return jax.nn.softmax(self.logits(jnp.asarray(theta)), axis=-1)


@functools.partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["states", "actions"])
@dataclasses.dataclass(frozen=True)
class TabularSoftmax(AbstractPolicy):
    """One preference for each pair."""

    states: int
    actions: int

    @property
    def size(self) -> int:
        """S A."""
        return self.states * self.actions

    def logits(self, theta: Array) -> Array:
        """theta as [S, A]."""
        return jnp.reshape(theta, (self.states, self.actions))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["basis"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class LogLinear(AbstractPolicy):
    """Preferences that are linear in given features."""

    basis: np.ndarray
    """[S, A, parameters]."""

    @property
    def size(self) -> int:
        """The number of features."""
        return self.basis.shape[-1]

    def logits(self, theta: Array) -> Array:
        """basis(s, a)' theta."""
        return jnp.asarray(self.basis) @ theta


@functools.partial(jax.tree_util.register_dataclass, data_fields=["cosines", "sines"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class Periodic(AbstractPolicy):
    """Preferences that are sums of cosines and sines of the parameters.

    Softmax policies climb for ever: their gradient and its error vanish together at infinity. These have their
    optimum at a finite place, where an error of the critic shows.
    """

    cosines: np.ndarray
    """[S, A, parameters]."""
    sines: np.ndarray
    """[S, A, parameters]."""

    @property
    def size(self) -> int:
        """The number of angles."""
        return self.cosines.shape[-1]

    def logits(self, theta: Array) -> Array:
        """cosines(s, a)' cos(theta) + sines(s, a)' sin(theta)."""
        return jnp.asarray(self.cosines) @ jnp.cos(theta) + jnp.asarray(self.sines) @ jnp.sin(theta)


def periodic(states: int, actions: int, size: int = 4, scale: float = 1.5, seed: int = 0) -> Periodic:
    """A random periodic policy; `scale` is the deviation of its preferences."""
    waves = np.random.default_rng(seed).normal(size=(2, states, actions, size)) * scale / np.sqrt(size)
    return Periodic(waves[0], waves[1])
