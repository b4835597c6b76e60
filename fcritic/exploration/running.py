"""Ensembles at work: an episode, its updates, the next episode; all seeds in one compiled program."""

from collections.abc import Iterator
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
import numpy as np

from fcritic.envs.exact import Task
from fcritic.exploration.ensembles import Counts, Ensemble, State, Variant, begin, policies_of
from fcritic.exploration.episodes import GOOD_SHARE, History, first_solved
from fcritic.exploration.learning import Rules, learn
from fcritic.exploration.planning import optimal_return

CHUNK = 50
"""Episodes in one call of the compiled program, and between two looks at whether the task is solved."""


class World(eqx.Module):
    """A task for compiled programs. Learners see its rules alone."""

    rules: Rules
    successors: Int[Array, "states next"]
    P: Float[Array, "layers states 2 next"]
    reward: Float[Array, "layers states 2"]
    noise: Float[Array, "layers states 2"]
    right: Int[Array, "layers states"]
    best: Float[Array, ""]
    """V* of the first state."""
    slips: Bool[Array, ""]
    """Whether steps may fail, which decides what a bad episode is."""
    horizon: int = eqx.field(static=True)


class Steps(eqx.Module):
    """One episode."""

    layers: Int[Array, " horizon"]
    states: Int[Array, " horizon"]
    actions: Int[Array, " horizon"]
    outcomes: Int[Array, " horizon"]
    rewards: Float[Array, " horizon"]


def world_of(task: Task) -> World:
    """The same task in JAX's arrays."""
    rules = Rules(task.shifts, task.gamma, task.ends)
    tables = (jnp.asarray(each, jnp.float32) for each in (task.P, task.reward, task.noise))
    best = jnp.asarray(optimal_return(task), jnp.float32)
    facts = (jnp.asarray(task.right), best, jnp.asarray(task.slips))
    return World(rules, jnp.asarray(task.successors), *tables, *facts, task.horizon)


def play(world: World, policy: Float[Array, "layers states"], key: PRNGKeyArray) -> Steps:
    """An episode of one policy, the probability of action 1."""

    act_keys, next_keys, noise_keys = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(
        jax.random.split(key, world.horizon)
    )
    # All chance is drawn before the loop over time, where every small operation costs a launch of its own.
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
    """J(pi) from the first state over the horizon."""

    def backup(values: Float[Array, " states"], time: Int[Array, ""]) -> tuple:
        layer = time % policy.shape[0]
        q = world.reward[layer] + jnp.einsum("sak,sk->sa", world.P[layer], values[world.successors])
        return q[:, 0] + policy[layer] * (q[:, 1] - q[:, 0]), None

    times = jnp.arange(world.horizon)[::-1]
    return jax.lax.scan(backup, jnp.zeros(policy.shape[1]), times)[0][0]


def remember(state: State, steps: Steps, mask: Float[Array, ""], key: PRNGKeyArray) -> State:
    """Line 3 of `alg-ensemble-algorithm`. With masks a member counts a transition twice or not at all."""
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
    """The policy of an episode: one member's, or their mean, which is a new member at each step."""
    chosen = policies[jax.random.randint(key, (), 0, len(policies))]
    return jnp.where(per_step > 0, policies.mean(axis=0), chosen)


def episode(
    ensemble: Ensemble, world: World, options: Variant, state: State, key: PRNGKeyArray
) -> tuple[State, tuple[Float[Array, ""], Bool[Array, ""]]]:
    """Plays one episode and learns from all data; returns its regret and whether DeepSea calls it bad."""
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
    """Regret and bad episodes of each seed, and the last states. Seeds differ in all, also in first weights."""
    chunks = _chunks(task, ensemble, options, episodes, _seed_keys(seeds))
    regrets, bads, states = zip(*chunks, strict=True)
    kept = slice(0, episodes)
    history = History(np.concatenate(regrets, axis=1)[:, kept], np.concatenate(bads, axis=1)[:, kept])
    return history, states[-1]


def episodes_to_solve(
    task: Task, ensemble: Ensemble, options: Variant, episodes: int, seeds: int
) -> Float[np.ndarray, " seeds"]:
    """The first solved episode of each seed, infinite where `episodes` were not enough.

    The seeds are those of `run`, one after the other: large tables gain nothing side by side, and each ends when it
    has solved the task.
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
    """Regrets[seeds, CHUNK], bad episodes and states, part by part."""
    world = world_of(task)
    shape = (task.layers, task.states, task.P.shape[-1])
    first_keys, chunk_keys = jax.vmap(jax.random.split, out_axes=1)(seed_keys)
    states = _begin_all(ensemble, shape, options, first_keys)
    length = min(CHUNK, episodes)
    for index in range(-(-episodes // length)):
        keys = jax.vmap(lambda key, index=index: jax.random.fold_in(key, index))(chunk_keys)
        states, (regret, bad) = _chunk(ensemble, world, options, states, keys, length)
        yield np.asarray(regret), np.asarray(bad), states
