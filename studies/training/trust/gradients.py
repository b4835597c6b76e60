"""The error of the policy gradient of critics that rest while actors move on, by finite differences of rollouts.

J is the mean discounted return from some start states; a critic that knows policies has its gradient, through
actions and through the policy input. The slopes of both are compared along directions in the actor's parameters.
"""

from collections.abc import Callable, Iterator
import csv
import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import jax
from jax import vmap
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, UInt32
import numpy as np

from fcritic import ensembles, envs, randomness
from fcritic.agents.actor_trust import drifts
from fcritic.agents.fac import FAC
from fcritic.agents.losses import encode_all
from fcritic.config import TrainConfig
from fcritic.disk import Place
from fcritic.runs.directory import RunDirectory
from fcritic.training import replay
from fcritic.training.device import SEED_AXES, Learning, TrainState, looked_at
from fcritic.training.evaluate import Evaluator
from fcritic.training.saving import Checkpoints, learning_of

AFTER = (0, 10, 30, 100, 300)
"""Updates of the actors since critics learned last."""
DIRECTIONS = 5
"""The first is that of the critic's gradient, the others are drawn."""
STARTS = 2
STEP = 0.03
"""Length of a step to each side."""
COLUMNS = [
    "task",
    "frame",
    "seed",
    "actor",
    "after",
    "delta",
    "growth",
    "measured",
    "error",
    "relative_error",
    "along_measured",
    "along",
]
"""`measured` and `error` are root mean squares over the drawn directions: of the true slope, and of what the
critic's is off; `relative_error` is the error over the slope. `along` is the length of the critic's gradient,
`along_measured` the true slope along it."""


def gradients(folder: Path, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
    """Returns a row for each seed, actor and number of updates, kept in the run's folder; none without a run."""
    kept = folder / "gradients.csv"
    if kept.is_file():
        return list(csv.DictReader(kept.read_text(encoding="utf-8").splitlines()))
    directory = RunDirectory(folder)
    frame = directory.newest_frame()
    if not frame:
        return []
    config = TrainConfig.from_json(directory.config)
    learning = learning_of(config, envs.task_spec(config.task))
    found = Checkpoints(directory, config, learning).load()[0]
    assert found is not None
    first = state = found.snapshot.state
    probe, rows = Probe(config, learning), []
    for before, after in zip((0, *AFTER[:-1]), AFTER, strict=True):
        say(f"{folder.name}: gradients after {after} updates of actors")
        state = _moved(learning, after - before, state, np.uint32(after)) if after else state
        rows += [{"task": config.task, "frame": frame, "after": after} | row for row in probe.rows(first, state)]
    probe.close()
    lines = [",".join(COLUMNS), *(",".join(str(row[name]) for name in COLUMNS) for row in rows)]
    Place.of(kept).replace("\n".join(lines).encode())
    return rows


class Probe:
    """Environments in which slopes are measured."""

    def __init__(self, config: TrainConfig, learning: Learning):
        self._learning = learning
        self._few, self._many = Evaluator(config, 1), Evaluator(config, 1)

    def rows(self, first: TrainState, state: TrainState) -> Iterator[dict[str, Any]]:
        """A row for each seed and actor of a state, whose critics learned last in the first state."""
        play = partial(Evaluator.play, normalizer=state.normalizer, salt="gradients", starts=STARTS)
        actors = state.agent.actors.net
        each = lambda tree, count: jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf), count, axis=1), tree)
        begun = play(self._few, each(actors, STARTS)).first
        begun = begun.reshape(len(begun), -1, STARTS, begun.shape[-1])
        promised, directions = _promised(self._learning, state, begun)
        moved = each(_stepped(actors, directions), STARTS)
        found = play(self._many, moved).discounted.reshape(*promised.shape, 2, STARTS).mean(axis=-1)
        slopes, promised = (found[..., 0] - found[..., 1]) / (2 * STEP), np.asarray(promised)
        delta, growth = map(np.asarray, _drifts(self._learning, first, state))
        size = lambda values: float(np.sqrt(np.mean(values**2)))
        for seed, actor in np.ndindex(delta.shape):
            true, said = slopes[seed, actor], promised[seed, actor]
            measured, error = size(true[1:]), size(true[1:] - said[1:])
            yield {
                "seed": seed,
                "actor": actor,
                "delta": float(delta[seed, actor]),
                "growth": float(growth[seed, actor]),
                "measured": measured,
                "error": error,
                "relative_error": error / (measured + 1e-9),
                "along_measured": float(true[0]),
                "along": float(said[0]),
            }

    def close(self) -> None:
        """Closes them."""
        self._few.close()
        self._many.close()


