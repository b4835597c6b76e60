"""What a functional actor-critic learns."""

import equinox as eqx
from jaxtyping import Array, UInt32

from fcritic.agents.learner import Learner
from fcritic.kernels.packing import Packed
from fcritic.networks.critics import ValueHead
from fcritic.networks.policies import DeterministicPolicy
from fcritic.networks.priors import Prior

Policies = DeterministicPolicy | Packed


class FACState(eqx.Module):
    """What the agent learns; every part has a leading axis of n members."""

    actors: Learner
    """The policies A_t."""
    critics: Learner
    """The critics Q^(i); a shared encoder has no leading axis."""
    targets: ValueHead | Packed
    """The delayed heads, xi'_sa and xi'_joint."""
    slow_actors: Policies | None
    """A slow average of each actor, where `path` neighbours are drawn from it."""
    priors: Prior | None = None
    """What is added to each critic and its target and never changes."""
    mask_key: UInt32[Array, "2"] | None = None
    """From which the bootstrap masks are computed."""
