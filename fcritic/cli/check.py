"""`fcritic check`: what is wrong with an environment, before hours are spent on it."""

import dataclasses
import json
from typing import Annotated

import tyro

from fcritic.api.trust import trust_task
from fcritic.cli.parsing import parse
from fcritic.envs.arguments import of_words, with_arguments
from fcritic.envs.check import check as examine


@dataclasses.dataclass(frozen=True)
class CheckOptions:
    """Examines an environment with random actions and says what is wrong with it, where, and what to do."""

    task: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="TASK")]]
    """As for `train`: a Gymnasium id, domain-task, module:factory or path/to/file.py:factory."""
    task_args: tuple[str, ...] = ()
    """As for `train`: arguments of the task, NAME=VALUE each."""
    steps: int = 1000
    """Random actions to take, in at most 20 seconds."""
    env_timeout: float = 60.0
    """Seconds that one call may take."""
    json: bool = False
    """Print JSON."""


def check(args: list[str]) -> int:
    """`fcritic check TASK`: 0 if nothing stands against training, 1 if errors were found."""
    options = parse(CheckOptions, args, "check")
    task = with_arguments(options.task, of_words(options.task_args))
    trust_task(task)
    report = examine(task, options.steps, options.env_timeout)
    print(json.dumps(report.to_json(), indent=2) if options.json else report)
    return 0 if report.healthy else 1
