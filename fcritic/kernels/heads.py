"""A head on the product of policies and states: which heads fit, and the kernels of target values and norms.

Written layer by layer, each hidden layer of (actors x batch) rows goes to memory and back several times, and this
traffic, not arithmetic, is the cost of a functional critic's heads on a GPU. For target values one program takes a
tile of states through all layers, for one policy and one critic; `vmap` adds critics and seeds as axes of the grid.
E_sa is a kernel of its own: it needs no code, so it can run beside the actor encoder, which leaves room. Where
seeds are few, few of its programs take one actor after the other: behind many the encoder would have to wait, and
everything else waits for it.

Rows are held as blocks of columns, because a product of whole rows would not fit. Vectors of a layer come stacked.
`fcritic.networks.critics.values` is the plain reference.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax import lax
from jax.experimental import pallas as pl
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.kernels import error
from fcritic.kernels.pallas import EPSILON, Ref, call, few_seeds, whole
from fcritic.networks.critics import ValueHead

ROWS = 128
"""Batches must be multiples of this, the largest tile."""
COLUMNS = 128
"""Width of a block."""
TILE, WARPS = 128, 8
"""Rows of a tile and warps of a program of target values, the fastest of those tried on an H200."""
NORM_TILE, NORM_WARPS = 16, 4
"""The same for the norms of E_sa."""

Blocks = list[Array]
Rows = Float[Array, "rows width"]


def fits(head: Any, obs: Float[Array, "batch obs"]) -> bool:
    """Returns whether the kernels can compute this head: in bfloat16, with norms, powers of two wide."""
    if not isinstance(head, ValueHead):
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


def values(
    head: ValueHead,
    codes: Float[Array, "actors code"],
    obs: Float[Array, "batch obs"],
    act: Float[Array, "actors batch act"],
) -> Float[Array, "actors batch"]:
    """Returns Q(pi_j, s_b, a_jb), without a gradient."""
    inputs = jnp.concatenate([jnp.broadcast_to(obs, (*act.shape[:2], obs.shape[1])), act], axis=-1)
    inputs, layers = _state_action(head, inputs)
    encoder = tuple(array for layer in layers for array in layer)
    # Behind a barrier: the compiler would join this product of the codes with that of the error, then cut it again.
    code, weight_sa, joint = _joint(head, jax.lax.optimization_barrier(codes))
    return _target_values(inputs, code, encoder, (weight_sa, *joint)) + head.joint.layers[-1].bias[0]


def squared_error(
    head: ValueHead,
    codes: Float[Array, "actors code"],
    obs: Float[Array, "batch obs"],
    act: Float[Array, "batch act"],
    goal: Float[Array, "actors batch"],
) -> tuple[Float[Array, ""], Float[Array, "actors batch"]]:
    """Returns the mean of (Q(pi_j, s_b, a_b) - y_jb)^2, and the values, which pass no gradient."""
    code, weight_sa, joint = _joint(head, codes)
    rows, layers = _state_action(head, jnp.concatenate([obs, act], axis=-1))
    for number, (weight, vectors) in enumerate(layers, start=1):
        rows = normalised(rows @ weight, vectors, number < len(layers))
    state_action = rows @ weight_sa
    bias = head.joint.layers[-1].bias[0]
    loss, value = error.squared_error(code, state_action, *joint, goal - bias)
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
    """The codes' part of the first joint layer, the weights of E_sa there, and the arrays of later layers."""
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


def _target_values(
    inputs: Float[Array, "actors batch inputs"],
    code: Float[Array, "actors width"],
    encoder: tuple[Array, ...],
    joint: tuple[Array, ...],
) -> Float[Array, "actors batch"]:
    """Returns E_joint(code, E_sa(inputs)) of one critic, without the last bias; it cannot be differentiated.

    `code` is the contribution of the code to the first joint layer. `encoder` holds weight and vectors
    of every layer of E_sa; `joint` the part of the first weight that E_sa meets, then the arguments of
    `error.squared_error`.
    """
    some = len(code) // 2 if few_seeds() and len(code) % 2 == 0 else 1
    features = _call_on_actors(_encoder_kernel, [inputs], encoder, (jnp.bfloat16, encoder[-1].shape[1:]), some)
    return _call_on_actors(_value_kernel, [features, code[:, None]], joint, (jnp.float32, ()), None)


