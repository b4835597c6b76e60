"""Adam for critics whose encoder may learn at another rate than their heads."""

import equinox as eqx
import jax
import optax

from fcritic.networks.critics import FunctionalCritic


def critic_adam(head_rate: float, encoder_rate: float, epsilon: float) -> optax.GradientTransformation:
    """Adam with one rate for E_sa and E_joint and one for E_act with its probes."""

    def step(updates: FunctionalCritic, params: FunctionalCritic) -> FunctionalCritic:
        scaled = lambda tree, rate: jax.tree.map(lambda leaf: -rate * leaf, tree)
        rated = (scaled(updates.encoder, encoder_rate), scaled(updates.head, head_rate))
        return eqx.tree_at(lambda critic: (critic.encoder, critic.head), updates, rated)

    return optax.chain(optax.scale_by_adam(eps=epsilon), optax.stateless(step))
