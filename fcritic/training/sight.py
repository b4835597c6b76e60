"""What critics and policies see: each through the normaliser under which it learned."""

import equinox as eqx
from jaxtyping import Array, Float

from fcritic.networks.policies import Policy, behaviour
from fcritic.training.replay import Normalizer


class Sight(eqx.Module):
    """The normalisers of critics and policies."""

    critics: Normalizer | None
    """None where observations are not normalised."""
    policies: Normalizer | None = None
    """None where it is the critics'."""

    def __call__(self, obs: Float[Array, "*axes obs"]) -> Float[Array, "*axes obs"]:
        """Returns raw observations as the critics see them."""
        return obs if self.critics is None else self.critics(obs)

    def view(self, policy: Policy) -> Policy:
        """Returns the policy as a function of what the critics see."""
        return policy if self.policies is None else Rescaled(policy, self)


class Rescaled(eqx.Module):
    """A policy that learned under one normaliser, for critics that see through another."""

    policy: Policy
    sight: Sight

    def _own(self, obs: Float[Array, " obs"]) -> Float[Array, " obs"]:
        critics, policies = self.sight.critics, self.sight.policies
        assert critics is not None and policies is not None
        return policies(critics.undo(obs))

    def __call__(self, obs: Float[Array, " obs"]) -> Float[Array, " act"]:
        """The action at what the critics see."""
        return self.policy(self._own(obs))

    def activations(self, obs: Float[Array, " obs"]) -> tuple[Float[Array, " _"], ...]:
        """The policy's own."""
        return self.policy.activations(self._own(obs))

    def behaviour(self, obs: Float[Array, " obs"]) -> Float[Array, " act_and_deviation"]:
        """What the policy does at what the critics see."""
        return behaviour(self.policy, self._own(obs))
