"""Ensembles of critics: standard with a shared or with independent targets, with actors, and functional.

A critic is linear in a code of the policy, with one table of weights per state and action:
Q_i(pi, s, a) = W_i[s, a] . psi_i(pi), the shape of eq. (11), `eq:func_q_nn`. psi_i is the actor encoder, W_i[s, a]
the code of the pair, and their joint encoder is a product. A standard critic has the code 1. Both are exact in
states and actions, so that they differ only in their treatment of the policy.

Ensembles are written for one seed and mapped over seeds. Data are weighted counts for each member, so a sweep is a
step of fitted evaluation on the whole replay; only the order of visits is lost.
"""

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
import optax

from fcritic.theory.mdp import inverse

# Critics


class Encoder(eqx.Module):
    """psi(pi), a constant and random smooth features of the policy; the code has length one.

    The features are those of a Gaussian kernel: policies whose mean squared difference is well below 1/4 have
    similar codes. Each critic draws them once and never trains them, so fits have a closed form.
    """

    directions: Float[Array, "features inputs"]
    phases: Float[Array, " features"]

    def __init__(self, inputs: int, features: int, *, key: PRNGKeyArray):
        """Draws the features. `inputs` is the number of states; 0 features make a standard critic."""
        keys = jax.random.split(key)
        self.directions = jax.random.normal(keys[0], (features, inputs)) * 2 / inputs**0.5
        self.phases = jax.random.uniform(keys[1], (features,), maxval=2 * jnp.pi)

    def __call__(self, policy: Float[Array, " inputs"]) -> Float[Array, " code"]:
        """Returns the code, whose first number is the constant."""
        waves = jnp.cos(self.directions @ policy + self.phases)
        if not waves.shape[0]:
            return jnp.ones(1)
        return jnp.concatenate([jnp.ones(1), waves * (2 / waves.shape[0]) ** 0.5]) * 0.5**0.5


class Critic(eqx.Module):
    """One member: its encoder, its weights, and its initial weights, which are its prior."""

    encoder: Encoder
    weights: Float[Array, "code layers states 2"]
    first: Float[Array, "code layers states 2"]

    def __init__(
        self,
        layers: int,
        states: int,
        features: int,
        scale: Float[Array, ""],
        policy_prior: bool = True,
        *,
        key: PRNGKeyArray,
    ):
        """Draws initial values from N(0, scale^2); they depend on the policy with features and `policy_prior`."""
        keys = jax.random.split(key)
        self.encoder = Encoder(layers * states, features, key=keys[0])
        first = scale * jax.random.normal(keys[1], (features + 1, layers, states, 2))
        if features and not policy_prior:
            first = first.at[0].multiply(2**0.5).at[1:].set(0.0)  # the constant of a code is sqrt(1/2)
        self.first = first
        self.weights = self.first

    def __call__(self, policy: Float[Array, "layers states"]) -> Float[Array, "layers states 2"]:
        """Returns Q(pi, ., .)."""
        return combined(self.encoder(policy.ravel()), self.weights)

    def prior(self, policy: Float[Array, "layers states"]) -> Float[Array, "layers states 2"]:
        """Returns the member's values of this policy before any data."""
        return combined(self.encoder(policy.ravel()), self.first)


def combined(
    code: Float[Array, " code"], weights: Float[Array, "code layers states 2"]
) -> Float[Array, "layers states 2"]:
    """Returns psi . W for every pair, as a matrix product, whose gradient is one as well and therefore faster."""
    return (code @ weights.reshape(len(code), -1)).reshape(weights.shape[1:])


def move(
    critic: Critic,
    policies: Float[Array, "policies layers states"],
    change: Float[Array, "policies layers states 2"],
    ridge: float,
) -> Critic:
    """Returns the critic whose values at these policies differ by `change`, after a small change of weights.

    dW[s, a] = Psi^T (Psi Psi^T + ridge)^-1 change[s, a]. Without a ridge it is an exact fit, an evaluation's inner
    loop run to convergence. A ridge keeps the slope between two similar actors small.
    """
    codes = jax.vmap(lambda policy: critic.encoder(policy.ravel()))(policies)
    gram = codes @ codes.T + ridge * jnp.eye(len(codes))
    step = jnp.tensordot(codes.T @ inverse(gram), change, 1)
    return eqx.tree_at(lambda each: each.weights, critic, critic.weights + step)


# Ensembles

Kind = Literal["shared", "independent", "actors", "functional"]
KINDS: dict[Kind, str] = {
    "shared": "standard critics, one target for all: the mean critic's best action",
    "independent": "standard critics, each with its own target and greedy policy (bootstrapped)",
    "actors": "standard critics, each with its own target and actor",
    "functional": "functional critics Q(pi, s, a), each with its own target and actor (Algorithm 4)",
}


