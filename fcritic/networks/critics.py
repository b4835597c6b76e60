"""Critics: functional ones, Q(policy, obs, act), where the policy is data, and plain ones, Q(obs, act)."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fcritic.errors import UsageError
from fcritic.networks.actor_encoder import ActorEncoder, EncoderConfig, ProbedBehaviour
from fcritic.networks.mlp import MLP, Exact
from fcritic.networks.policies import Policy
from fcritic.randomness import apart

Head = Callable[[Array, Array, Array], Array]
"""Any function from a code, an observation and an action to a value; usually a `ValueHead`."""


class BlindEncoder(eqx.Module):
    """An encoder that ignores the policy: its code is empty, so a functional critic becomes a plain Q(s, a)."""

    def __call__(self, policy: Policy) -> Float[Array, "0"]:
        """Returns an empty code, whatever the policy."""
        return jnp.zeros(0)


class NamesAlone(eqx.Module):
    """The encoder of critics that know actors by name, for policies that have none."""

    config: EncoderConfig = eqx.field(static=True, default=EncoderConfig(shared=True))

    def __call__(self, policy: Policy) -> Array:
        """Refuses the policy."""
        raise UsageError("these critics know actors by name (--names), not by what they do: they value no policy")


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
            code + state_action_code,
            joint_hidden,
            1,
            key=joint_key,
            layer_norm=layer_norm,
            last_scale=last_scale,
            last=Exact,
        )

    def __call__(
        self, code: Float[Array, " code"], obs: Float[Array, " obs"], act: Float[Array, " act"]
    ) -> Float[Array, ""]:
        """Returns the value of an action at a state under the policy with this code."""
        return self.joint(code, self.state_action(obs, act))[0]

    def features(
        self, code: Float[Array, " code"], obs: Float[Array, " obs"], act: Float[Array, " act"]
    ) -> Float[Array, " d"]:
        """Returns phi^pi(s, a), in which the value is linear."""
        return self.joint.features(code, self.state_action(obs, act))


class Prior(eqx.Module):
    """beta P(s, a), where P is a head with random weights that is never trained and sees no policy.

    Where there is data, a critic learns the rest that its prior leaves, and their sum does not depend on the prior.
    Where there is none, the sum stays as random as the prior: members of an ensemble go on to disagree there.

    P has the form of a critic's head without a code. With a code it would need an encoder of its own for each
    critic, n^2 more encodings per update, and its arbitrary slopes along the code would enter the second term of
    the actors' gradient, where no data can correct them. It still differs between policies, by their actions.
    """

    network: ValueHead
    scale: float = eqx.field(static=True)

    def __init__(self, head: Callable[..., ValueHead], width: int, *, scale: float, key: PRNGKeyArray):
        """Draws P by `head(last_scale=..., key=...)`; `width` is that of its last hidden layer.

        P has a standard deviation near 1 after a layer norm and a ReLU, so that beta has a value's units.
        """
        self.network = head(last_scale=(6 / width) ** 0.5, key=key)
        self.scale = scale

    def __call__(self, obs: Float[Array, " obs"], act: Float[Array, " act"]) -> Float[Array, ""]:
        """Returns beta P(s, a)."""
        return self.scale * self.network(jnp.zeros(0), obs, act)


class PrimedHead(eqx.Module):
    """A head with a prior added to it; itself a head."""

    head: Any
    prior: Prior

    def __call__(
        self, code: Float[Array, " code"], obs: Float[Array, " obs"], act: Float[Array, " act"]
    ) -> Float[Array, ""]:
        """Returns head(code, s, a) + beta P(s, a)."""
        return self.head(code, obs, act) + self.prior(obs, act)


class FunctionalCritic(eqx.Module):
    """Q(pi, s, a) = E_joint(E_act(pi), E_sa(s, a)), equation (11).

    `encode` sees the policy only and `value` the code only, so that a policy is encoded once for a whole batch.
    The target critic of equation (12) is the same encoder with a delayed head:
    ``FunctionalCritic(critic.encoder, delayed_head)``.
    """

    encoder: ActorEncoder | ProbedBehaviour | BlindEncoder | NamesAlone
    head: ValueHead | PrimedHead

    @property
    def shared(self) -> bool:
        """Whether one encoder serves all critics of a stack, and so has no axis of critics."""
        return not isinstance(self.encoder, BlindEncoder) and self.encoder.config.shared

    def encode(self, policy: Policy) -> Float[Array, " code"]:
        """Returns the code of a policy, E_act(pi)."""
        return self.encoder(policy)

    def value(
        self, code: Float[Array, " code"], obs: Float[Array, " obs"], act: Float[Array, " act"]
    ) -> Float[Array, ""]:
        """Returns the value of an action under an encoded policy, E_joint(code, E_sa(s, a))."""
        return self.head(code, obs, act)

    def __call__(self, policy: Policy, obs: Float[Array, " obs"], act: Float[Array, " act"]) -> Float[Array, ""]:
        """Returns Q(pi, s, a)."""
        return self.value(self.encode(policy), obs, act)


class StateActionCritic(eqx.Module):
    """Q(s, a), which sees no policy: the critic of SAC and TD3."""

    network: MLP

    def __init__(self, obs_dim: int, act_dim: int, hidden: Sequence[int], *, layer_norm: bool, key: PRNGKeyArray):
        self.network = MLP(obs_dim + act_dim, hidden, 1, key=key, layer_norm=layer_norm, last=Exact)

    def __call__(self, obs: Float[Array, "*axes obs"], act: Float[Array, "*axes act"]) -> Float[Array, "*axes"]:
        """Returns the value of an action at a state."""
        return self.network(jnp.concatenate([obs, act], axis=-1))[..., 0]


def values(
    head: Head,
    codes: Float[Array, "actors code"],
    obs: Float[Array, "batch obs"],
    act: Float[Array, "batch act"] | Float[Array, "actors batch act"],
) -> Float[Array, "actors batch"]:
    """Returns Q(pi_j, s_b, a_b) on the product of policies and states; actions may have a policy axis.

    Actions from the replay are the same for every policy; E_sa is then computed once for all of them.
    """
    over_batch = vmap(head, in_axes=(None, 0, 0))
    return vmap(over_batch, in_axes=(0, None, 0 if act.ndim == 3 else None))(codes, obs, act)
