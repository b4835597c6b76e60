"""The replay of a run as logged data: the rows of its ring, put back into the episodes that they came from."""

import numpy as np

from fcritic.api.trust import config_of
from fcritic.config import TrainConfig
from fcritic.disk import Place
from fcritic.envs import Task, code_of, name_of, task_units
from fcritic.errors import CheckpointError, UsageError
from fcritic.offline.source import Arrays, Source, breaks, require_finite
from fcritic.runs import checkpoint
from fcritic.runs.directory import RunDirectory
from fcritic.runs.replay_log import Record, ReplayLog
from fcritic.training.replay import unpack, width_of
from fcritic.types import EnvSpec


def of_run(path: str, task: Task | None = None) -> Source:
    """Returns the source in a run: what the ring held at its newest whole checkpoint, of all seeds."""
    run = RunDirectory.open_existing(path)
    recorded = run.config.get("task")
    if isinstance(recorded, str) and task is not None and name_of(task) != recorded and code_of(recorded) is None:
        raise UsageError(f"{path} is of the task {recorded}, not {name_of(task)}; choose another --task")
    config = config_of(run, task)
    spec, units = task_units(config.task)
    rows = ReplayLog(run.replay, (config.seeds, config.envs, width_of(spec)), config.replay)
    record = checkpoint.newest(run.checkpoints, lambda place: _record(place, rows, run, config))
    if record is None:
        raise run.no_checkpoint_yet()
    steps = record.written - record.oldest
    fill = lambda into, _: _fill(path, rows, record, spec, into)
    bounds = (units.actions.low, units.actions.high)
    count = steps * config.seeds * config.envs
    shapes = (units.obs_shape, spec.obs_dim, units.actions.low.shape)
    return Source(path, count, *shapes, fill, bounds, config.task, config.action_repeat)


def _record(place: Place, rows: ReplayLog, run: RunDirectory, config: TrainConfig) -> Record:
    """What a checkpoint says of its replay, which must be whole."""
    facts = checkpoint.verify(place, [])["facts"]
    if facts.get("exported") is True:
        raise UsageError(
            f"{run.path} is an exported agent without a replay; name the run it came from, or let it act: "
            f"fcritic log {run.path} --out DIR"
        )
    record = Record.of(facts, config.replay)
    if record.written == record.oldest:
        raise UsageError(f"{run.path} has an empty replay; continue it with fcritic resume")
    for piece in record.pieces:
        rows.read([piece], piece.first)
    last = record.pieces[-1] if record.pieces else None
    if last is None or last.first + last.steps != record.written:
        raise CheckpointError("the checkpoint's replay is not complete; take an earlier one")
    return record


def _fill(name: str, rows: ReplayLog, record: Record, spec: EnvSpec, into: Arrays) -> int:
    """An episode has ended where the next observation is not that of the next row, and where the discount is 0.

    The ring has no other mark of an end. The first rows of a full ring are in the midst of episodes.
    """
    steps = record.written - record.oldest
    seeds, envs, _ = rows.shape
    columns = [(seed, env) for seed in range(seeds) for env in range(envs)]
    for piece in record.pieces:
        found = rows.read([piece], max(piece.first, record.oldest))
        place = max(piece.first, record.oldest) - record.oldest
        require_finite(found, f"{name}: its replay")
        transitions = unpack(found, spec)
        for number, (seed, env) in enumerate(columns):
            start = number * steps + place
            for field, array in zip(transitions._fields, transitions, strict=True):
                into[field][start : start + len(found)] = array[:, seed, env]
    for number in range(len(columns)):
        part = slice(number * steps, (number + 1) * steps)
        ended = breaks(into["obs"][part], into["next_obs"][part]) | (into["discount"][part] == 0)
        first, last = np.roll(ended, 1), ended.copy()
        first[0], last[-1] = record.oldest == 0, True
        into["first"][part], into["last"][part], into["ended"][part] = first, last, ended
    return steps * len(columns)
