"""Bootstrap masks: which critic learns from which transition, decided once for each pair of them.

A mask is not stored. It is a hash of the transition's number in its run and the critic's index under a key that is
drawn with the first parameters, so it is the same whenever the transition is sampled, also in a continued run.
"""

from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from fcritic.randomness import threefry


def mask_weights(
    key: UInt32[Array, "2"], numbers: UInt32[Array, " batch"], critics: int, probability: float
) -> Float[Array, "critics batch"]:
    """1 / p where a critic learns from a transition, which happens with probability p, else 0.

    Divided by p, the masked loss is on average the loss without masks.
    """
    index = lax.broadcasted_iota(jnp.uint32, (critics, numbers.shape[0]), 0)
    bits, _ = threefry(key, jnp.broadcast_to(numbers, index.shape), index)
    threshold = min(round(probability * 2**32), 2**32 - 1)
    return (bits < jnp.uint32(threshold)).astype(jnp.float32) / probability
