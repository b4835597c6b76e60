"""Linear layers and multilayer perceptrons whose leaves are all arrays, and whose activations can be read.

An input may come in several parts. A layer then adds what each part contributes, which is the same as
concatenating them, but a part that is shared by many rows of a batch is multiplied only once.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

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


class Linear(eqx.Module):
    """y = (x_1, x_2, ...) W + b for an input given in parts."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]

    def __init__(self, in_width: int, out_width: int, *, key: PRNGKeyArray, scale: float | None = None):
        """Weights U(-scale, scale), by default 1/sqrt(in_width); biases zero."""
        scale = in_width**-0.5 if scale is None else scale
        self.weight = uniform(key, (in_width, out_width), scale)
        self.bias = zeros(out_width)

    def __call__(self, *parts: Float[Array, " _"]) -> Float[Array, " out"]:
        """The image of the concatenated parts, without concatenating them, in the type of the weights."""
        total, start = self.bias, 0
        for part in parts:
            stop = start + part.shape[0]
            total = total + part.astype(self.weight.dtype) @ self.weight[start:stop]
            start = stop
        if start != self.weight.shape[0]:
            raise ValueError(f"the parts hold {start} numbers, the layer takes {self.weight.shape[0]}")
        return total

    def rows(self, rows: Float[Array, "rows in"]) -> Float[Array, "rows out"]:
        """The images of many inputs, one per row."""
        return rows_times(rows.astype(self.weight.dtype), self.weight) + self.bias[None]


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
    ):
        """`norm_output` normalises the last layer too, which never has a ReLU."""
        widths = (in_width, *hidden, out_width)
        keys = apart(key, len(widths) - 1)
        scales = (None,) * len(hidden) + (last_scale,)
        self.layers = tuple(
            Linear(a, b, key=k, scale=scale)
            for a, b, k, scale in zip(widths[:-1], widths[1:], keys, scales, strict=True)
        )
        normed = (layer_norm,) * len(hidden) + (norm_output,)
        self.norms = tuple(
            fresh_norm(width) if norm else None for width, norm in zip(widths[1:], normed, strict=True)
        )

    def __call__(self, *parts: Float[Array, " _"]) -> Float[Array, " out"]:
        """The output of the last layer."""
        return self.activations(*parts)[-1]

    def activations(self, *parts: Float[Array, " _"]) -> tuple[Float[Array, " _"], ...]:
        """Every hidden layer after its ReLU, then the output."""
        return self._outputs(parts, Linear.__call__, lambda norm: norm)

    def rows(self, rows: Float[Array, "rows in"]) -> Float[Array, "rows out"]:
        """The outputs for many inputs, one per row: what `vmap` gives, with faster gradients in the weights."""
        return self._outputs((rows,), Linear.rows, jax.vmap)[-1]

    def _outputs(self, parts: tuple[Array, ...], linear: Callable, mapped: Callable) -> tuple[Array, ...]:
        values: list[Array] = []
        for layer, norm in zip(self.layers, self.norms, strict=True):
            value = linear(layer, *parts)
            value = mapped(norm)(value) if norm else value
            last = len(values) == len(self.layers) - 1
            values.append(value if last else jax.nn.relu(value))
            parts = (values[-1],)
        return tuple(values)
