"""Ensembles of critics in one code: standard with a shared or with independent targets, with actors, functional.

Written for one seed and mapped over seeds. Data are weighted counts for each member, so a sweep is a step of fitted
evaluation on the whole replay, and only the order of visits is lost.
"""

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
import optax

from fcritic.exploration.critics import Critic

Kind = Literal["shared", "independent", "actors", "functional"]
KINDS: dict[Kind, str] = {
    "shared": "standard critics, one target for all: the mean critic's best action",
    "independent": "standard critics, each with its own target and greedy policy (bootstrapped)",
    "actors": "standard critics, each with its own target and actor",
    "functional": "functional critics Q(pi, s, a), each with its own target and actor (Algorithm 4)",
}


@dataclasses.dataclass(frozen=True)
class Ensemble:
    """What is the same for all variants of one kind; it decides what is compiled."""

    kind: Kind
    members: int = 10
    """n, as in the paper."""
    features: int = 16
    """Of a policy's code, for functional critics."""
    cycles: int = 6
    """Actor updates after each episode."""
    critic_steps: int = 3
    """G, sweeps of the critics for each actor update, as in the paper."""
    actor_rate: float = 0.3
    """Adam's learning rate for the logits of actors."""
    actor_scale: float = 1.0
    """Standard deviation of first logits."""
    actor_limit: float = 5.0
    """Largest logit, so a probability of 0.993: beyond it an actor is as good as fixed and cannot turn back."""
    ridge: float = 1e-4
    """Of a functional critic's fit over policies."""
    second_term: bool = True
    """Whether the gradient of an actor has the term that comes from the critic's first input."""
    policy_prior: bool = True
    """Whether first values of a functional critic depend on the policy, or on state and action alone."""
    evaluated: Literal["all", "own"] = "all"
    """Policies that a functional critic is trained on: all actors (Algorithm 5) or its own (Algorithm 4)."""
    neighbours: int = 0
    """Policies near its own actor that a functional critic is trained on besides; they are never run."""
    nearness: float = 0.5
    """Standard deviation of a neighbour's logits around the actor's, in states that were visited."""

    @property
    def acts(self) -> bool:
        """Whether members have actors; else they are greedy."""
        return self.kind in ("actors", "functional")


class Variant(eqx.Module):
    """Options as numbers, so that all variants of an ensemble share one compiled program."""

    prior_scale: Float[Array, ""]
    """Standard deviation of first values."""
    prior_weight: Float[Array, ""]
    """lambda, how many visits first values count for; at 0 a pair forgets them at its first visit."""
    mask: Float[Array, ""]
    """1 for bootstrap masks: a member sees each transition twice or not at all; 0: all see all once."""
    per_step: Float[Array, ""]
    """1 draws the member that acts at each step, 0 for each episode."""


PriorKind = Literal["none", "prior", "anchored"]
FIRST_SCALE = 0.01
"""First values without a prior: about what the deep critics' last layer, U(+-0.003) on 256 neurons, gives."""


def variant(prior: PriorKind, mask: bool = False, per_step: bool = False, scale: float = 1.0) -> Variant:
    """The numbers of an option set. `scale` is the prior's; 1 is the standard deviation of RLSVI's first draws too.

    **Arguments:** `prior` is `none` (first weights alone), `prior` (a randomised prior function: larger first
    values, which data replace) or `anchored` (the fit is pulled to it with the weight of one visit, as in Bayesian
    regression).
    """
    numbers = (FIRST_SCALE if prior == "none" else scale, prior == "anchored", mask, per_step)
    return Variant(*(jnp.asarray(number, jnp.float32) for number in numbers))


class Counts(eqx.Module):
    """What each member has seen: weighted visits by next state, and sums of rewards."""

    transitions: Float[Array, "members layers states 2 next"]
    rewards: Float[Array, "members layers states 2"]


class State(eqx.Module):
    """Critics, actors and data of one seed."""

    critics: Critic
    """Stacked along members."""
    logits: Float[Array, "members layers states"]
    """Actors: the log odds of action 1."""
    moments: optax.OptState
    counts: Counts
    visits: Float[Array, "layers states"]
    """Of all transitions, whatever the masks: where actors are updated."""


def begin(ensemble: Ensemble, shape: tuple[int, int, int], options: Variant, key: PRNGKeyArray) -> State:
    """Line 1 of `alg-ensemble-algorithm`. `shape` is layers, states, next states."""
    layers, states, following = shape
    n = ensemble.members
    features = ensemble.features if ensemble.kind == "functional" else 0
    critic_key, actor_key = jax.random.split(key)
    sizes = (layers, states, features)
    critics = jax.vmap(lambda key: Critic(*sizes, options.prior_scale, ensemble.policy_prior, key=key))(
        jax.random.split(critic_key, n)
    )
    logits = ensemble.actor_scale * jax.random.normal(actor_key, (n, layers, states))
    counts = Counts(jnp.zeros((n, layers, states, 2, following)), jnp.zeros((n, layers, states, 2)))
    return State(critics, logits, optimiser(ensemble).init(logits), counts, jnp.zeros((layers, states)))


def policies_of(ensemble: Ensemble, state: State) -> Float[Array, "members layers states"]:
    """pi_i: the probability of action 1, of an actor or of the greedy policy."""
    if ensemble.acts:
        return jax.nn.sigmoid(state.logits)
    q = jax.vmap(lambda critic, policy: critic(policy))(state.critics, state.logits)
    return (q[..., 1] > q[..., 0]).astype(jnp.float32)


def optimiser(ensemble: Ensemble) -> optax.GradientTransformation:
    """Of the actors."""
    return optax.adam(ensemble.actor_rate, eps=1e-12)  # gradients of rarely visited states are tiny


def trained_on(ensemble: Ensemble, state: State) -> Float[Array, "members policies layers states"]:
    """The policies that each critic evaluates; a standard critic has one place for its only values."""
    pi = jax.nn.sigmoid(state.logits)
    if ensemble.kind == "functional" and ensemble.evaluated == "all":
        found = jnp.broadcast_to(pi[None], (len(pi), *pi.shape))
    else:
        found = pi[:, None]
    if ensemble.neighbours:
        found = jnp.concatenate([found, _near(ensemble, state)], axis=1)
    return found


def _near(ensemble: Ensemble, state: State) -> Float[Array, "members neighbours layers states"]:
    """New ones after each episode, the same offsets for every member."""
    key = jax.random.fold_in(jax.random.key(1), state.visits.sum().astype(jnp.int32))
    offsets = jax.random.normal(key, (ensemble.neighbours, *state.visits.shape)) * (state.visits > 0)[None]
    return jax.nn.sigmoid(state.logits[:, None] + ensemble.nearness * offsets[None])


def next_values(
    kind: Kind,
    q: Float[Array, "members policies layers states 2"],
    policies: Float[Array, "members policies layers states"],
) -> Float[Array, "members policies layers states"]:
    """V(s') inside the targets, which is all that tells the kinds apart."""
    if kind == "shared":
        return jnp.broadcast_to(q.mean(axis=0, keepdims=True), q.shape).max(axis=-1)
    if kind == "independent":
        return q.max(axis=-1)
    return q[..., 0] + policies * (q[..., 1] - q[..., 0])
