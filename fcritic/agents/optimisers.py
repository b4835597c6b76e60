"""Adam for critics whose encoder may learn at another rate than their heads, and when its turn is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from fcritic.kernels import fused_blocks, order
from fcritic.networks.actor_encoder import ActorEncoder
from fcritic.networks.critics import FunctionalCritic
from fcritic.networks.precision import on_gpu


def critic_adam(head_rate: float, encoder_rate: float, epsilon: float) -> optax.GradientTransformation:
    """Adam with one rate for E_sa and E_joint and one for E_act with its probes."""

    def step(updates: FunctionalCritic, params: FunctionalCritic) -> FunctionalCritic:
        scaled = lambda tree, rate: jax.tree.map(lambda leaf: -rate * leaf, tree)
        rated = (scaled(updates.encoder, encoder_rate), scaled(updates.head, head_rate))
        return eqx.tree_at(lambda critic: (critic.encoder, critic.head), updates, rated)

    return optax.chain(optax.scale_by_adam(eps=epsilon), optax.stateless(step))


def heads_later(grads: FunctionalCritic, dtype: jnp.dtype) -> FunctionalCritic:
    """The same gradients; where kernels compute, the heads' are complete only when that of the encoder's bias is.

    To update the heads takes all of a GPU's memory for a while. It may run beside what is between the attentions of
    the encoder, on the way back, but the first attention should not stand behind it (see `fused_blocks`).
    """
    if not (on_gpu() and dtype == jnp.bfloat16 and isinstance(grads.encoder, ActorEncoder)):
        return grads
    zero = order.zero_after(grads.encoder.read.bias, fused_blocks.INTERPRET)
    return eqx.tree_at(lambda critic: critic.head.joint.layers[-1].bias, grads, replace_fn=lambda bias: bias + zero)
