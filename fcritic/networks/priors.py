"""Prior functions: random networks that are added to critics and never trained.

Where there is data, a critic learns what is left once its prior is taken off, and their sum tells nothing of the
prior. Where there is none, the sum stays as random as the prior: members of an ensemble go on to disagree there.
"""

from collections.abc import Sequence

import equinox as eqx
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fcritic.networks.critics import ValueHead


class Prior(eqx.Module):
    """beta P(s, a), where P is a head with random weights that sees no policy.

    It has the form of a critic's head without a code. With a code it would need an encoder of its own for each
    critic, n^2 more encodings per update, and its arbitrary slopes along the code would enter the second term of
    the actors' gradient, where no data can correct them. It still tells policies apart, by their actions.
    """

    network: ValueHead
    scale: float = eqx.field(static=True)

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        state_action_code: int,
        *,
        state_action_hidden: Sequence[int],
        joint_hidden: Sequence[int],
        layer_norm: bool,
        scale: float,
        key: PRNGKeyArray,
    ):
        width = joint_hidden[-1] if joint_hidden else state_action_code
        self.network = ValueHead(
            obs_dim,
            act_dim,
            0,
            state_action_code,
            state_action_hidden=state_action_hidden,
            joint_hidden=joint_hidden,
            layer_norm=layer_norm,
            last_scale=(6 / width)
            ** 0.5,  # deviation near 1 after a layer norm and a ReLU: beta has a value's units
            key=key,
        )
        self.scale = scale

    def __call__(self, obs: Float[Array, " obs"], act: Float[Array, " act"]) -> Float[Array, ""]:
        """beta P(s, a)."""
        return self.scale * self.network(jnp.zeros(0), obs, act)

    def over(
        self, obs: Float[Array, "batch obs"], act: Float[Array, "batch act"] | Float[Array, "actors batch act"]
    ) -> Float[Array, "*actors batch"]:
        """beta P(s_b, a_b), for actions with or without a policy axis."""
        over_batch = vmap(self)
        return vmap(over_batch, in_axes=(None, 0))(obs, act) if act.ndim == 3 else over_batch(obs, act)

    def lowered(self, dtype: jnp.dtype) -> "Prior":
        """The same with hidden layers that compute in this type."""
        return eqx.tree_at(lambda prior: prior.network, self, self.network.lowered(dtype))
