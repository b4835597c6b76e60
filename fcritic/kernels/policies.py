"""The last two layers of policies at probe states, in one kernel forward and one backward.

Layer by layer they are products of a few microseconds with additions and transpositions between them, and all of
the actor encoder waits for them. A program takes a tile of probes through a whole policy. Gradients of a policy's
weights, which only actors need, are products of arrays that the kernels leave behind.
"""

from functools import partial

import jax
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.experimental import pallas as pl
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.kernels.pallas import Refs, call_on_rows, dot, dot_transposed
from fcritic.networks.policies import DeterministicPolicy, Policy

HOW = (64, 4, 2, 64)
"""Probes of a tile, warps of a program, how many loads it has under way, and columns of a part of a weight."""
LEAST = 16
"""The narrowest product of a kernel."""

Rows = Float[Array, "probes _"]


def fit(policy: Policy, probes: Float[Array, "probes obs"]) -> bool:
    """Whether the kernels can compute this policy: two hidden layers, powers of two wide, in bfloat16."""
    if not isinstance(policy, DeterministicPolicy) or len(policy.network.layers) != 3:
        return False
    widths = [layer.weight.shape[-1] for layer in policy.network.layers[:-1]]
    return (
        probes.dtype == jnp.bfloat16
        and not any(policy.network.norms)
        and widths[0] == widths[1]
        and 32 <= widths[0] <= 256
        and widths[0] & (widths[0] - 1) == 0
        and probes.shape[0] >= HOW[0]
        and max(probes.shape[1], policy.network.layers[-1].bias.shape[0]) <= widths[0]
    )


def last_layers(
    policy: DeterministicPolicy, probes: Float[Array, "probes obs"]
) -> tuple[Float[Array, "probes width"], Float[Array, "probes act"]]:
    """The second hidden layer and the actions at many probes: `policy.activations` of each, without the first."""
    first, second, third = policy.network.layers
    width, actions = third.weight.shape
    missing = _power(probes.shape[1]) - probes.shape[1]
    weight = jnp.pad(first.weight, ((0, missing), (0, 0)))
    last = jnp.pad(third.weight, ((0, 0), (0, _power(actions) - actions)))
    biases = jnp.stack([first.bias, second.bias, jnp.pad(third.bias, (0, width - actions))]).astype(jnp.float32)
    rows = jnp.pad(probes, ((0, 0), (0, missing)))
    hidden, raw = _layers(rows, biases, weight, second.weight, last)
    return hidden.T, policy.squashed(raw[:, :actions])


@jax.custom_vjp
def _layers(
    probes: Rows,
    biases: Float[Array, "3 width"],
    first: Float[Array, "obs width"],
    second: Float[Array, "width width"],
    third: Float[Array, "width act"],
) -> tuple[Float[Array, "width probes"], Rows]:
    """The second hidden layer neuron by neuron, as an encoder reads it, and the last one before its tanh."""
    return _forward(probes, biases, first, second, third, kept=())[0]


def _forward(probes, biases, first, second, third, kept=("early",)):
    """Where no gradient is wanted, nothing is kept for it."""
    weights = {"biases": biases, "first": first, "second": second, "third": third}
    outs = {"late": second.shape[1], "raw": third.shape[1]} | dict.fromkeys(kept, second.shape[0])
    found = call_on_rows(_policy_kernel, {"probes": probes}, weights, outs, HOW, across=("late",))
    return (found["late"], found["raw"]), (probes, found.get("early"), found["late"], weights)


def _forward_to_differentiate(probes, biases, first, second, third):
    """Keeps for the backward pass whether a gradient in the policy is wanted: an empty tuple if so, else None."""
    policy = (biases, first, second, third)
    found, kept = _forward(probes.value, *(part.value for part in policy))
    return found, (*kept, () if any(part.perturbed for part in policy) else None)


def _policy_kernel(refs: Refs, columns: int) -> None:
    biases, second, third = (refs[name] for name in ("biases", "second", "third"))
    columns = min(columns, second.shape[1])
    early = dot(refs["probes"][...], refs["first"][...]) + biases[0, :][None]
    early = jnp.maximum(early, 0.0).astype(jnp.bfloat16)
    if "early" in refs:
        refs["early"][...] = early

    def add(number, raw):
        part = pl.ds(number * columns, columns)
        late = jnp.maximum(dot(early, second[:, part]) + biases[1, part][None], 0.0).astype(jnp.bfloat16)
        refs["late"][part, :] = late.T
        return raw + dot(late, third[part, :])

    start = jnp.zeros((early.shape[0], third.shape[1])) + biases[2, : third.shape[1]][None]
    refs["raw"][...] = lax.fori_loop(0, second.shape[1] // columns, add, start).astype(jnp.bfloat16)


def _backward(kept, grads):
    probes, early, late, weights, learns = kept
    d_late, d_raw = (jnp.zeros(g.shape, g.dtype) if isinstance(g, SymbolicZero) else g for g in grads)
    width = late.shape[0]
    tiled = {"early": early, "late": late, "d_late": d_late, "d_raw": d_raw}
    outs = {"of_probes": probes.shape[1]} | ({} if learns is None else {"of_early": width, "of_late": width})
    back = call_on_rows(_policy_back_kernel, tiled, weights, outs, HOW, across=("late", "d_late"))
    if learns is None:
        return back["of_probes"], None, None, None, None
    layers = ((probes, back["of_early"]), (early, back["of_late"]), (late.T, d_raw))
    over_rows = partial(jnp.sum, axis=0, dtype=jnp.float32)
    d_last = jnp.pad(over_rows(d_raw), (0, width - d_raw.shape[1]))
    d_biases = jnp.stack([over_rows(back["of_early"]), over_rows(back["of_late"]), d_last])
    return back["of_probes"], d_biases, *(rows.T @ grad for rows, grad in layers)


def _policy_back_kernel(refs: Refs, columns: int) -> None:
    second, third, d_raw = refs["second"], refs["third"], refs["d_raw"][...]
    columns = min(columns, second.shape[1])

    def add(number, total):
        part = pl.ds(number * columns, columns)
        grads = refs["d_late"][part, :].T.astype(jnp.float32) + dot_transposed(d_raw, third[part, :])
        grads = jnp.where(refs["late"][part, :].T > 0, grads, 0.0).astype(jnp.bfloat16)
        if "of_late" in refs:
            refs["of_late"][:, part] = grads
        return total + dot_transposed(grads, second[:, part])

    start = jnp.zeros((d_raw.shape[0], second.shape[0]))
    total = lax.fori_loop(0, second.shape[1] // columns, add, start)
    total = jnp.where(refs["early"][...] > 0, total, 0.0).astype(jnp.bfloat16)
    if "of_early" in refs:
        refs["of_early"][...] = total
    refs["of_probes"][...] = dot_transposed(total, refs["first"][...]).astype(jnp.bfloat16)


_layers.defvjp(_forward_to_differentiate, _backward, symbolic_zeros=True)


def _power(width: int) -> int:
    return max(LEAST, 1 << (width - 1).bit_length())
