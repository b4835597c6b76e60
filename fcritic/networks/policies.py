"""Policies: pytrees that map an observation to an action and let an encoder read their neurons."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fcritic.errors import UsageError
from fcritic.networks.mlp import MLP


@runtime_checkable
class Policy(Protocol):
    """The interface of a policy for a functional critic: any pytree of arrays with these two methods."""

    def __call__(self, obs: Float[Array, " obs"]) -> Float[Array, " act"]:
        """Returns the action pi(s), in [-1, 1]."""

    def activations(self, obs: Float[Array, " obs"]) -> tuple[Float[Array, " _"], ...]:
        """Returns the layers of the network from first to last; the last one is the action."""


def behaviour(policy: Policy, obs: Float[Array, " obs"]) -> Float[Array, " act_and_deviation"]:
    """Returns what a policy does: its action, and a measure of its deviation, zero where it has none."""
    if (own := getattr(policy, "behaviour", None)) is not None:
        return own(obs)
    act = policy(obs)
    return jnp.concatenate([act, jnp.zeros_like(act)])


class Mixture(eqx.Module):
    """The policy between two of a kind in the space of functions: their outputs are mixed, not their parameters.

    So between two policies that behave sensibly it does, too.
    """

    first: Any
    second: Any
    weight: Float[Array, ""]
    """Of the second, in [0, 1]."""

    def heads(self, obs: Float[Array, "*axes obs"]) -> Float[Array, "*axes heads"]:
        """Returns (1 - w) of the first's outputs and w of the second's."""
        first, second = self.first.heads(obs), self.second.heads(obs)
        return first + self.weight.astype(first.dtype) * (second - first)

    def __call__(self, obs: Float[Array, "*axes obs"]) -> Float[Array, "*axes act"]:
        """Returns the action."""
        return self.first.mode(self.heads(obs))

    def activations(self, obs: Float[Array, "*axes obs"]) -> tuple[Float[Array, "*axes act"], ...]:
        """Returns the action alone: the mixture has no neurons of its own."""
        return (self(obs),)

    def behaviour(self, obs: Float[Array, " obs"]) -> Float[Array, " act_and_deviation"]:
        """Returns what the mixture does, as `behaviour` of its parts would."""
        return self.first.described(self.heads(obs))

    def sample(
        self, obs: Float[Array, "*axes obs"], noise: Float[Array, "*axes act"]
    ) -> tuple[Float[Array, "*axes act"], Float[Array, "*axes"]]:
        """Returns the action to which noise is mapped, and its log-density; of stochastic policies."""
        return self.first.drawn(self.heads(obs), noise)


class FunctionPolicy(eqx.Module):
    """A policy made of any function and its parameters, a pytree of arrays such as a dict of weights.

    ``layers(params, obs)`` returns a tuple: the activations that an encoder shall see, then the action in [-1, 1].
    """

    params: Any
    layers: Callable[[Any, Array], tuple[Array, ...]] = eqx.field(static=True)
    anchor: Float[Array, ""] | None
    """An array where there are no parameters: JAX batches only trees that hold one."""

    def __init__(self, layers: Callable[[Any, Array], tuple[Array, ...]], params: Any = None):
        self.layers = layers
        self.params = jax.tree.map(jnp.asarray, params)
        self.anchor = None if jax.tree.leaves(params) else jnp.zeros(())

    def __call__(self, obs: Float[Array, " obs"]) -> Float[Array, " act"]:
        """Returns the action."""
        return self.activations(obs)[-1]

    def activations(self, obs: Float[Array, " obs"]) -> tuple[Float[Array, " _"], ...]:
        """Returns the function's layers."""
        found = self.layers(self.params, obs)
        if not isinstance(found, tuple):
            raise UsageError(
                f"a policy's function must return a tuple, the action last, not {type(found).__name__}"
            )
        return found


class DeterministicPolicy(eqx.Module):
    """a = tanh(MLP(s)), the actor pi_theta of Algorithm 5."""

    network: MLP
    reach: float | None = eqx.field(static=True)
    """Upper limit of the mean of |MLP(s)| over actions, which keeps them off their bounds, where tanh is flat."""

    def __init__(
        self,
        obs_dim: int,
        hidden: Sequence[int],
        act_dim: int,
        *,
        key: PRNGKeyArray,
        last_scale: float,
        reach: float | None = None,
    ):
        self.network = MLP(obs_dim, hidden, act_dim, key=key, last_scale=last_scale)
        self.reach = reach

    def __call__(self, obs: Float[Array, "*axes obs"]) -> Float[Array, "*axes act"]:
        """Returns the action pi(s)."""
        return self.activations(obs)[-1]

    def activations(self, obs: Float[Array, "*axes obs"]) -> tuple[Float[Array, "*axes _"], ...]:
        """Returns hidden layers after their ReLU, then the action after its tanh."""
        *hidden, raw = self.network.activations(obs)
        return (*hidden, self.squashed(raw))

    def heads(self, obs: Float[Array, "*axes obs"]) -> Float[Array, "*axes act"]:
        """Returns what a mixture mixes: the action itself."""
        return self(obs)

    def mode(self, heads: Float[Array, "*axes act"]) -> Float[Array, "*axes act"]:
        """Returns the action of outputs, mixed or not."""
        return heads

    def described(self, heads: Float[Array, " act"]) -> Float[Array, " act_and_deviation"]:
        """Returns the behaviour of outputs."""
        return jnp.concatenate([heads, jnp.zeros_like(heads)])

    def squashed(self, raw: Float[Array, "*axes act"]) -> Float[Array, "*axes act"]:
        """Returns actions from the network's output, which is scaled down where its mean size is above `reach`."""
        if self.reach is not None:
            size = jnp.mean(jnp.abs(raw), axis=-1, keepdims=True)
            raw = raw / jnp.maximum(1.0, size / self.reach)
        return jnp.tanh(raw)


