"""How ensembles learn: sweeps of fitted evaluation for the critics, ascent for the actors (Algorithms 4 and 5)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import optax

from fcritic.exploration.critics import Critic, combined, move
from fcritic.exploration.ensembles import Counts, Ensemble, Kind, State, next_values, optimiser, trained_on

Values = Float[Array, "members policies layers states 2"]


class Rules(eqx.Module):
    """What every learner knows of a task: how far steps lead, discount, and whether its last layer ends it."""

    shifts: tuple[int, ...] | None = eqx.field(static=True)
    gamma: float = eqx.field(static=True)
    ends: bool = eqx.field(static=True)


def sweep(
    kind: Kind,
    rules: Rules,
    counts: Counts,
    prior_weight: Float[Array, ""],
    prior: Values,
    policies: Float[Array, "members policies layers states"],
    q: Values,
) -> Values:
    """One step of evaluation on all data, with the last values as the target.

    Q(pi, s, a) <- (sum over visits of r + gamma V(pi, s') + lambda p(pi, s, a)) / (n + lambda), the regression of
    the targets that is pulled to the prior p. Pairs that were never visited keep their values.
    """
    after = next_values(kind, q, policies)
    if rules.ends:
        after = jnp.concatenate([after[:, :, 1:], jnp.zeros_like(after[:, :, :1])], axis=2)
    following = summed(rules, counts.transitions, after)
    visits = counts.transitions.sum(axis=-1)[:, None]
    total = visits + prior_weight
    fitted = (counts.rewards[:, None] + rules.gamma * following + prior_weight * prior) / jnp.maximum(total, 1e-6)
    return jnp.where(jnp.broadcast_to(total > 0, q.shape), fitted, q)


def summed(
    rules: Rules,
    transitions: Float[Array, "members layers states 2 next"],
    after: Float[Array, "members policies layers states"],
) -> Values:
    """The sum of V(s') over the transitions of each pair."""
    if rules.shifts is None:
        return jnp.einsum("nlsak,nplk->nplsa", transitions, after)
    total = jnp.zeros((*after.shape, 2))
    for index, shift in enumerate(rules.shifts):
        # Slices, because an index array is many times slower here.
        edge = [after[..., :1]] * max(-shift, 0), [after[..., -1:]] * max(shift, 0)
        inner = after[..., max(shift, 0) : after.shape[-1] + min(shift, 0)]
        moved = jnp.concatenate([*edge[0], inner, *edge[1]], axis=-1)
        total = total + transitions[:, None, ..., index] * moved[..., None]
    return total


def critic_update(ensemble: Ensemble, rules: Rules, prior_weight: Float[Array, ""], state: State) -> Critic:
    """G sweeps at the policies that critics are trained on, then one fit (line 4 of `alg-ensemble-algorithm`)."""
    policies = trained_on(ensemble, state)
    return fit(ensemble, rules, state.counts, prior_weight, state.critics, policies, ensemble.critic_steps)


def fit(
    ensemble: Ensemble,
    rules: Rules,
    counts: Counts,
    prior_weight: Float[Array, ""],
    critics: Critic,
    policies: Float[Array, "members policies layers states"],
    steps: int,
) -> Critic:
    """Critics after some sweeps at given policies; between the policies, and beyond, their codes generalise."""
    before = jax.vmap(lambda critic, each: jax.vmap(critic)(each))(critics, policies)
    prior = jax.vmap(lambda critic, each: jax.vmap(critic.prior)(each))(critics, policies)

    def step(q: Values, _: None) -> tuple[Values, None]:
        return sweep(ensemble.kind, rules, counts, prior_weight, prior, policies, q), None

    after, _ = jax.lax.scan(step, before, None, length=steps)
    # A standard critic has one value for all policies, so there is nothing to be smooth about.
    ridge = ensemble.ridge if ensemble.kind == "functional" else 0.0
    return jax.vmap(lambda *each: move(*each, ridge))(critics, policies, after - before)


def objective(
    critic: Critic,
    logits: Float[Array, "layers states"],
    share: Float[Array, "layers states"],
    second_term: bool = True,
) -> Float[Array, ""]:
    """J(pi; xi_i) = sum_s rho(s) sum_a pi(a|s) Q_i(pi, s, a), eq. (2): its gradient has both terms or one."""
    policy = jax.nn.sigmoid(logits)
    q = critic(policy if second_term else jax.lax.stop_gradient(policy))
    return jnp.sum(share * (q[..., 0] + policy * (q[..., 1] - q[..., 0])))


def slope(
    critic: Critic,
    logits: Float[Array, "layers states"],
    share: Float[Array, "layers states"],
    second_term: bool = True,
) -> Float[Array, "layers states"]:
    """The gradient of `objective`, term by term: four times as fast as what differentiation makes of large tables.

    First rho(s) (Q(pi, s, 1) - Q(pi, s, 0)), then the change of the code, psi'(pi) W m with m = rho(s) pi(a|s).
    """
    policy = jax.nn.sigmoid(logits)
    code, pull = jax.vjp(lambda policy: critic.encoder(policy.ravel()), policy)
    q = combined(code, critic.weights)
    by_policy = share * (q[..., 1] - q[..., 0])
    if second_term:
        mass = share[..., None] * jnp.stack([1 - policy, policy], axis=-1)
        by_policy = by_policy + pull(critic.weights.reshape(len(code), -1) @ mass.ravel())[0]
    return policy * (1 - policy) * by_policy


def actor_update(ensemble: Ensemble, state: State) -> State:
    """Actor i climbs critic i on the visited states (lines 5 and 6 of `alg-ensemble-algorithm`)."""
    share = state.visits / jnp.maximum(state.visits.sum(), 1)
    slopes = jax.vmap(lambda critic, logits: slope(critic, logits, share, ensemble.second_term))(
        state.critics, state.logits
    )
    step, moments = optimiser(ensemble).update(-slopes, state.moments)
    limit = ensemble.actor_limit
    logits = jnp.clip(optax.apply_updates(state.logits, step), -limit, limit)
    return eqx.tree_at(lambda each: (each.logits, each.moments), state, (logits, moments))


def learn(ensemble: Ensemble, rules: Rules, prior_weight: Float[Array, ""], state: State) -> State:
    """All updates after an episode."""

    def cycle(state: State, _: None) -> tuple[State, None]:
        critics = critic_update(ensemble, rules, prior_weight, state)
        state = eqx.tree_at(lambda each: each.critics, state, critics)
        return (actor_update(ensemble, state) if ensemble.acts else state), None

    return jax.lax.scan(cycle, state, None, length=ensemble.cycles)[0]