def _call_on_actors(
    kernel: Callable,
    of_actors: list[Array],
    arrays: tuple[Array, ...],
    out: tuple,
    some: int | None,
) -> Array:
    """Runs a kernel for every actor, or every group of `some`, and tile of rows.

    The first of `of_actors` has rows; `out` are type and width of the output.
    """
    actors, batch, _ = of_actors[0].shape
    tile, (dtype, rest) = min(TILE, batch), out
    of_tile = lambda *shape: pl.BlockSpec((some, tile, *shape), lambda j, k: (j, k, *[0] * len(shape)))
    return call(
        kernel,
        grid=(actors // (some or 1), batch // tile),
        in_specs=[
            of_tile(of_actors[0].shape[2]),
            *(pl.BlockSpec((None, *array.shape[1:]), lambda j, k: (j, 0, 0)) for array in of_actors[1:]),
            *map(whole, arrays),
        ],
        out_specs=of_tile(*rest),
        out_shape=jax.ShapeDtypeStruct((actors, batch, *rest), dtype),
        warps=WARPS,
    )(*of_actors, *arrays)


def _encoder_kernel(inputs: Ref, *refs: Ref) -> None:
    """E_sa, for one actor after the other."""
    *layers, out = refs
    count = len(layers) // 2

    def encode(actor: Array, _) -> int:
        blocks = [inputs[actor]]
        for index in range(count):
            blocks = _layer(blocks, layers[2 * index], layers[2 * index + 1], relu=index < count - 1)
        for block, part in zip(blocks, _columns(out.shape[2]), strict=True):
            out[actor, :, part] = block
        return 0

    lax.fori_loop(0, inputs.shape[0], encode, 0)


def _value_kernel(
    features: Ref, code: Ref, weight_sa: Ref, first: Ref, weight: Ref, second: Ref, last: Ref, out: Ref
) -> None:
    """E_joint."""
    blocks = [features[:, part] for part in _columns(features.shape[1])]
    blocks = _each(jnp.add, _product(blocks, weight_sa), _each(jnp.add, _vector(code, 0), _vector(first, 2)))
    blocks = _lower(_relu(_affine(_standard(blocks)[0], first, 0, 1)))
    out[...] = _value(_layer(blocks, weight, second), last)


def _columns(width: int) -> list[slice]:
    size = min(COLUMNS, width)
    return [slice(start, start + size) for start in range(0, width, size)]


def _each(function: Callable, *lists: list) -> Blocks:
    return [function(*items) for items in zip(*lists, strict=True)]


def _vector(vectors: Ref, index: int) -> Blocks:
    return [vectors[index, part][None, :] for part in _columns(vectors.shape[1])]


def _product(blocks: Blocks, weight: Ref) -> Blocks:
    """Rows times a weight, summed in float32."""
    rows = _columns(weight.shape[0]) if len(blocks) > 1 else [slice(0, weight.shape[0])]
    dot = partial(jnp.dot, preferred_element_type=jnp.float32)
    return [
        sum(_each(lambda b, r, part=part: dot(b, weight[r, part]), blocks, rows))
        for part in _columns(weight.shape[1])
    ]


def _standard(blocks: Blocks) -> tuple[Blocks, Array]:
    """Returns rows with mean 0 and variance 1, and their factor 1/sigma."""
    width = sum(block.shape[1] for block in blocks)
    mean = sum(block.sum(axis=1, keepdims=True) for block in blocks) / width
    centred = [block - mean for block in blocks]
    inverse = lax.rsqrt(sum((block * block).sum(axis=1, keepdims=True) for block in centred) / width + EPSILON)
    return [block * inverse for block in centred], inverse


def _affine(blocks: Blocks, vectors: Ref, scale: int, offset: int) -> Blocks:
    return _each(lambda b, s, o: b * s + o, blocks, _vector(vectors, scale), _vector(vectors, offset))


def _relu(blocks: Blocks) -> Blocks:
    return [jnp.maximum(block, 0.0) for block in blocks]


def _lower(blocks: Blocks) -> Blocks:
    return [block.astype(jnp.bfloat16) for block in blocks]


def _layer(blocks: Blocks, weight: Ref, vectors: Ref, relu: bool = True) -> Blocks:
    standard, _ = _standard(_each(jnp.add, _product(blocks, weight), _vector(vectors, 0)))
    blocks = _affine(standard, vectors, 1, 2)
    return _lower(_relu(blocks) if relu else blocks)


def _value(blocks: Blocks, last: Ref) -> Float[Array, " tile"]:
    return sum(_each(lambda b, w: (b.astype(jnp.float32) * w).sum(axis=1), blocks, _vector(last, 0)))


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def normalised(before: Rows, vectors: Float[Array, "8 width"], relu: bool) -> Rows:
    """Returns a layer's output from its product: bias, layer norm and ReLU in one kernel.

    Vectors: bias, scale, offset; the rest is not used. Forward the compiler does as well; backward, for which there
    is another kernel, it needs a handful, most of them for the sums over rows.
    """
    return _norm_forward(before, vectors, relu)[0]


def _norm_forward(before, vectors, relu):
    out = _call_norm(partial(_norm_kernel, relu=relu), [before], vectors, False)
    return out[0], (before, vectors)


def _norm_backward(relu, kept, grad):
    before, vectors = kept
    step, sums = _call_norm(partial(_norm_back_kernel, relu=relu), [before, grad], vectors, True)
    return step, jnp.pad(sums.sum(axis=0), ((0, 4), (0, 0)))


normalised.defvjp(_norm_forward, _norm_backward)


def _norm_kernel(before: Ref, vectors: Ref, out: Ref, relu: bool) -> None:
    standard, _ = standardise(before[...].astype(jnp.float32) + vectors[0, :][None])
    rows = standard * vectors[1, :][None] + vectors[2, :][None]
    out[...] = (jnp.maximum(rows, 0.0) if relu else rows).astype(out.dtype)


def _norm_back_kernel(before: Ref, grad: Ref, vectors: Ref, step: Ref, sums: Ref, relu: bool) -> None:
    standard, inverse = standardise(before[...].astype(jnp.float32) + vectors[0, :][None])
    grads = grad[...].astype(jnp.float32)
    if relu:
        grads = jnp.where(standard * vectors[1, :][None] + vectors[2, :][None] > 0, grads, 0.0)
    sums[1, :] = (grads * standard).sum(axis=0)
    sums[2, :] = grads.sum(axis=0)
    grads = standardise_backward(grads * vectors[1, :][None], standard, inverse)
    sums[0, :] = grads.sum(axis=0)
    sums[3, :] = jnp.zeros_like(vectors[0, :])
    step[...] = grads.astype(step.dtype)


def standardise(rows: Array) -> tuple[Array, Array]:
    """Returns rows with mean 0 and variance 1, and their factor 1/sigma."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    inverse = lax.rsqrt((centred * centred).mean(axis=1, keepdims=True) + EPSILON)
    return centred * inverse, inverse


def standardise_backward(grads: Array, standard: Array, inverse: Array) -> Array:
    """The gradient through `standardise`."""
    along = (grads * standard).mean(axis=1, keepdims=True)
    return inverse * (grads - grads.mean(axis=1, keepdims=True) - standard * along)


def _call_norm(kernel, tiled: list[Array], vectors: Array, sums: bool) -> list[Array]:
    count, width = tiled[0].shape
    tile = min(NORM_TILE, count)
    rows = pl.BlockSpec((tile, width), lambda k: (k, 0))
    out_specs, out_shape = [rows], [jax.ShapeDtypeStruct((count, width), tiled[0].dtype)]
    if sums:
        out_specs.append(pl.BlockSpec((None, 4, width), lambda k: (k, 0, 0)))
        out_shape.append(jax.ShapeDtypeStruct((count // tile, 4, width), jnp.float32))
    outs = call(
        kernel,
        grid=(count // tile,),
        in_specs=[*[rows] * len(tiled), whole(vectors)],
        out_specs=out_specs,
        out_shape=out_shape,
        warps=NORM_WARPS,
    )(*tiled, vectors)
    return list(outs)