@partial(jax.jit, static_argnums=(0, 1))
def _moved(learning: Learning, updates: int, state: TrainState, number: UInt32[Array, ""]) -> TrainState:
    """Actors after so many updates in which critics rest."""
    agent = learning.agent

    def one(state: TrainState) -> TrainState:
        def step(held: Any, key: PRNGKeyArray) -> tuple[Any, None]:
            batch = replay.sample(state.replay, learning.spec, (agent.batch_size,), key)
            if learning.normalize:
                batch = batch._replace(obs=state.normalizer(batch.obs))
            return agent.actor_step(held, batch, key)[0], None

        keys = jax.random.split(jax.random.fold_in(randomness.wrap(state.keys), number), updates)
        return dataclasses.replace(state, agent=jax.lax.scan(step, state.agent, keys)[0])

    return vmap(one, in_axes=(SEED_AXES,), out_axes=SEED_AXES)(state)


@partial(jax.jit, static_argnums=0)
def _promised(
    learning: Learning, state: TrainState, begun: Float[Array, "seeds actors starts obs"]
) -> tuple[Float[Array, "seeds actors directions"], Float[Array, "seeds actors directions parameters"]]:
    """Slopes of each actor's value at its start states, by its own critic, and the directions they are along."""

    def one_seed(state: TrainState, begun: Array) -> tuple[Array, Array]:
        begun = state.normalizer(begun) if learning.normalize else begun
        critics, policies = state.agent.valued_by, state.agent.actors.net

        def one(policy: Any, index: Array, obs: Array) -> tuple[Array, Array]:
            theta, network = ravel_pytree(policy)

            def value(theta: Array) -> Float[Array, ""]:
                policy = network(theta)
                codes = encode_all(critics, jax.tree.map(lambda leaf: leaf[None], policy))[index, 0]
                head = ensembles.member(critics.head, index)
                return vmap(lambda seen: head(codes, seen, policy(seen)))(obs).mean()

            slope = jax.grad(value)(theta)
            key = jax.random.fold_in(randomness.wrap(state.keys), index)
            drawn = jax.random.normal(key, (DIRECTIONS, theta.size)).at[0].set(slope)
            along = drawn / jnp.linalg.norm(drawn, axis=1, keepdims=True)
            return along @ slope, along

        return vmap(one)(policies, jnp.arange(ensembles.size(policies)), begun)

    return vmap(one_seed, in_axes=(SEED_AXES, 0))(state, begun)


@jax.jit
def _stepped(actors: Any, directions: Float[Array, "seeds actors directions parameters"]) -> Any:
    """Policies (seeds, actors x directions x 2) a step to either side of each actor."""

    def one(policy: Any, along: Float[Array, "directions parameters"]) -> Any:
        theta, network = ravel_pytree(policy)
        return vmap(vmap(network))(theta + STEP * jnp.stack([along, -along], axis=1))

    flat = lambda leaf: leaf.reshape(len(leaf), -1, *leaf.shape[4:])
    return jax.tree.map(flat, vmap(vmap(one))(actors, directions))


@partial(jax.jit, static_argnums=0)
def _drifts(learning: Learning, first: TrainState, state: TrainState) -> tuple[Array, Array]:
    """Delta and its growth of every actor of every seed since the first state."""
    agent = learning.agent
    assert isinstance(agent, FAC)

    def one(first: TrainState, state: TrainState) -> tuple[Array, Array]:
        key = randomness.wrap(state.keys)
        recent = looked_at(learning, state.replay, state.normalizer, agent.trust.rows, key)[1]
        given = (state.agent.actors.net, state.agent.critics.net, recent.obs, agent.trust.states)
        found = drifts(*given, first.agent.actors.net)
        return found["drift"], found["growth"]

    return vmap(one, in_axes=(SEED_AXES, SEED_AXES))(first, state)
