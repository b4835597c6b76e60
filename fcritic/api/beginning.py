"""What a training begins with that it has not learned itself: the agents of another run, and logged data."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float
import numpy as np

from fcritic import ensembles
from fcritic.agents.base import AbstractAgent, Learner, options_of
from fcritic.api.trust import config_of
from fcritic.config import TYPED, TrainConfig, as_words
from fcritic.disk import Place
from fcritic.errors import CheckpointError, UsageError
from fcritic.runs import checkpoint
from fcritic.runs.arrays import unflatten
from fcritic.runs.directory import RunDirectory
from fcritic.training.device import Learning, TrainState
from fcritic.training.evaluate import Best
from fcritic.training.health import require_room, require_sound_agent
from fcritic.training.loop import First
from fcritic.training.replay import Replay, pack
from fcritic.training.saving import Progress, Snapshot, shapes_of, without_replay
from fcritic.types import Transition


def beginning(config: TrainConfig) -> First | None:
    """The function that makes the first snapshot of a training, where `begin_from` or `data` ask for one."""
    return partial(_first, config) if config.begin_from or config.data else None


def _first(config: TrainConfig, learning: Learning) -> tuple[Snapshot, list[str]]:
    plain, notes, prefilled = Snapshot.first(learning, config.seed_numbers), [], 0
    state = plain.state
    if config.begin_from:
        learned, note = _learned(config, config.begin_from, learning)
        state = eqx.tree_at(lambda s: (s.agent, s.normalizer), state, (learned.agent, learned.normalizer))
        notes.append(note)
    if config.data:
        require_room(config, learning.spec)
        rows = _rows(config)
        prefilled = len(rows)
        ring = np.zeros(state.replay.rows.shape, np.float32)
        ring[:, :prefilled] = rows
        state = eqx.tree_at(lambda s: s.replay, state, Replay(jnp.array(ring), jnp.int32(prefilled)))
        notes.append(f"the replay begins with {prefilled * config.envs:,} transitions of {', '.join(config.data)}")
    best, progress = Best.none(learning.agent, state), Progress(prefilled=prefilled)
    return plain._replace(state=state, best=best, progress=progress), notes


def _learned(config: TrainConfig, name: str, learning: Learning) -> tuple[TrainState, str]:
    """What the seeds of another run have learned, as ours, and a line about it. Its task is not built."""
    run = RunDirectory.open_existing(name)
    theirs = config_of(run, config.task)
    newest = run.require_checkpoint()
    missing = [seed for seed in config.seed_numbers if seed not in theirs.seed_numbers]
    if missing and theirs.seeds > 1:
        first, last = theirs.seed_numbers[0], theirs.seed_numbers[-1]
        raise UsageError(f"{name} has the seeds {first} to {last}, not {missing[0]}; choose --seed and --seeds")
    places = np.array([0 if theirs.seeds == 1 else seed - theirs.seed for seed in config.seed_numbers])
    _require_same_networks(config, theirs, name, learning)
    like = without_replay(shapes_of(dataclasses.replace(learning, agent=theirs.agent), theirs.seeds))
    try:
        arrays = checkpoint.load(newest, ["agent"], {"agent": like})[0]["agent"]
    except CheckpointError as error:
        _require_same_sizes(config, name, newest, learning)
        raise error
    require_sound_agent(arrays)
    learned = unflatten(like, arrays)
    ours = jax.tree.structure(without_replay(shapes_of(learning, 1)))
    learned = jax.tree.unflatten(ours, jax.tree.leaves(learned))  # optimisers may be chained in another way
    picked = ensembles.member((learned.agent, learned.normalizer), places)
    frame = int(newest.name.removeprefix("step-"))
    learned = eqx.tree_at(lambda s: (s.agent, s.normalizer), learned, picked)
    return learned, f"beginning with the agents of {name} at frame {frame:,}"


def _require_same_networks(config: TrainConfig, theirs: TrainConfig, name: str, learning: Learning) -> None:
    """Refuses what has other parameters than ours; names the options that may make the difference."""
    kinds = [type(each.agent).__name__ for each in (theirs, config)]
    if kinds[0] != kinds[1]:
        raise UsageError(f"{name} is of the algorithm {kinds[0]}, this training of {kinds[1]}; choose its recipe")
    if theirs.normalize != config.normalize:
        raise UsageError(f"{name} has --{'' if theirs.normalize else 'no-'}normalize, which its networks rely on")
    if _shapes(theirs.agent, learning) == _shapes(config.agent, learning):
        return
    there, here = options_of(theirs.agent), options_of(config.agent)
    other = [option for option in there if there[option] != here[option]]
    sizes = [option for option in other if not isinstance(there[option], float)] or other
    typed = [" ".join(as_words(option, there[option])) for option in sizes]
    raise UsageError(f"{name} has other networks; give this training the options {' '.join(typed)}")


def _shapes(agent: AbstractAgent, learning: Learning) -> Any:
    """Structure and shapes of what is learned; optimisers are alike that remember the same."""
    is_learner = lambda node: isinstance(node, Learner)
    remembered = lambda node: (node.params, node.moments) if is_learner(node) else node
    learned = shapes_of(dataclasses.replace(learning, agent=agent), 1).agent
    learned = jax.tree.map(remembered, learned, is_leaf=is_learner)
    return jax.tree.structure(learned), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(learned)]


def _require_same_sizes(config: TrainConfig, name: str, newest: Place, learning: Learning) -> None:
    """Refuses, in the words of a task, a checkpoint whose agents see or do something else."""
    groups, facts = checkpoint.load(newest, ["agent"])
    mean, row, spec = groups["agent"].get("normalizer/mean"), facts.get("row"), learning.spec
    if mean is None or mean.ndim == 0 or not isinstance(row, list) or not row or type(row[-1]) is not int:
        return
    obs, act = mean.shape[-1], row[-1] - 2 * mean.shape[-1] - 2
    for what, there, here in (("observations", obs, spec.obs_dim), ("actions", act, spec.act_dim)):
        if there != here:
            raise UsageError(
                f"the agents of {name} have {what} of size {there}, {config.task} has {what} of size {here}; "
                f"choose another --{TYPED['begin_from']}"
            )


def _rows(config: TrainConfig) -> Float[np.ndarray, "steps envs width"]:
    """The data as rows of a ring: each environment's column has a part of them, in their order."""
    from fcritic.offline.reading import read_logs

    found = read_logs(config.data, config.task)
    if found.action_repeat not in (None, config.action_repeat):
        raise UsageError(
            f"{config.data[0]} holds each action for {found.action_repeat} frames, this training for "
            f"{config.action_repeat}; choose --action-repeat {found.action_repeat}"
        )
    steps = len(found) // config.envs
    if not steps:
        raise UsageError(f"--data has {len(found):,} transitions, fewer than --envs {config.envs}")
    if steps > config.replay:
        raise UsageError(f"--data has {steps:,} steps for each environment, --replay {config.replay}; raise it")
    rows = pack(Transition(*(getattr(found, name)[: steps * config.envs] for name in Transition._fields)))
    return np.swapaxes(rows.reshape(config.envs, steps, -1), 0, 1)
