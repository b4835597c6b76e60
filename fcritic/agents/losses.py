"""The formulas of the functional actor-critic, each written once, for one critic and one policy."""

from collections.abc import Callable
from typing import Any, Literal

import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fcritic import ensembles, kernels
from fcritic.networks.critics import BlindEncoder, FunctionalCritic, Head, PrimedHead, ValueHead, values
from fcritic.networks.policies import Policy
from fcritic.types import Metrics, Transition

Pairing = Literal["fixed", "mean"]


def td_target(
    target: Head,
    codes: Float[Array, "actors code"],
    next_act: Float[Array, "actors batch act"],
    batch: Transition,
    discount: float,
    bonus: Float[Array, "actors batch"] | None = None,
) -> Float[Array, "actors batch"]:
    """Returns y = r + gamma Q_tar(pi, s', pi(s')), equation (13); a bonus, as for entropy, is added to the value.

    The paper prints no termination; here gamma is multiplied with the stored discount, which is 0 where the
    task ended. The code is the online encoder's and passes no gradient, as in (12).
    """
    next_value = kernels.values(target, jax.lax.stop_gradient(codes), batch.next_obs, next_act)
    next_value = next_value if bonus is None else next_value + bonus
    return jax.lax.stop_gradient(batch.reward[None] + discount * batch.discount[None] * next_value)


def critic_loss(
    head: Head,
    codes: Float[Array, "actors code"],
    batch: Transition,
    goal: Float[Array, "actors batch"],
) -> tuple[Float[Array, ""], Metrics]:
    """Returns one critic's mean squared distance to its target over policies and batch, (14)."""
    loss, value = kernels.squared_error(head, codes, batch.obs, batch.act, goal)
    return loss, {"critic_loss": loss, "critic_value": value.mean(), "target_value": goal.mean()}


def encode_all(critics: FunctionalCritic, policies: Policy) -> Float[Array, "critics actors code"]:
    """Returns the code of every policy by every critic; a shared encoder is run once and its codes repeated."""
    count = ensembles.size(critics.head)
    if isinstance(critics.encoder, BlindEncoder):
        return jnp.zeros((count, ensembles.size(policies), 0))
    if critics.shared:
        codes = kernels.codes(critics.encoder, policies)
        return jnp.broadcast_to(codes, (count, *codes.shape))
    return vmap(lambda encoder: kernels.codes(encoder, policies))(critics.encoder)


def own_codes(critics: FunctionalCritic, policies: Policy) -> Float[Array, "actors code"]:
    """Returns the code of each policy by the critic with its index."""
    if critics.shared:
        return kernels.codes(critics.encoder, policies)
    alone = lambda policy: jax.tree.map(lambda leaf: leaf[None], policy)
    return vmap(lambda encoder, policy: kernels.codes(encoder, alone(policy))[0])(critics.encoder, policies)


def functional_critic_loss(
    critics: FunctionalCritic,
    targets: ValueHead | PrimedHead,
    policies: Policy,
    next_act: Float[Array, "actors batch act"],
    batch: Transition,
    discount: float,
    bonus: Float[Array, "actors batch"] | None = None,
    subset: Int[Array, " chosen"] | None = None,
    pairing: Pairing = "fixed",
) -> tuple[Float[Array, ""], Metrics]:
    """Returns the sum of all critics' losses, each on the product A_t x B_C with its own target (lines 12-15).

    A sum, so that each head's gradient is that of its own loss; a shared encoder gets the sum over critics.
    `next_act` are the policies' actions at the next states. With a `subset` of critics the least of their targets
    is that of all. Plain critics cannot tell policies apart: each learns on its own actor only, or where actors
    climb the mean of all critics on the mean of the actors' targets, the value of drawing one at each step.
    """
    plain = isinstance(critics.encoder, BlindEncoder)
    if plain and pairing == "fixed":
        codes, next_act, act_axis = jnp.zeros((len(next_act), 1, 0)), next_act[:, None], 0
    else:
        codes, act_axis = encode_all(critics, policies), None
    each_target = vmap(td_target, in_axes=(0, 0, act_axis, None, None, None))
    goals = of_subset(each_target, subset)(targets, codes, next_act, batch, discount, bonus)
    if plain and pairing == "mean":
        codes, goals = codes[:, :1], goals.mean(axis=1, keepdims=True)
    losses, metrics = vmap(critic_loss, in_axes=(0, 0, None, 0))(critics.head, codes, batch, goals)
    metrics["critic_spread"] = metrics["critic_value"].std()
    return losses.sum(), {name: value.mean() for name, value in metrics.items()}


