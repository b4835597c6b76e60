"""The formulas of the functional actor-critic, each written once, for one critic and one policy."""

from collections.abc import Callable

import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic import ensembles
from fcritic.agents.action_noise import with_noise
from fcritic.kernels import policy_kernels, product
from fcritic.networks.critics import BlindEncoder, FunctionalCritic, ValueHead
from fcritic.networks.policies import Policy
from fcritic.networks.precision import lower, on_gpu
from fcritic.networks.priors import Prior
from fcritic.types import Metrics, Transition

FLOAT32 = jnp.dtype("float32")
Head = Callable[[Array, Array, Array], Array]
"""Anything that maps a code, an observation and an action to a value; usually a `ValueHead`."""


def values(
    head: Head,
    codes: Float[Array, "actors code"],
    obs: Float[Array, "batch obs"],
    act: Float[Array, "batch act"] | Float[Array, "actors batch act"],
) -> Float[Array, "actors batch"]:
    """Q(pi_j, s_b, a_b) on the product of policies and states, for actions with or without a policy axis.

    Actions from the replay are the same for every policy; E_sa is then computed once for all of them.
    """
    over_batch = vmap(head, in_axes=(None, 0, 0))
    return vmap(over_batch, in_axes=(0, None, 0 if act.ndim == 3 else None))(codes, obs, act)


def td_target(
    target: Head,
    codes: Float[Array, "actors code"],
    next_act: Float[Array, "actors batch act"],
    batch: Transition,
    discount: float,
    prior: Prior | None = None,
) -> Float[Array, "actors batch"]:
    """y = r + gamma Q_tar(pi, s', pi(s')), eq. `eq:func_td_target`; a critic with a prior has it in its target too.

    The paper prints no termination; here gamma is multiplied with the stored discount, which is 0 where the
    task ended. The code is the online encoder's and passes no gradient, eq. `eq:tar_func_q_nn`.
    """
    next_values = product.target_values if product.fits(target, batch.next_obs) else values
    next_value = next_values(target, jax.lax.stop_gradient(codes), batch.next_obs, next_act)
    if prior is not None:
        next_value = next_value + prior.over(batch.next_obs, next_act)
    return jax.lax.stop_gradient(batch.reward[None] + discount * batch.discount[None] * next_value)


def critic_loss(
    head: Head,
    codes: Float[Array, "actors code"],
    batch: Transition,
    goal: Float[Array, "actors batch"],
    prior: Prior | None = None,
    weights: Float[Array, " batch"] | None = None,
) -> tuple[Float[Array, ""], Metrics]:
    """The squared distance of one critic to its target, eq. `eq:func_q_loss`, averaged over policies and batch.

    With a prior the critic is `head` + prior, so the head learns what the prior leaves of the target. `weights` are
    those of a bootstrap mask.
    """
    added = None if prior is None else jnp.broadcast_to(prior.over(batch.obs, batch.act), goal.shape)
    rest = goal if added is None else goal - added
    if weights is None:
        error = product.squared_error if product.fits(head, batch.obs) else squared_error
        loss, value = error(head, codes, batch.obs, batch.act, rest)
    else:
        loss, value = squared_error(head, codes, batch.obs, batch.act, rest, weights)
    value = value if added is None else value + added
    return loss, {"critic_loss": loss, "critic_value": value.mean(), "target_value": goal.mean()}


def squared_error(
    head: Head,
    codes: Float[Array, "actors code"],
    obs: Float[Array, "batch obs"],
    act: Float[Array, "batch act"],
    goal: Float[Array, "actors batch"],
    weights: Float[Array, " batch"] | None = None,
) -> tuple[Float[Array, ""], Float[Array, "actors batch"]]:
    """The mean of (Q(pi, s, a) - y)^2 over the product, weighted by transition where asked, and the values."""
    value = values(head, codes, obs, act)
    error = (goal - value) ** 2
    return jnp.mean(error if weights is None else weights[None] * error), value


def actions(
    policies: Policy, obs: Float[Array, "batch obs"], dtype: jnp.dtype = FLOAT32
) -> Float[Array, "actors batch act"]:
    """pi_j(s_b) of every policy, computed in this type, where they fit by the kernels that encoders use."""
    if dtype == FLOAT32:
        return vmap(lambda policy: vmap(policy)(obs))(policies)
    policies, obs = lower(policies, dtype), obs.astype(dtype)
    fit = (product.INTERPRET or on_gpu()) and policy_kernels.fit(policies, obs)
    one = lambda policy: policy_kernels.last_layers(policy, obs, product.INTERPRET)[1] if fit else vmap(policy)(obs)
    return vmap(one)(policies).astype(jnp.float32)


