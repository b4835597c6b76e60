"""The configuration of a run on disk, which may be a stranger's: it must not bring code to be executed."""

import dataclasses

from fcritic.config import TrainConfig
from fcritic.envs.own import Task, name_of
from fcritic.runs.directory import RunDirectory
from fcritic.runs.trust import require_trusted


def config_of(run: RunDirectory, task: Task | None = None) -> TrainConfig:
    """What the run was asked to be; refused where it would run code that its user has not trusted.

    `task` takes the place of the one that is recorded: code that has moved, or a callable of this program.
    """
    config = TrainConfig.from_json(run.config)
    if task is not None:
        return dataclasses.replace(config, task=name_of(task))
    require_trusted(config.task, run.path)
    return config
