"""The configuration of a run on disk, which may be a stranger's: it must not bring code to be executed."""

import importlib.util
from pathlib import Path

from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.runs import RunDirectory


def config_of(run: RunDirectory) -> TrainConfig:
    """What the run was asked to be; refused where the code of its task lies in its own folder."""
    config = TrainConfig.from_json(run.config)
    module, _, name = config.task.partition(":")
    if name and module.partition(".")[0].isidentifier():  # Gymnasium imports what is before the colon
        found = importlib.util.find_spec(module.partition(".")[0])
        places = [found.origin, *(found.submodule_search_locations or ())] if found else []
        if any(place and Path(place).resolve().is_relative_to(run.path.resolve()) for place in places):
            raise UsageError(f"{run.path} brings the code of its own task, {module}; move it out if you trust it")
    return config