def encode_all(
    critics: FunctionalCritic, policies: Policy, shared_encoder: bool
) -> Float[Array, "critics actors code"]:
    """The code of every policy by every critic; a shared encoder is run once and its codes repeated."""
    if shared_encoder:
        codes = critics.encoder.codes(policies)
        return jnp.broadcast_to(codes, (ensembles.size(critics.head), *codes.shape))
    return vmap(lambda encoder: encoder.codes(policies))(critics.encoder)


def own_codes(critics: FunctionalCritic, policies: Policy, shared_encoder: bool) -> Float[Array, "actors code"]:
    """The code of each policy by the critic with its index."""
    if shared_encoder:
        return critics.encoder.codes(policies)
    return vmap(lambda critic, policy: critic.encode(policy))(critics, policies)


def functional_critic_loss(
    critics: FunctionalCritic,
    targets: ValueHead,
    policies: Policy,
    batch: Transition,
    discount: float,
    shared_encoder: bool,
    priors: Prior | None = None,
    weights: Float[Array, "critics batch"] | None = None,
    common_target: bool = False,
) -> tuple[Float[Array, ""], Metrics]:
    """The sum of all critics' losses, each on the product A_t x B_C with its own target (lines 12-15).

    A sum, so that each head's gradient is that of its own loss; a shared encoder gets the sum over critics.
    Plain critics cannot tell policies apart, so each learns on its own actor only. `common_target` gives all
    critics the mean of their targets.
    """
    next_act = actions(policies, batch.next_obs) if batch.next_act is None else batch.next_act
    if isinstance(critics.encoder, BlindEncoder):
        members = ensembles.size(critics.head)
        codes, next_act, act_axis = jnp.zeros((members, 1, 0)), next_act[:members, None], 0
    else:
        codes, act_axis = encode_all(critics, policies, shared_encoder), None
    each_target = vmap(td_target, in_axes=(0, 0, act_axis, None, None, 0))
    goals = each_target(targets, codes, next_act, batch, discount, priors)
    if common_target:
        goals = jnp.broadcast_to(goals.mean(axis=0), goals.shape)
    per_critic = vmap(critic_loss, in_axes=(0, 0, None, 0, 0, 0))
    losses, metrics = per_critic(critics.head, codes, batch, goals, priors, weights)
    metrics["critic_spread"] = metrics["critic_value"].std()
    return losses.sum(), {name: value.mean() for name, value in metrics.items()}


def own_values(
    critics: FunctionalCritic,
    policies: Policy,
    obs: Float[Array, "batch obs"],
    shared_encoder: bool,
    priors: Prior | None = None,
) -> Float[Array, "critics actors batch"]:
    """Q_i(pi_j, s_b, pi_j(s_b)): what every critic expects of every policy that acts by itself."""
    act = actions(policies, obs)
    if isinstance(critics.encoder, BlindEncoder):
        codes = jnp.zeros((ensembles.size(critics.head), ensembles.size(policies), 0))
    else:
        codes = encode_all(critics, policies, shared_encoder)
    found = vmap(values, in_axes=(0, 0, None, None))(critics.head, codes, obs, act)
    return found if priors is None else found + vmap(lambda prior: prior.over(obs, act))(priors)


def weigh_gradient(tree, weight: float):
    """The same values, whose gradient is multiplied by `weight`."""
    if weight == 1.0:
        return tree
    if weight == 0.0:
        return jax.lax.stop_gradient(tree)
    return jax.tree.map(lambda leaf: weight * leaf + (1 - weight) * jax.lax.stop_gradient(leaf), tree)


def actor_loss(
    policy: Policy,
    code: Float[Array, " code"],
    head: Head,
    obs: Float[Array, "batch obs"],
    prior: Prior | None = None,
    noise: Float[Array, "batch act"] | None = None,
) -> Float[Array, ""]:
    """-mean_b Q(pi, s_b, pi(s_b)): minus, since the optimiser descends and the actor must climb.

    Its gradient in the policy, of which `code` is a function too, is eq. `eq-our-gradient-formula` for a
    deterministic policy: the first term goes through the action, the second through the code. A prior is part of
    the critic. `noise` is added to the policy's actions.
    """
    act = with_noise(vmap(policy)(obs), noise)
    found = vmap(lambda s, a: head(code, s, a))(obs, act)
    return -jnp.mean(found if prior is None else found + vmap(prior)(obs, act))