@dataclasses.dataclass(frozen=True)
class Ensemble:
    """Options that all variants of one kind share; each set of them is compiled once."""

    kind: Kind
    members: int = 10
    """n, as in the paper."""
    features: int = 16
    """Features of a policy's code, for functional critics."""
    cycles: int = 6
    """Actor updates after each episode."""
    critic_steps: int = 3
    """G, sweeps of the critics for each actor update, as in the paper."""
    actor_rate: float = 0.3
    """Adam's learning rate for the logits of actors."""
    actor_scale: float = 1.0
    """Standard deviation of initial logits."""
    actor_limit: float = 5.0
    """Largest logit, a probability of 0.993. Beyond it gradients vanish and an actor cannot turn back."""
    ridge: float = 1e-4
    """Ridge of a functional critic's fit over policies."""
    second_term: bool = True
    """Whether an actor's gradient includes the derivative in the critic's first input, the policy."""
    policy_prior: bool = True
    """Whether a functional critic's initial values depend on the policy or on state and action alone."""
    evaluated: Literal["all", "own"] = "all"
    """Policies on which a functional critic is trained: all actors (Algorithm 5) or its own (Algorithm 4)."""
    neighbours: int = 0
    """Number of policies near its own actor on which a functional critic is also trained; they are never run."""
    nearness: float = 0.5
    """Standard deviation of a neighbour's logits around the actor's, in states that were visited."""

    @property
    def acts(self) -> bool:
        """Whether members have actors; otherwise they are greedy."""
        return self.kind in ("actors", "functional")


class Variant(eqx.Module):
    """Options as numbers, so that all variants of an ensemble share one compiled program."""

    prior_scale: Float[Array, ""]
    """Standard deviation of initial values."""
    prior_weight: Float[Array, ""]
    """lambda, the number of visits that initial values count for; at 0 the first visit replaces them."""
    mask: Float[Array, ""]
    """1 for bootstrap masks, where a member sees each transition twice or never; at 0 all see all once."""
    per_step: Float[Array, ""]
    """1 draws the acting member at each step, 0 for each episode."""


PriorKind = Literal["none", "prior", "anchored"]
FIRST_SCALE = 0.01
"""Scale of initial values without a prior, near that of deep critics' last layer, U(+-0.003) on 256 neurons."""


def variant(prior: PriorKind, mask: bool = False, per_step: bool = False, scale: float = 1.0) -> Variant:
    """Returns the numbers of an option set. `scale` is the prior's; 1 is also that of RLSVI's first draws.

    **Arguments:** `prior` is `none` (small initial weights), `prior` (a randomised prior function: larger initial
    values, which data replace) or `anchored` (a prior with the weight of one visit, as in Bayesian regression).
    """
    numbers = (FIRST_SCALE if prior == "none" else scale, prior == "anchored", mask, per_step)
    return Variant(*(jnp.asarray(number, jnp.float32) for number in numbers))


class Counts(eqx.Module):
    """The data of each member: weighted visits by next state, and sums of rewards."""

    transitions: Float[Array, "members layers states 2 next"]
    rewards: Float[Array, "members layers states 2"]


class State(eqx.Module):
    """Critics, actors and data of one seed."""

    critics: Critic
    """Critics, stacked along members."""
    logits: Float[Array, "members layers states"]
    """Actors: the log odds of action 1."""
    moments: optax.OptState
    counts: Counts
    visits: Float[Array, "layers states"]
    """Visits of all transitions, whatever the masks; they weight the states of actor updates."""


def begin(ensemble: Ensemble, shape: tuple[int, int, int], options: Variant, key: PRNGKeyArray) -> State:
    """Returns the state of line 1 of `alg-ensemble-algorithm`. `shape` is layers, states, next states."""
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
    """Returns pi_i, the probability of action 1 by an actor or by the greedy policy."""
    if ensemble.acts:
        return jax.nn.sigmoid(state.logits)
    q = jax.vmap(lambda critic, policy: critic(policy))(state.critics, state.logits)
    return (q[..., 1] > q[..., 0]).astype(jnp.float32)


def optimiser(ensemble: Ensemble) -> optax.GradientTransformation:
    """Returns the optimiser of the actors."""
    return optax.adam(ensemble.actor_rate, eps=1e-12)  # gradients of rarely visited states are tiny


def trained_on(ensemble: Ensemble, state: State) -> Float[Array, "members policies layers states"]:
    """Returns the policies that each critic evaluates; a standard critic has one, for its only values."""
    pi = jax.nn.sigmoid(state.logits)
    if ensemble.kind == "functional" and ensemble.evaluated == "all":
        found = jnp.broadcast_to(pi[None], (len(pi), *pi.shape))
    else:
        found = pi[:, None]
    if ensemble.neighbours:
        found = jnp.concatenate([found, _near(ensemble, state)], axis=1)
    return found


def _near(ensemble: Ensemble, state: State) -> Float[Array, "members neighbours layers states"]:
    """Draws neighbours anew after each episode, with the same offsets for every member."""
    key = jax.random.fold_in(jax.random.key(1), state.visits.sum().astype(jnp.int32))
    offsets = jax.random.normal(key, (ensemble.neighbours, *state.visits.shape)) * (state.visits > 0)[None]
    return jax.nn.sigmoid(state.logits[:, None] + ensemble.nearness * offsets[None])


def next_values(
    kind: Kind,
    q: Float[Array, "members policies layers states 2"],
    policies: Float[Array, "members policies layers states"],
) -> Float[Array, "members policies layers states"]:
    """Returns V(s') of the targets, the only difference between the kinds."""
    if kind == "shared":
        return jnp.broadcast_to(q.mean(axis=0, keepdims=True), q.shape).max(axis=-1)
    if kind == "independent":
        return q.max(axis=-1)
    return q[..., 0] + policies * (q[..., 1] - q[..., 0])
