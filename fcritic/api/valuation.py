"""The critics' values of any policy, and their gradient in the policy, for one seed and raw observations."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from fcritic.agents import critic_ensemble
from fcritic.agents.fac import FACState
from fcritic.agents.losses import encode_all, weigh_gradient
from fcritic.networks.critics import FunctionalCritic, NamesAlone, StateActionCritic
from fcritic.networks.policies import Policy
from fcritic.training.replay import Normalizer
from fcritic.training.sight import Sight

FAR = 0.25
"""The farthest that a trusted policy acts from the nearest actor, root mean square, in half ranges of actions."""


class Trust(NamedTuple):
    """Whether critics can judge a policy; the mark is that of a ranking (`fcritic.Evaluator`)."""

    mark: bool
    distance: float
    """Of its actions from those of the nearest actor, in half ranges; the mean over states."""
    reason: str


def trust(act: np.ndarray, actors: np.ndarray) -> Trust:
    """From its actions (states, act) and the actors' (actors, states, act) at the same states."""
    distance = float(np.sqrt(((actors - act[None]) ** 2).mean(axis=-1)).mean(axis=1).min())
    if distance <= FAR:
        return Trust(True, distance, "it acts nearly as the training's actors do")
    return Trust(False, distance, f"it acts far from all actors of the training: {distance:.2f}, above {FAR}")


Critics = FunctionalCritic | StateActionCritic


def critics_of(state: Any) -> Critics:
    """Returns the online critics of one seed's agent, with their priors where they have some."""
    if not isinstance(state, FACState):
        return state.critics.net
    return state.valued_by if state.names is None else FunctionalCritic(NamesAlone(), state.valued_by.head)


@eqx.filter_jit
def actions(
    policy: Policy, normalizer: Normalizer | None, obs: Float[Array, "batch obs"]
) -> Float[Array, "batch act"]:
    """The actions of a policy, in [-1, 1], at raw observations."""
    return vmap(policy)(obs if normalizer is None else normalizer(obs))


@eqx.filter_jit
def values(
    critics: Critics,
    sight: Sight,
    policy: Policy,
    obs: Float[Array, "batch obs"],
    act: Float[Array, "batch act"] | None = None,
    second_term: float = 1.0,
) -> Float[Array, "critics batch"]:
    """Q_i(pi, s_b, a_b) of every critic, at the policy's own actions where none are given.

    `second_term` weighs the gradient through the policy input, as in `fcritic.agents.losses.actor_loss`. Plain
    critics do not see the policy: theirs is the value of its action, then of what they were trained on.
    """
    seen, policy = sight(obs), sight.view(policy)
    act = vmap(policy)(seen) if act is None else act
    if isinstance(critics, StateActionCritic):
        return critic_ensemble.values(critics, seen, act)
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], weigh_gradient(policy, second_term))
    codes = encode_all(critics, one)[:, 0]
    return vmap(lambda head, code: vmap(lambda o, a: head(code, o, a))(seen, act))(critics.head, codes)


@eqx.filter_jit
def gradient(
    critics: Critics,
    sight: Sight,
    policy: Policy,
    obs: Float[Array, "batch obs"],
    critic: int | None,
    second_term: float,
) -> Any:
    """The slope in the policy of the mean over states of Q(pi, s, pi(s)), by one critic or by the mean of all."""

    def objective(policy: Policy) -> Float[Array, ""]:
        means = values(critics, sight, policy, obs, None, second_term).mean(axis=1)
        return means.mean() if critic is None else means[critic]

    return eqx.filter_grad(objective)(policy)