def of_subset(each_target: Callable[..., Array], subset: Int[Array, " chosen"] | None) -> Callable[..., Array]:
    """Returns the function of all critics' targets; with a subset, one for all: the least of the chosen ones."""
    if subset is None:
        return each_target

    def common(targets: Any, codes: Float[Array, "critics policies code"], *rest: Any) -> Array:
        goals = each_target(*ensembles.member((targets, codes), subset), *rest).min(axis=0)
        return jnp.broadcast_to(goals, (len(codes), *goals.shape))

    return common


def cloud_loss(
    critics: FunctionalCritic,
    targets: ValueHead | PrimedHead,
    policies: Policy,
    next_act: Float[Array, "policies rows act"],
    rows: Transition,
    discount: float,
    bonus: Float[Array, "policies rows"] | None = None,
    subset: Int[Array, " chosen"] | None = None,
) -> Float[Array, ""]:
    """Returns the sum of all critics' losses on policies that have transitions of their own, not the product.

    Targets and losses are those of the actors: (13), and (14) averaged over policies and rows.
    """
    over_rows = vmap(lambda head, code, s, a: head(code, s, a), in_axes=(None, None, 0, 0))
    each = vmap(over_rows, in_axes=(None, 0, 0, 0))

    def target(delayed: Head, codes: Float[Array, "policies code"]) -> Float[Array, "policies rows"]:
        next_value = each(delayed, jax.lax.stop_gradient(codes), rows.next_obs, next_act)
        next_value = next_value if bonus is None else next_value + bonus
        return jax.lax.stop_gradient(rows.reward + discount * rows.discount * next_value)

    codes = encode_all(critics, policies)
    goals = of_subset(vmap(target), subset)(targets, codes)
    error = lambda head, codes, goal: jnp.mean((goal - each(head, codes, rows.obs, rows.act)) ** 2)
    return vmap(error)(critics.head, codes, goals).sum()


def own_values(
    critics: FunctionalCritic, policies: Policy, obs: Float[Array, "batch obs"], names: Policy | None = None
) -> Float[Array, "critics actors batch"]:
    """Returns Q_i(pi_j, s_b, pi_j(s_b)): every critic's value of every policy at its own actions."""
    codes, act = encode_all(critics, seen_as(policies, names)), kernels.actions(policies, obs)
    return vmap(values, in_axes=(0, 0, None, None))(critics.head, codes, obs, act)


def seen_as(policies: Policy, names: Policy | None, weight: float = 1.0) -> Policy:
    """Returns what critics see of actors: them, with a gradient of this weight, or what they are known by."""
    return weigh_gradient(policies, weight) if names is None else names


def weigh_gradient(tree, weight: float):
    """Returns the same values, whose gradient is multiplied by `weight`."""
    if weight == 1.0:
        return tree
    if weight == 0.0:
        return jax.lax.stop_gradient(tree)
    return jax.tree.map(lambda leaf: weight * leaf + (1 - weight) * jax.lax.stop_gradient(leaf), tree)


def actor_loss(
    policy: Policy, code: Float[Array, " code"], head: Head, obs: Float[Array, "batch obs"]
) -> Float[Array, ""]:
    """Returns -mean_b Q(pi, s_b, pi(s_b)): minus, since the optimiser descends and the actor must climb.

    Its gradient in the policy, of which `code` is a function too, is equation (2) for a
    deterministic policy: the first term goes through the action, the second through the code.
    """
    act = vmap(policy)(obs)
    return -jnp.mean(vmap(lambda s, a: head(code, s, a))(obs, act))


def actor_gradients(
    policies: Policy,
    critics: FunctionalCritic,
    obs: Float[Array, "batch obs"],
    second_term: float = 1.0,
    pairing: Pairing = "fixed",
    names: Policy | None = None,
) -> tuple[Float[Array, " actors"], Policy]:
    """Returns each actor's loss and its gradient (lines 19-22), by the critic with its index or by the mean of all.

    `second_term` weighs the gradient through the policy input; there is none where critics know actors by `names`.
    """

    def by_mean(policies: Policy, seen: Policy) -> Float[Array, " actors"]:
        def by_one(encoder, head):
            return vmap(actor_loss, in_axes=(0, 0, None, None))(policies, kernels.codes(encoder, seen), head, obs)

        encoder_axis = None if critics.shared else 0
        return vmap(by_one, in_axes=(encoder_axis, 0))(critics.encoder, critics.head).mean(axis=0)

    def losses(policies: Policy) -> tuple[Float[Array, ""], Float[Array, " actors"]]:
        seen = seen_as(policies, names, second_term)
        if pairing == "mean":
            found = by_mean(policies, seen)
        else:
            found = vmap(actor_loss, in_axes=(0, 0, 0, None))(policies, own_codes(critics, seen), critics.head, obs)
        # Losses have nothing in common: in the gradient of their sum each actor gets that of its own.
        return found.sum(), found

    (_, found), grads = jax.value_and_grad(losses, has_aux=True)(policies)
    return found, grads
