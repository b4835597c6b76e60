"""A head on the product of policies and states, by kernels, where it fits them.

`fcritic.agents.losses.values` and `fcritic.agents.losses.squared_error` compute the same in plain JAX.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.kernels import error_kernels, target_kernel
from fcritic.kernels.norm_kernels import normalised
from fcritic.networks.critics import ValueHead
from fcritic.networks.precision import on_gpu

INTERPRET = False
"""Whether the kernels are interpreted, which works anywhere; for tests."""
ROWS = 128
"""Batches must be multiples of this, the largest tile."""


def fits(head: Any, obs: Float[Array, "batch obs"]) -> bool:
    """Whether the kernels can compute this head: on a GPU in bfloat16, with norms, powers of two wide."""
    if not isinstance(head, ValueHead) or not (INTERPRET or on_gpu()):
        return False
    hidden = (*head.state_action.layers, *head.joint.layers[:-1])
    norms = (*head.state_action.norms, *head.joint.norms[:-1])
    widths = [layer.weight.shape[-1] for layer in hidden]
    return (
        all(layer.weight.dtype == jnp.bfloat16 for layer in hidden)
        and all(norm is not None for norm in norms)
        and all(width >= 32 and width & (width - 1) == 0 for width in widths)
        and len(head.joint.layers) == 3
        and widths[-1] == widths[-2]
        and obs.shape[0] % ROWS == 0
    )


def target_values(
    head: ValueHead,
    codes: Float[Array, "actors code"],
    obs: Float[Array, "batch obs"],
    act: Float[Array, "actors batch act"],
) -> Float[Array, "actors batch"]:
    """Q(pi_j, s_b, a_jb), without a gradient."""
    inputs = jnp.concatenate([jnp.broadcast_to(obs, (*act.shape[:2], obs.shape[1])), act], axis=-1)
    inputs, layers = _state_action(head, inputs)
    encoder = tuple(array for layer in layers for array in layer)
    # Behind a barrier: the compiler would join this product of the codes with that of the error, then cut it again.
    code, weight_sa, joint = _joint(head, jax.lax.optimization_barrier(codes))
    return (
        target_kernel.target_values(inputs, code, encoder, (weight_sa, *joint), INTERPRET)
        + head.joint.layers[-1].bias[0]
    )


def squared_error(
    head: ValueHead,
    codes: Float[Array, "actors code"],
    obs: Float[Array, "batch obs"],
    act: Float[Array, "batch act"],
    goal: Float[Array, "actors batch"],
) -> tuple[Float[Array, ""], Float[Array, "actors batch"]]:
    """The mean of (Q(pi_j, s_b, a_b) - y_jb)^2, and the values, which pass no gradient."""
    code, weight_sa, joint = _joint(head, codes)
    rows, layers = _state_action(head, jnp.concatenate([obs, act], axis=-1))
    for number, (weight, vectors) in enumerate(layers, start=1):
        rows = normalised(rows @ weight, vectors, number < len(layers), INTERPRET)
    state_action = rows @ weight_sa
    bias = head.joint.layers[-1].bias[0]
    loss, value = error_kernels.squared_error(code, state_action, *joint, goal - bias, INTERPRET)
    return loss, jax.lax.stop_gradient(value + bias)


def _state_action(head: ValueHead, inputs: Float[Array, "*rows inputs"]) -> tuple[Array, list[tuple[Array, Array]]]:
    """Inputs of E_sa and each layer's weight and vectors, filled with zeros to a power of two of inputs."""
    missing = max(16, 1 << (inputs.shape[-1] - 1).bit_length()) - inputs.shape[-1]
    inputs = jnp.pad(inputs.astype(jnp.bfloat16), [(0, 0)] * (inputs.ndim - 1) + [(0, missing)])
    layers, norms = head.state_action.layers, head.state_action.norms
    weights = [jnp.pad(layers[0].weight, ((0, missing), (0, 0))), *(layer.weight for layer in layers[1:])]
    vectors = [_vectors(layer.bias, norm) for layer, norm in zip(layers, norms, strict=True)]
    return inputs, list(zip(weights, vectors, strict=True))


def _joint(head: ValueHead, codes: Float[Array, "actors code"]) -> tuple[Array, Array, tuple[Array, ...]]:
    """What codes contribute to the first joint layer, the weights that E_sa meets there, and what follows."""
    first, second, last = head.joint.layers
    weight_code, weight_sa = jnp.split(first.weight, [codes.shape[1]])
    # The kernels add the bias: an addition here, fused with others, made the error wait for the targets.
    code = jnp.dot(codes, weight_code, preferred_element_type=jnp.float32)
    norms = head.joint.norms
    scales = _stack(norms[0].weight, norms[0].bias, first.bias.astype(jnp.float32))
    return code, weight_sa, (scales, second.weight, _vectors(second.bias, norms[1]), last.weight.T)


def _vectors(bias: Float[Array, " width"], norm: Any) -> Float[Array, "8 width"]:
    return _stack(bias.astype(jnp.float32), norm.weight, norm.bias)


def _stack(*vectors: Float[Array, " width"]) -> Float[Array, "8 width"]:
    """Filled up with zeros: XLA makes stacks of up to four a kernel each, but those of more one kernel for all."""
    return jnp.stack([*vectors, *[jnp.zeros_like(vectors[0])] * (8 - len(vectors))])