class GaussianPolicy(eqx.Module):
    """a = tanh(x) with x ~ N(mean(s), std(s)^2) in every dimension: the actor of SAC.

    Called like any policy it gives its mode, tanh(mean), as evaluation does.
    """

    network: MLP
    log_std_range: tuple[float, float] = eqx.field(static=True)

    def __init__(
        self,
        obs_dim: int,
        hidden: Sequence[int],
        act_dim: int,
        *,
        key: PRNGKeyArray,
        log_std_range: tuple[float, float],
    ):
        """Draws the weights. Those of both heads have deviation 0.3 / sqrt(fan-in): std begins near 1."""
        last_width = hidden[-1] if hidden else obs_dim
        self.network = MLP(obs_dim, hidden, 2 * act_dim, key=key, last_scale=0.3 * (3 / last_width) ** 0.5)
        self.log_std_range = log_std_range

    @property
    def act_dim(self) -> int:
        """Number of dimensions of an action."""
        return self.network.layers[-1].bias.shape[-1] // 2

    def __call__(self, obs: Float[Array, "*axes obs"]) -> Float[Array, "*axes act"]:
        """Returns the mode pi(s) = tanh(mean(s))."""
        return self.activations(obs)[-1]

    def activations(self, obs: Float[Array, "*axes obs"]) -> tuple[Float[Array, "*axes _"], ...]:
        """Returns hidden layers after their ReLU, then the mode."""
        *hidden, heads = self.network.activations(obs)
        return (*hidden, jnp.tanh(jnp.split(heads, 2, axis=-1)[0]))

    def heads(self, obs: Float[Array, "*axes obs"]) -> Float[Array, "*axes heads"]:
        """Returns mean and log standard deviation before the tanh, the latter not yet in its range."""
        return self.network(obs)

    def mode(self, heads: Float[Array, "*axes heads"]) -> Float[Array, "*axes act"]:
        """Returns the mode of outputs, mixed or not."""
        return jnp.tanh(jnp.split(heads, 2, axis=-1)[0])

    def behaviour(self, obs: Float[Array, " obs"]) -> Float[Array, " act_and_deviation"]:
        """Returns the mode and a measure of the deviation."""
        return self.described(self.heads(obs))

    def described(self, heads: Float[Array, " heads"]) -> Float[Array, " act_and_deviation"]:
        """Returns the behaviour of outputs: the log deviation is brought to the size of an action."""
        log_std = jnp.clip(jnp.split(heads, 2)[1], *self.log_std_range)
        return jnp.concatenate([self.mode(heads), jnp.clip(log_std, -5.0, 2.0) / 3])

    def sample(
        self, obs: Float[Array, "*axes obs"], noise: Float[Array, "*axes act"]
    ) -> tuple[Float[Array, "*axes act"], Float[Array, "*axes"]]:
        """Returns the action to which standard normal noise is mapped, and its log-density log pi(a|s)."""
        return self.drawn(self.network(obs), noise)

    def drawn(
        self, heads: Float[Array, "*axes heads"], noise: Float[Array, "*axes act"]
    ) -> tuple[Float[Array, "*axes act"], Float[Array, "*axes"]]:
        """Returns what `sample` does, of outputs, mixed or not."""
        mean, raw = jnp.split(heads, 2, axis=-1)
        log_std = jnp.clip(raw, *self.log_std_range)
        before = mean + jnp.exp(log_std) * noise
        return jnp.tanh(before), squashed_log_prob(noise, log_std, before)


def squashed_log_prob(
    noise: Float[Array, "*axes act"], log_std: Float[Array, "*axes act"], before: Float[Array, "*axes act"]
) -> Float[Array, "*axes"]:
    """Returns the log-density of tanh(x) at x = `before` = mean + std * noise.

    The density of x, divided by the slope of tanh. log(1 - tanh(x)^2) is written as
    2 (log 2 - |x| - log(1 + exp(-2|x|))), which stays finite where tanh rounds to 1.
    """
    gaussian = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
    size = jnp.abs(before)
    slope = 2 * (jnp.log(2.0) - size - jnp.log(1 + jnp.exp(-2 * size)))
    return jnp.sum(gaussian - slope, axis=-1)
