"""Policies: pytrees that map an observation to an action and let an encoder read their neurons."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fcritic.networks.mlp import MLP


@runtime_checkable
class Policy(Protocol):
    """What a functional critic asks of a policy: any pytree of arrays with these two methods."""

    def __call__(self, obs: Float[Array, " obs"]) -> Float[Array, " act"]:
        """The action pi(s), in [-1, 1]."""

    def activations(self, obs: Float[Array, " obs"]) -> tuple[Float[Array, " _"], ...]:
        """The layers of the network from first to last; the last one is the action."""


class DeterministicPolicy(eqx.Module):
    """a = tanh(MLP(s)), the actor pi_theta of Algorithm `alg-nn`."""

    network: MLP

    def __init__(self, obs_dim: int, hidden: Sequence[int], act_dim: int, *, key: PRNGKeyArray, last_scale: float):
        self.network = MLP(obs_dim, hidden, act_dim, key=key, last_scale=last_scale)

    def __call__(self, obs: Float[Array, " obs"]) -> Float[Array, " act"]:
        """The action pi(s)."""
        return self.activations(obs)[-1]

    def activations(self, obs: Float[Array, " obs"]) -> tuple[Float[Array, " _"], ...]:
        """Hidden layers after their ReLU, then the action after its tanh."""
        *hidden, raw = self.network.activations(obs)
        return (*hidden, jnp.tanh(raw))
