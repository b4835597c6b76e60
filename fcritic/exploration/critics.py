"""Critics that are linear in a code of the policy, one table of weights per state and action.

Q_i(pi, s, a) = W_i[s, a] . psi_i(pi), the shape of eq. (11), `eq:func_q_nn`: psi_i is the actor encoder, W_i[s, a]
the code of the pair, and their joint encoder a product. A standard critic is the same with the code 1. Both are
exact in states and actions, so that what is compared is how they treat the policy.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fcritic.theory.linear_algebra import inverse


class Encoder(eqx.Module):
    """psi(pi): a constant and random smooth features of the policy, of length one together.

    The features are those of a Gaussian kernel: policies whose mean squared difference is well below 1/4 have
    similar codes. They are drawn once for each critic and not trained, so fits have a closed form.
    """

    directions: Float[Array, "features inputs"]
    phases: Float[Array, " features"]

    def __init__(self, inputs: int, features: int, *, key: PRNGKeyArray):
        """`inputs` is the number of states; 0 features make a standard critic."""
        keys = jax.random.split(key)
        self.directions = jax.random.normal(keys[0], (features, inputs)) * 2 / inputs**0.5
        self.phases = jax.random.uniform(keys[1], (features,), maxval=2 * jnp.pi)

    def __call__(self, policy: Float[Array, " inputs"]) -> Float[Array, " code"]:
        """The code, the first number of which is the constant."""
        waves = jnp.cos(self.directions @ policy + self.phases)
        if not waves.shape[0]:
            return jnp.ones(1)
        return jnp.concatenate([jnp.ones(1), waves * (2 / waves.shape[0]) ** 0.5]) * 0.5**0.5


class Critic(eqx.Module):
    """One member: its encoder, its weights, and the weights that it began with, which are its prior."""

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
        """First values are N(0, scale^2). They differ between policies if there are features and `policy_prior`."""
        keys = jax.random.split(key)
        self.encoder = Encoder(layers * states, features, key=keys[0])
        first = scale * jax.random.normal(keys[1], (features + 1, layers, states, 2))
        if features and not policy_prior:
            first = first.at[0].multiply(2**0.5).at[1:].set(0.0)  # the constant of a code is sqrt(1/2)
        self.first = first
        self.weights = self.first

    def __call__(self, policy: Float[Array, "layers states"]) -> Float[Array, "layers states 2"]:
        """Q(pi, ., .)."""
        return combined(self.encoder(policy.ravel()), self.weights)

    def prior(self, policy: Float[Array, "layers states"]) -> Float[Array, "layers states 2"]:
        """What the member believed of this policy before any data."""
        return combined(self.encoder(policy.ravel()), self.first)


def combined(
    code: Float[Array, " code"], weights: Float[Array, "code layers states 2"]
) -> Float[Array, "layers states 2"]:
    """psi . W for every pair, as a product with a matrix: its gradient is then one as well, which is faster."""
    return (code @ weights.reshape(len(code), -1)).reshape(weights.shape[1:])


def move(
    critic: Critic,
    policies: Float[Array, "policies layers states"],
    change: Float[Array, "policies layers states 2"],
    ridge: float,
) -> Critic:
    """The critic whose values at these policies differ by `change`, by a small change of weights.

    dW[s, a] = Psi^T (Psi Psi^T + ridge)^-1 change[s, a]: without a ridge an exact fit, the inner loop of an
    evaluation run to its end. Two actors may be alike: a ridge then keeps the slope between them small.
    """
    codes = jax.vmap(lambda policy: critic.encoder(policy.ravel()))(policies)
    gram = codes @ codes.T + ridge * jnp.eye(len(codes))
    step = jnp.tensordot(codes.T @ inverse(gram), change, 1)
    return eqx.tree_at(lambda each: each.weights, critic, critic.weights + step)
