"""Which critic improves which actor, and the gradients that come of it (lines 18-22 of `alg-nn`)."""

from typing import Literal

import jax
from jax import vmap
from jaxtyping import Array, Float, PRNGKeyArray

from fcritic import ensembles
from fcritic.agents.losses import actor_loss, own_codes, weigh_gradient
from fcritic.networks.critics import FunctionalCritic, ValueHead
from fcritic.networks.policies import DeterministicPolicy
from fcritic.networks.priors import Prior

Pairing = Literal["fixed", "permuted", "mean"]


def permuted(
    critics: FunctionalCritic, priors: Prior | None, shared_encoder: bool, key: PRNGKeyArray
) -> tuple[FunctionalCritic, Prior | None]:
    """The critics in another order, each with its prior."""
    order = jax.random.permutation(key, ensembles.size(critics.head))
    encoder = critics.encoder if shared_encoder else ensembles.member(critics.encoder, order)
    return FunctionalCritic(encoder, ensembles.member(critics.head, order)), ensembles.member(priors, order)


def actor_gradients(
    policies: DeterministicPolicy,
    critics: FunctionalCritic,
    priors: Prior | None,
    obs: Float[Array, "batch obs"],
    second_term: float,
    shared_encoder: bool,
    mean_of_critics: bool,
    noise: Float[Array, "batch act"] | None = None,
) -> tuple[Float[Array, " actors"], DeterministicPolicy]:
    """Each actor's loss and its gradient: by the critic with its index, or by the mean of all critics.

    `second_term` weighs the gradient through the policy input; `noise` is added to the actions of all actors.
    """
    encoder_axis = None if shared_encoder else 0

    def loss(
        policy: DeterministicPolicy, code: Float[Array, " code"], head: ValueHead, prior: Prior | None
    ) -> Float[Array, ""]:
        return actor_loss(policy, code, head, obs, prior, noise)

    def losses(policies: DeterministicPolicy) -> tuple[Float[Array, ""], Float[Array, " actors"]]:
        seen = weigh_gradient(policies, second_term)
        if mean_of_critics:
            by_one = lambda encoder, head, prior: vmap(loss, in_axes=(0, 0, None, None))(
                policies, encoder.codes(seen), head, prior
            )
            found = vmap(by_one, in_axes=(encoder_axis, 0, 0))(critics.encoder, critics.head, priors).mean(axis=0)
        else:
            found = vmap(loss)(policies, own_codes(critics, seen, shared_encoder), critics.head, priors)
        # Losses have nothing in common: in the gradient of their sum each actor gets that of its own.
        return found.sum(), found

    (_, found), grads = jax.value_and_grad(losses, has_aux=True)(policies)
    return found, grads
