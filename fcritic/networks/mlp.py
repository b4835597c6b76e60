"""Linear layers and multilayer perceptrons whose leaves are all arrays, and whose activations can be read.

Inputs may have leading axes. An input may also come in several parts: a layer then adds what each part contributes,
which equals concatenating them, but a part that is shared by many rows of a batch is multiplied only once.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
import numpy as np

from fcritic.networks.initial import fresh_norm, uniform, zeros
from fcritic.randomness import apart


@jax.custom_vjp
def rows_times(rows: Float[Array, "rows in"], weight: Float[Array, "in out"]) -> Float[Array, "rows out"]:
    """X W, with a gradient in W that lies in memory as W does.

    JAX by itself derives the transposed gradient. On a CPU an optimiser then reads it column by column, and thin
    products take twice as long.
    """
    return rows @ weight


def _rows_times_forward(rows: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return rows @ weight, (rows, weight)


def _rows_times_backward(kept: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    rows, weight = kept
    return slope @ weight.T, rows.T @ slope


rows_times.defvjp(_rows_times_forward, _rows_times_backward)


def _times(
    inputs: Float[Array | np.ndarray, "*axes in"], weight: Float[Array | np.ndarray, "in out"]
) -> Float[Array | np.ndarray, "*axes out"]:
    if inputs.ndim == 1:
        return inputs @ weight
    return rows_times(inputs.reshape(-1, inputs.shape[-1]), weight).reshape(*inputs.shape[:-1], weight.shape[1])


class Linear(eqx.Module):
    """y = (x_1, x_2, ...) W + b for an input given in parts."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]

    def __init__(self, in_width: int, out_width: int, *, key: PRNGKeyArray, scale: float | None = None):
        """Weights U(-scale, scale), by default 1/sqrt(in_width); biases zero."""
        scale = in_width**-0.5 if scale is None else scale
        self.weight = uniform(key, (in_width, out_width), scale)
        self.bias = zeros(out_width)

    def __call__(self, *parts: Float[Array, "*#axes _"]) -> Float[Array, "*axes out"]:
        """Returns the image of the concatenated parts, without concatenating them, in the type of the weights."""
        total, start = jnp.expand_dims(self.bias, range(parts[0].ndim - 1)), 0
        for part in parts:
            stop = start + part.shape[-1]
            total = total + _times(part.astype(self.weight.dtype), self.weight[start:stop])
            start = stop
        if start != self.weight.shape[0]:
            raise ValueError(f"the parts hold {start} numbers, the layer takes {self.weight.shape[0]}")
        return total


class Exact(Linear):
    """A layer that stays in float32 where the rest of its network is lowered: a value needs all its digits."""


class MLP(eqx.Module):
    """Linear layers with ReLU between them, and layer norm before the ReLU where `norms` has one."""

    layers: tuple[Linear, ...]
    norms: tuple[eqx.nn.LayerNorm | None, ...]

    def __init__(
        self,
        in_width: int,
        hidden: Sequence[int],
        out_width: int,
        *,
        key: PRNGKeyArray,
        layer_norm: bool = False,
        norm_output: bool = False,
        last_scale: float | None = 0.003,
        last: type[Linear] = Linear,
    ):
        """Draws the weights. `norm_output` normalises the last layer too, which never has a ReLU."""
        widths = (in_width, *hidden, out_width)
        keys = apart(key, len(widths) - 1)
        scales, kinds = (None,) * len(hidden) + (last_scale,), (Linear,) * len(hidden) + (last,)
        self.layers = tuple(
            kind(a, b, key=k, scale=scale)
            for kind, a, b, k, scale in zip(kinds, widths[:-1], widths[1:], keys, scales, strict=True)
        )
        normed = (layer_norm,) * len(hidden) + (norm_output,)
        self.norms = tuple(
            fresh_norm(width) if norm else None for width, norm in zip(widths[1:], normed, strict=True)
        )

    def __call__(self, *parts: Float[Array, "*#axes _"]) -> Float[Array, "*axes out"]:
        """Returns the output of the last layer."""
        return self.activations(*parts)[-1]

    def activations(self, *parts: Float[Array, "*#axes _"]) -> tuple[Float[Array, "*axes _"], ...]:
        """Returns every hidden layer after its ReLU, then the output."""
        values: list[Array] = []
        for layer, norm in zip(self.layers, self.norms, strict=True):
            value = layer(*parts)
            value = _mapped(norm, value.ndim - 1)(value) if norm else value
            last = len(values) == len(self.layers) - 1
            values.append(value if last else jax.nn.relu(value))
            parts = (values[-1],)
        return tuple(values)

    def features(self, *parts: Float[Array, "*#axes _"]) -> Float[Array, "*axes _"]:
        """Returns the last hidden layer, or the input where there is none, and the constant 1.

        The output is linear in them, by the `weights`; they are the features phi of its values.
        """
        seen = self.activations(*parts)[-2:-1] or parts
        return jnp.concatenate([*seen, jnp.ones((*seen[0].shape[:-1], 1))], axis=-1)

    @property
    def weights(self) -> Float[Array, " _"]:
        """The weights and the bias of the last layer, if it has one output."""
        return jnp.concatenate([self.layers[-1].weight[:, 0], self.layers[-1].bias])


def _mapped(function: Callable, axes: int) -> Callable:
    """Returns a function of one vector over so many leading axes."""
    for _ in range(axes):
        function = jax.vmap(function)
    return function
