"""Ensembles at work: they play an episode, learn from all data, and play the next (Algorithms 4 and 5).

Critics learn by sweeps of fitted evaluation, actors by ascent. All seeds run in one compiled program.
"""

from collections.abc import Iterator
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
import numpy as np
import optax

from fcritic.envs.exact import Task
from fcritic.exploration.ensembles import (
    Counts,
    Critic,
    Ensemble,
    Kind,
    State,
    Variant,
    begin,
    combined,
    move,
    next_values,
    optimiser,
    policies_of,
    trained_on,
)
from fcritic.exploration.known import GOOD_SHARE, History, first_solved, optimal_return

# Updates

Values = Float[Array, "members policies layers states 2"]


class Rules(eqx.Module):
    """Facts of a task that every learner is given: possible moves, discount, whether its last layer is terminal."""

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
    """Returns values after one step of evaluation on all data, with the last values as the target.

    Q(pi, s, a) <- (sum over visits of r + gamma V(pi, s') + lambda p(pi, s, a)) / (n + lambda), a regression on the
    targets with the prior p. Pairs that were never visited keep their values.
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
    """Returns the sum of V(s') over the transitions of each pair."""
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
    """Returns critics after G sweeps at their training policies and a fit (line 4 of `alg-ensemble-algorithm`)."""
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
    """Returns critics after some sweeps at given policies; their codes generalise to all others."""
    before = jax.vmap(lambda critic, each: jax.vmap(critic)(each))(critics, policies)
    prior = jax.vmap(lambda critic, each: jax.vmap(critic.prior)(each))(critics, policies)

    def step(q: Values, _: None) -> tuple[Values, None]:
        return sweep(ensemble.kind, rules, counts, prior_weight, prior, policies, q), None

    after, _ = jax.lax.scan(step, before, None, length=steps)
    # A standard critic has one value for all policies and needs no smoothness over them.
    ridge = ensemble.ridge if ensemble.kind == "functional" else 0.0
    return jax.vmap(lambda *each: move(*each, ridge))(critics, policies, after - before)


def objective(
    critic: Critic,
    logits: Float[Array, "layers states"],
    share: Float[Array, "layers states"],
    second_term: bool = True,
) -> Float[Array, ""]:
    """Returns J(pi; xi_i) = sum_s rho(s) sum_a pi(a|s) Q_i(pi, s, a), the objective of eq. (2).

    Its gradient has both terms or, without `second_term`, the first alone.
    """
    policy = jax.nn.sigmoid(logits)
    q = critic(policy if second_term else jax.lax.stop_gradient(policy))
    return jnp.sum(share * (q[..., 0] + policy * (q[..., 1] - q[..., 0])))


def slope(
    critic: Critic,
    logits: Float[Array, "layers states"],
    share: Float[Array, "layers states"],
    second_term: bool = True,
) -> Float[Array, "layers states"]:
    """Returns the gradient of `objective`, four times as fast as automatic differentiation on large tables.

    The first term is rho(s) (Q(pi, s, 1) - Q(pi, s, 0)), the second the change of the code, psi'(pi) W m with
    m = rho(s) pi(a|s).
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
    """Moves actor i up critic i on the visited states (lines 5 and 6 of `alg-ensemble-algorithm`)."""
    share = state.visits / jnp.maximum(state.visits.sum(), 1)
    slopes = jax.vmap(lambda critic, logits: slope(critic, logits, share, ensemble.second_term))(
        state.critics, state.logits
    )
    step, moments = optimiser(ensemble).update(-slopes, state.moments)
    limit = ensemble.actor_limit
    logits = jnp.clip(optax.apply_updates(state.logits, step), -limit, limit)
    return eqx.tree_at(lambda each: (each.logits, each.moments), state, (logits, moments))


def learn(ensemble: Ensemble, rules: Rules, prior_weight: Float[Array, ""], state: State) -> State:
    """Returns the state after all updates of an episode."""

    def cycle(state: State, _: None) -> tuple[State, None]:
        critics = critic_update(ensemble, rules, prior_weight, state)
        state = eqx.tree_at(lambda each: each.critics, state, critics)
        return (actor_update(ensemble, state) if ensemble.acts else state), None

    return jax.lax.scan(cycle, state, None, length=ensemble.cycles)[0]


# Episodes

CHUNK = 50
"""Episodes in one call of the compiled program, after which it is checked whether the task is solved."""


class World(eqx.Module):
    """A task for compiled programs. Learners only see its rules."""

    rules: Rules
    successors: Int[Array, "states next"]
    P: Float[Array, "layers states 2 next"]
    reward: Float[Array, "layers states 2"]
    noise: Float[Array, "layers states 2"]
    right: Int[Array, "layers states"]
    best: Float[Array, ""]
    """V* of the first state."""
    slips: Bool[Array, ""]
    """Whether steps may fail, which decides the rule for bad episodes."""
    horizon: int = eqx.field(static=True)


class Steps(eqx.Module):
    """One episode."""

    layers: Int[Array, " horizon"]
    states: Int[Array, " horizon"]
    actions: Int[Array, " horizon"]
    outcomes: Int[Array, " horizon"]
    rewards: Float[Array, " horizon"]


def world_of(task: Task) -> World:
    """Returns the same task in JAX arrays."""
    rules = Rules(task.shifts, task.gamma, task.ends)
    tables = (jnp.asarray(each, jnp.float32) for each in (task.P, task.reward, task.noise))
    best = jnp.asarray(optimal_return(task), jnp.float32)
    facts = (jnp.asarray(task.right), best, jnp.asarray(task.slips))
    return World(rules, jnp.asarray(task.successors), *tables, *facts, task.horizon)


def play(world: World, policy: Float[Array, "layers states"], key: PRNGKeyArray) -> Steps:
    """Plays an episode of one policy, the probability of action 1."""
    act_keys, next_keys, noise_keys = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(
        jax.random.split(key, world.horizon)
    )
    # All random numbers are drawn before the loop over time, where every small operation costs a launch.
    chances = jax.vmap(jax.random.uniform)(act_keys)
    gumbels = jax.vmap(lambda key: jax.random.gumbel(key, (world.P.shape[-1],)))(next_keys)
    noises = jax.vmap(jax.random.normal)(noise_keys)

    def step(state: Int[Array, ""], time: tuple) -> tuple[Int[Array, ""], Steps]:
        layer, chance, gumbel, noise = time
        action = (chance < policy[layer, state]).astype(jnp.int32)
        outcome = jnp.argmax(gumbel + jnp.log(world.P[layer, state, action]))
        reward = world.reward[layer, state, action] + world.noise[layer, state, action] * noise
        return world.successors[state, outcome], Steps(layer, state, action, outcome, reward)

    layers = jnp.arange(world.horizon) % policy.shape[0]
    return jax.lax.scan(step, jnp.asarray(0), (layers, chances, gumbels, noises))[1]


def expected_return(world: World, policy: Float[Array, "layers states"]) -> Float[Array, ""]:
    """Returns J(pi) from the first state over the horizon."""

    def backup(values: Float[Array, " states"], time: Int[Array, ""]) -> tuple:
        layer = time % policy.shape[0]
        q = world.reward[layer] + jnp.einsum("sak,sk->sa", world.P[layer], values[world.successors])
        return q[:, 0] + policy[layer] * (q[:, 1] - q[:, 0]), None

    times = jnp.arange(world.horizon)[::-1]
    return jax.lax.scan(backup, jnp.zeros(policy.shape[1]), times)[0][0]


def remember(state: State, steps: Steps, mask: Float[Array, ""], key: PRNGKeyArray) -> State:
    """Adds an episode to the data, line 3 of `alg-ensemble-algorithm`; masked members count it twice or never."""
    n = len(state.logits)
    coins = 2.0 * jax.random.bernoulli(key, 0.5, (n, len(steps.states)))
    weight = jnp.where(mask > 0, coins, 1.0)
    pairs = (slice(None), steps.layers, steps.states, steps.actions)
    counts = Counts(
        state.counts.transitions.at[(*pairs, steps.outcomes)].add(weight),
        state.counts.rewards.at[pairs].add(weight * steps.rewards[None]),
    )
    visits = state.visits.at[steps.layers, steps.states].add(1.0)
    return eqx.tree_at(lambda each: (each.counts, each.visits), state, (counts, visits))


def behaviour(
    policies: Float[Array, "members layers states"], per_step: Float[Array, ""], key: PRNGKeyArray
) -> Float[Array, "layers states"]:
    """Returns the policy of an episode: one member's, or their mean, which draws a new member at each step."""
    chosen = policies[jax.random.randint(key, (), 0, len(policies))]
    return jnp.where(per_step > 0, policies.mean(axis=0), chosen)


def episode(
    ensemble: Ensemble, world: World, options: Variant, state: State, key: PRNGKeyArray
) -> tuple[State, tuple[Float[Array, ""], Bool[Array, ""]]]:
    """Plays one episode and learns from all data; returns the state, the regret and whether the episode is bad."""
    pick_key, play_key, mask_key = jax.random.split(key, 3)
    policy = behaviour(policies_of(ensemble, state), options.per_step, pick_key)
    steps = play(world, policy, play_key)
    left = steps.actions != world.right[steps.layers, steps.states]
    strayed = jnp.any(left & (steps.states == jnp.arange(world.horizon)))
    returned = expected_return(world, policy)
    bad = jnp.where(world.slips, returned < GOOD_SHARE * world.best, strayed)
    state = remember(state, steps, options.mask, mask_key)
    state = learn(ensemble, world.rules, options.prior_weight, state)
    return state, (world.best - returned, bad)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _begin_all(ensemble: Ensemble, shape: tuple[int, int, int], options: Variant, keys: Array) -> State:
    return jax.vmap(lambda key: begin(ensemble, shape, options, key))(keys)


@functools.partial(jax.jit, static_argnums=(0, 5))
def _chunk(ensemble: Ensemble, world: World, options: Variant, states: State, keys: Array, length: int) -> tuple:
    def one_seed(state: State, key: PRNGKeyArray) -> tuple:
        step = functools.partial(episode, ensemble, world, options)
        return jax.lax.scan(step, state, jax.random.split(key, length))

    return jax.vmap(one_seed)(states, keys)


def run(task: Task, ensemble: Ensemble, options: Variant, episodes: int, seeds: int) -> tuple[History, State]:
    """Returns the history and the last states of all seeds, which differ in everything random."""
    chunks = _chunks(task, ensemble, options, episodes, _seed_keys(seeds))
    regrets, bads, states = zip(*chunks, strict=True)
    kept = slice(0, episodes)
    history = History(np.concatenate(regrets, axis=1)[:, kept], np.concatenate(bads, axis=1)[:, kept])
    return history, states[-1]


def episodes_to_solve(
    task: Task, ensemble: Ensemble, options: Variant, episodes: int, seeds: int
) -> Float[np.ndarray, " seeds"]:
    """Returns the first solved episode of each seed, infinite where `episodes` were too few.

    The seeds are those of `run`, one after the other: large tables gain nothing from running side by side, and each
    seed stops once it has solved the task.
    """
    found = []
    for key in _seed_keys(seeds):
        bad = np.empty((1, 0), bool)
        for _, more, _ in _chunks(task, ensemble, options, episodes, key[None]):
            bad = np.concatenate([bad, more], axis=1)[:, :episodes]
            if np.isfinite(first_solved(bad)[0]):
                break
        found.append(first_solved(bad)[0])
    return np.array(found)


def _seed_keys(seeds: int) -> Array:
    return jax.random.split(jax.random.key(0), seeds)


def _chunks(task: Task, ensemble: Ensemble, options: Variant, episodes: int, seed_keys: Array) -> Iterator[tuple]:
    """Yields regrets[seeds, CHUNK], bad episodes and states, chunk by chunk."""
    world = world_of(task)
    shape = (task.layers, task.states, task.P.shape[-1])
    first_keys, chunk_keys = jax.vmap(jax.random.split, out_axes=1)(seed_keys)
    states = _begin_all(ensemble, shape, options, first_keys)
    length = min(CHUNK, episodes)
    for index in range(-(-episodes // length)):
        keys = jax.vmap(lambda key, index=index: jax.random.fold_in(key, index))(chunk_keys)
        states, (regret, bad) = _chunk(ensemble, world, options, states, keys, length)
        yield np.asarray(regret), np.asarray(bad), states
