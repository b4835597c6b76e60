"""Which critic improves which actor, and the gradients that come of it (lines 18-22 of `alg-nn`)."""

from typing import Any, Literal

import jax
from jax import vmap
from jaxtyping import Array, Float, PRNGKeyArray

from fcritic import ensembles
from fcritic.agents.losses import actor_loss
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

    `noise` is added to the actions of every actor alike.
    """
    encoder_axis = None if shared_encoder else 0

    def loss(policy: DeterministicPolicy, encoder: Any, head: ValueHead, prior: Prior | None) -> Float[Array, ""]:
        return actor_loss(policy, FunctionalCritic(encoder, head), obs, second_term, prior, noise)

    def mean_loss(
        policy: DeterministicPolicy, encoder: Any, heads: ValueHead, priors: Prior | None
    ) -> Float[Array, ""]:
        return vmap(loss, in_axes=(None, encoder_axis, 0, 0))(policy, encoder, heads, priors).mean()

    one, axes = (mean_loss, (0, None, None, None)) if mean_of_critics else (loss, (0, encoder_axis, 0, 0))
    return vmap(jax.value_and_grad(one), in_axes=axes)(policies, critics.encoder, critics.head, priors)
