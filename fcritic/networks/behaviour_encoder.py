"""A policy known by what it does: its actions at probe states, through one hidden layer, are its code.

Any policy has such a code: a network, a controller, a file from another framework. Nothing looks inside.
"""

from collections.abc import Sequence

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from fcritic.networks.mlp import MLP


class BehaviourEncoder(eqx.Module):
    """E_act(pi): from a policy's actions at P probe states to its code, with layer norm after both layers.

    A stochastic policy is described by the mean and the deviation of its actions; a deterministic one has deviation
    zero.
    """

    network: MLP

    def __init__(self, probes: int, act_dim: int, hidden: Sequence[int], code: int, *, key: PRNGKeyArray):
        self.network = MLP(
            2 * probes * act_dim, hidden, code, key=key, layer_norm=True, norm_output=True, last_scale=None
        )

    def __call__(
        self, behaviour: Float[Array, "*policies probes act_and_deviation"]
    ) -> Float[Array, "*policies code"]:
        """Returns the codes of policies from their actions and deviations at the probes."""
        return self.network(behaviour.reshape(*behaviour.shape[:-2], -1))
