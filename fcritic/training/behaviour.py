"""Measures at each evaluation: diversity of actors, disagreement of critics, coverage of states.

Everything is computed from the state of a training as it stands, so a continued run reports the same.
"""

from functools import partial
from typing import Any

import jax
from jax import lax, vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, UInt32
import numpy as np

from fcritic import randomness
from fcritic.agents.actor_trust import trust_of_actors
from fcritic.agents.fac import FAC
from fcritic.training import replay
from fcritic.training.device import SEED_AXES, Learning, TrainState, looked_at
from fcritic.types import EnvSpec, Metrics

STATES = 256
"""States from the replay on which actors and critics are compared."""
AT_BOUND = 0.99
"""Beyond this a tanh passes less than 2 % of a gradient."""
SMALLEST = 2.0**-7
"""Numbers of an observation that are nearer to zero than this count as zero."""

_STREAM = 2**31  # far from the iterations, which number the streams of training


def behaviour(learning: Learning, state: TrainState, frame: int) -> list[dict[str, Any]]:
    """Returns a row for each seed; none while the replay is empty."""
    written = int(state.replay.written)
    if not written:
        return []
    measured = jax.device_get(_compare(learning, state, np.uint32(frame % _STREAM)))
    filled = min(written, learning.capacity)
    places = cells(state.replay.rows, learning.spec)[:, :filled].reshape(len(state.keys), -1)
    rows = []
    for seed, hashes in enumerate(places):
        values = {name: each[seed].tolist() for name, each in measured.items()}
        rows.append(values | {"coverage": len(np.unique(hashes))})
    return rows


@partial(jax.jit, static_argnums=0)
def _compare(learning: Learning, state: TrainState, salt: UInt32[Array, ""]) -> Metrics:
    agent = learning.agent

    def one_seed(state: TrainState) -> Metrics:
        key = _key(state, salt)
        obs = replay.sample(state.replay, learning.spec, (STATES,), key).obs
        obs = state.normalizer(obs) if learning.normalize else obs
        policies = agent.evaluation_policies(state.agent)
        each = agent.disagreement(state.agent, obs)
        found = {"disagreement": each.mean(), "disagreement_by_actor": each}
        actions = vmap(lambda policy: vmap(policy)(obs))(policies)
        found["saturation"] = saturation(actions)
        if each.shape[0] > 1:
            found["diversity"] = diversity(actions)
        if isinstance(agent, FAC) and state.agent.steering is not None:
            found |= state.agent.steering.told()
        if isinstance(agent, FAC) and agent.cloud.replace_every:
            found["replaced"] = state.agent.bank.replaced
        if isinstance(agent, FAC) and agent.trust.measure:
            found |= _trust(learning, state, key)
        return found

    return vmap(one_seed, in_axes=(SEED_AXES,))(state)


def trust(learning: Learning, state: TrainState, frame: int) -> dict[str, np.ndarray]:
    """C and Delta of every actor of each seed, as a row has them where they are measured."""
    return jax.device_get(_trust_of_seeds(learning, state, np.uint32(frame % _STREAM)))


@partial(jax.jit, static_argnums=0)
def _trust_of_seeds(learning: Learning, state: TrainState, salt: UInt32[Array, ""]) -> Metrics:
    return vmap(lambda seed: _trust(learning, seed, _key(seed, salt)), in_axes=(SEED_AXES,))(state)


def _trust(learning: Learning, state: TrainState, key: PRNGKeyArray) -> Metrics:
    agent = learning.agent
    assert isinstance(agent, FAC)
    logged, recent = looked_at(learning, state.replay, state.normalizer, agent.trust.rows, key)
    seen = (state.agent.actors.net, state.agent.critics.net, logged, recent.obs)
    return trust_of_actors(*seen, agent.trust.states)


def _key(state: TrainState, salt: UInt32[Array, ""]) -> PRNGKeyArray:
    return jax.random.fold_in(randomness.wrap(state.keys), salt + jnp.uint32(_STREAM))


def diversity(actions: Float[Array, "actors batch act"]) -> Float[Array, ""]:
    """The mean distance between the actions of two different actors at the same state."""
    first, second = np.triu_indices(actions.shape[0], k=1)
    return jnp.linalg.norm(actions[first] - actions[second], axis=-1).mean()


def saturation(actions: Float[Array, "actors batch act"]) -> Float[Array, ""]:
    """The share of the numbers in all actions that are at a bound, beyond `AT_BOUND`."""
    return jnp.mean(jnp.abs(actions) > AT_BOUND)


def cells(rows: Float[Array, "seeds capacity envs width"], spec: EnvSpec) -> np.ndarray:
    """The cell of each stored observation, as a number of 64 bits: (seeds, capacity, envs).

    A cell holds the observations whose numbers all agree in sign, exponent and the first binary digit after the
    leading one; what is below 2^-7 counts as zero. So cells are boxes between ... 1/2, 3/4, 1, 3/2, 2, 3 ..., fine
    where numbers are small. They do not depend on what was seen, so counts of different runs can be compared.
    """
    high, low = jax.device_get(_hashes(rows, spec))
    return (high.astype(np.uint64) << np.uint64(32)) | low


@partial(jax.jit, static_argnums=1)
def _hashes(rows: Float[Array, "seeds capacity envs width"], spec: EnvSpec) -> tuple[Array, ...]:
    obs = rows[..., : spec.obs_dim]
    coarse = lax.bitcast_convert_type(jnp.where(jnp.abs(obs) < SMALLEST, 0.0, obs), jnp.uint32) >> 22
    salts = np.random.default_rng(0).integers(2**32, size=(2, 1, 1, 1, spec.obs_dim), dtype=np.uint32)
    return tuple(_scrambled(coarse + salt).sum(axis=-1, dtype=jnp.uint32) for salt in salts)


def _scrambled(words: UInt32[Array, "*shape"]) -> UInt32[Array, "*shape"]:
    """Words whose every bit depends on all bits of the input, so that sums of them rarely collide."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        words = (words ^ (words >> shift)) * jnp.uint32(factor)
    return words ^ (words >> 16)
