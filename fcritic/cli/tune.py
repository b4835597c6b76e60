"""`fcritic tune SPACE`: a search for options with Optuna, on this machine or on a Ray cluster."""

import contextlib
import dataclasses
from functools import partial
import json
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from fcritic.api.trust import require_trusted_words
from fcritic.cli.commands import TrainOptions, default_config, values_of, with_task_args
from fcritic.cli.parsing import parse
from fcritic.config import TrainConfig
from fcritic.disk import Place
from fcritic.errors import UsageError, require_at_least

if TYPE_CHECKING:
    from fcritic.study.tuning import Space


@dataclasses.dataclass(frozen=True)
class TuneOptions:
    """Searches for options of `fcritic train`. The same command continues what was stopped or killed."""

    space: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="SPACE")]]
    """TOML or JSON file: [train] has options that all trials share, [search] choices or ranges of others. Code that
    it names must be trusted: fcritic check TASK."""
    out: str | None = None
    """Folder of the search; without it runs/tune-NAME, after the file."""
    trials: int = 20
    """Trials altogether; a larger number continues a search that is finished."""
    jobs: int | None = None
    """Trials side by side; by default 1 here, and on Ray as many as its CPUs and GPUs allow."""
    prune: bool = True
    """End a trial whose best evaluation so far is below the median of the others at the same frame."""
    budget: str | None = None
    """Stop cleanly after this time: 25m, 1.5h, 90s."""
    yes: bool = False
    """Start even if the estimated time exceeds a day on this machine and no smaller budget is set."""
    on: Literal["here", "ray"] = "here"
    """Processes of this machine, or tasks of a Ray cluster."""
    address: str | None = None
    """A Ray cluster that is running; without it one is started on this machine, on loopback."""
    cpus: float = 1.0
    """CPU cores that one trial takes of a Ray node."""
    gpus: float = 0.0
    """GPUs, or a share of one, that one trial takes of a Ray node."""
    json: bool = False
    """Print JSON."""


def tune(args: list[str]) -> None:
    """`fcritic tune SPACE`: search, then a table, tune.json and tune.png in the folder."""
    options = parse(TuneOptions, args, "tune")
    require_at_least(1, trials=options.trials, jobs=options.jobs or 1)
    require_at_least(0, cpus=options.cpus, gpus=options.gpus)
    from fcritic.results import plots
    from fcritic.study import cluster
    from fcritic.study.execute import Budget, parse_budget, resume
    from fcritic.study.tuning import Search, Space, table

    space, budget = Space.read(options.space), Budget(parse_budget(options.budget))
    folder = Path(options.out or f"runs/tune-{Path(options.space).stem}")
    say = lambda line: print(line, file=sys.stderr, flush=True)
    configure = partial(_config, options.space)
    search = Search(folder, space, configure, options.prune)
    with contextlib.ExitStack() as stack:
        if options.on == "ray":
            needs = cluster.Needs(options.cpus, options.gpus)
            work, room = stack.enter_context(cluster.worker(folder, options.address, needs, say))
        else:
            _require_agreed(space, options, budget.left)
            work, room = resume, 1
        search.run(options.trials, options.jobs or room, work, budget, say)
    outcome = search.outcome()
    Place(folder).make()
    (Place(folder) / "tune.json").replace((json.dumps(outcome, indent=2) + "\n").encode())
    plots.tuning(outcome, folder / "tune.png")
    print(json.dumps(outcome, indent=2) if options.json else f"{table(outcome)}\nwrote {folder / 'tune.png'}")


def _config(file: str, words: list[str]) -> TrainConfig:
    """Parses the config of a trial like a command line. The file is data that others may have written."""
    require_trusted_words(values_of(words), file)
    options = parse(TrainOptions, words, "train", TrainOptions(default_config(words)))
    if options.out is not None or options.yes or options.quiet or options.json or options.callback is not None:
        raise UsageError(
            "a search sets --out itself and prints by itself; leave out the options that do not belong to training"
        )
    return with_task_args(options)


def _require_agreed(space: "Space", options: TuneOptions, left: float) -> None:
    from fcritic.envs import task_spec
    from fcritic.training.cost import DAY, estimated_seconds, require_agreed

    if left > DAY and not options.yes:
        config = _config(options.space, space.words(space.first()))
        seconds = estimated_seconds(config, task_spec(config.task), 0)
        if seconds is not None:
            require_agreed(seconds * options.trials, f"{options.trials} trials of {config.recipe}", options.yes)
