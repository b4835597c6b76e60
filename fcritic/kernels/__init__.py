"""The one door to the kernels of our own, for a GPU.

Each function here is a plain formula, and calls its kernel instead where one can run and fits. Files of kernels are
imported on first use, so a CPU never loads them.
"""

import importlib
from types import ModuleType

from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.networks import critics
from fcritic.networks.actor_encoder import ActorEncoder, ProbedBehaviour
from fcritic.networks.critics import BlindEncoder, Head, PrimedHead
from fcritic.networks.policies import Policy
from fcritic.networks.precision import lower, on_gpu

INTERPRET = False
"""Whether kernels run, interpreted, on whatever device there is; for tests."""
SEEDS = "seeds"
"""Name of the axis of seeds, where one program trains several: kernels choose their tiles by its length."""
FLOAT32 = jnp.dtype("float32")


def _kernels(name: str) -> ModuleType | None:
    """Returns a file of kernels, or None where kernels cannot run."""
    return importlib.import_module(f"{__name__}.{name}") if INTERPRET or on_gpu() else None


def values(
    head: Head,
    codes: Float[Array, "actors code"],
    obs: Float[Array, "batch obs"],
    act: Float[Array, "actors batch act"],
) -> Float[Array, "actors batch"]:
    """Returns Q(pi_j, s_b, a_jb) on the product of policies and states; a kernel passes no gradient."""
    if isinstance(head, PrimedHead):
        return values(head.head, codes, obs, act) + _prior(head, codes, obs, act)
    heads = _kernels("heads")
    if heads is not None and heads.fits(head, obs):
        return heads.values(head, codes, obs, act)
    return critics.values(head, codes, obs, act)


def squared_error(
    head: Head,
    codes: Float[Array, "actors code"],
    obs: Float[Array, "batch obs"],
    act: Float[Array, "batch act"],
    goal: Float[Array, "actors batch"],
) -> tuple[Float[Array, ""], Float[Array, "actors batch"]]:
    """Returns the mean of (Q(pi_j, s_b, a_b) - y_jb)^2 over the product, and the values."""
    if isinstance(head, PrimedHead):  # the head learns the rest that the prior leaves of the target
        added = _prior(head, codes, obs, act)
        loss, found = squared_error(head.head, codes, obs, act, goal - added)
        return loss, found + added
    heads = _kernels("heads")
    if heads is not None and heads.fits(head, obs):
        return heads.squared_error(head, codes, obs, act, goal)
    found = critics.values(head, codes, obs, act)
    return jnp.mean((goal - found) ** 2), found


def _prior(head: PrimedHead, codes: Array, obs: Array, act: Array) -> Float[Array, "actors batch"]:
    """The prior of a head, which sees no code, outside of kernels."""
    return critics.values(lambda code, s, a: head.prior(s, a), codes, obs, act)


def codes(encoder: ActorEncoder | ProbedBehaviour | BlindEncoder, policies: Policy) -> Float[Array, "actors code"]:
    """Returns the code of each of a stack of policies."""
    blocks = _kernels("blocks")
    if blocks is not None and isinstance(encoder, ActorEncoder) and blocks.fit(encoder.blocks):
        return blocks.codes(encoder, policies)
    return vmap(encoder)(policies)


def actions(
    policies: Policy, obs: Float[Array, "batch obs"], dtype: jnp.dtype = FLOAT32
) -> Float[Array, "actors batch act"]:
    """Returns pi_j(s_b) for a stack of policies, computed in this type."""
    plain = lambda policy: vmap(policy)(obs)
    if dtype == FLOAT32:
        return vmap(plain)(policies)
    policies, obs, kernels = lower(policies, dtype), obs.astype(dtype), _kernels("policies")
    fit = kernels is not None and kernels.fit(policies, obs)
    return vmap((lambda policy: kernels.last_layers(policy, obs)[1]) if fit else plain)(policies).astype(FLOAT32)
