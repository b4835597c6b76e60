"""Functional critics: Q(policy, obs, act), where the policy is data."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fcritic import ensembles
from fcritic.networks.actor_encoder import ActorEncoder
from fcritic.networks.mlp import MLP
from fcritic.networks.policies import Policy
from fcritic.networks.precision import lower
from fcritic.randomness import apart


class BlindEncoder(eqx.Module):
    """Sees nothing of a policy: its code is empty. It makes a functional critic a plain Q(s, a)."""

    def __call__(self, policy: Policy) -> Float[Array, "0"]:
        """An empty code, whatever the policy."""
        return jnp.zeros(0)

    def codes(self, policies: Policy) -> Float[Array, "actors 0"]:
        """An empty code for each policy."""
        return jnp.zeros((ensembles.size(policies), 0))


class ValueHead(eqx.Module):
    """E_joint(code, E_sa(s, a)): the two parts of a critic that the target network delays."""

    state_action: MLP
    joint: MLP

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        code: int,
        state_action_code: int,
        *,
        state_action_hidden: Sequence[int],
        joint_hidden: Sequence[int],
        layer_norm: bool,
        key: PRNGKeyArray,
        last_scale: float = 0.003,
    ):
        state_action_key, joint_key = apart(key)
        self.state_action = MLP(
            obs_dim + act_dim,
            state_action_hidden,
            state_action_code,
            key=state_action_key,
            layer_norm=layer_norm,
            norm_output=layer_norm,
            last_scale=None,
        )
        self.joint = MLP(
            code + state_action_code, joint_hidden, 1, key=joint_key, layer_norm=layer_norm, last_scale=last_scale
        )

    def __call__(
        self, code: Float[Array, " code"], obs: Float[Array, " obs"], act: Float[Array, " act"]
    ) -> Float[Array, ""]:
        """The value of an action at a state under the policy with this code."""
        return self.joint(code, self.state_action(obs, act))[0]

    def lowered(self, dtype: jnp.dtype) -> "ValueHead":
        """The same with hidden layers that compute in this type. The last layer stays: values need all digits."""
        last = lambda head: head.joint.layers[-1]
        return eqx.tree_at(last, lower(self, dtype), last(self))


class FunctionalCritic(eqx.Module):
    """Q(pi, s, a) = E_joint(E_act(pi), E_sa(s, a)), eq. `eq:func_q_nn`.

    `encode` sees the policy only and `value` the code only, so that a policy is encoded once for a whole batch.
    The target critic of eq. `eq:tar_func_q_nn` is the same encoder with a delayed head:
    ``FunctionalCritic(critic.encoder, delayed_head)``.
    """

    encoder: ActorEncoder | BlindEncoder
    head: ValueHead

    def encode(self, policy: Policy) -> Float[Array, " code"]:
        """The code of a policy, E_act(pi)."""
        return self.encoder.codes(jax.tree.map(lambda leaf: leaf[None], policy))[0]

    def value(
        self, code: Float[Array, " code"], obs: Float[Array, " obs"], act: Float[Array, " act"]
    ) -> Float[Array, ""]:
        """The value of an action under an encoded policy, E_joint(code, E_sa(s, a))."""
        return self.head(code, obs, act)

    def __call__(self, policy: Policy, obs: Float[Array, " obs"], act: Float[Array, " act"]) -> Float[Array, ""]:
        """Q(pi, s, a)."""
        return self.value(self.encode(policy), obs, act)

    def lowered(self, dtype: jnp.dtype) -> "FunctionalCritic":
        """The same with an encoder and hidden layers that compute in this type."""
        return FunctionalCritic(lower(self.encoder, dtype), self.head.lowered(dtype))


class StateActionCritic(eqx.Module):
    """Q(s, a) that knows no policy: the critic of SAC and TD3."""

    network: MLP

    def __init__(self, obs_dim: int, act_dim: int, hidden: Sequence[int], *, layer_norm: bool, key: PRNGKeyArray):
        self.network = MLP(obs_dim + act_dim, hidden, 1, key=key, layer_norm=layer_norm)

    def __call__(self, obs: Float[Array, " obs"], act: Float[Array, " act"]) -> Float[Array, ""]:
        """The value of an action at a state."""
        return self.network(jnp.concatenate([obs, act]))[0]

    def rows(self, obs: Float[Array, "batch obs"], act: Float[Array, "batch act"]) -> Float[Array, " batch"]:
        """The values of a batch."""
        return self.network.rows(jnp.concatenate([obs, act], axis=1))[:, 0]

    def lowered(self, dtype: jnp.dtype) -> "StateActionCritic":
        """The same with hidden layers that compute in this type."""
        last = lambda critic: critic.network.layers[-1]
        return eqx.tree_at(last, lower(self, dtype), last(self))
