"""`fcritic log POLICY... --out DIR`: lets policies act on their task and records every transition."""

import dataclasses
import json
import shlex
from typing import Annotated

import tyro

from fcritic.cli.parsing import parse
from fcritic.cli.progress import Progress
from fcritic.errors import UsageError, require_at_least
from fcritic.startup.backend import prepare

prepare()


@dataclasses.dataclass(frozen=True)
class LogOptions:
    """Records what policies do on their task as a dataset for `fcritic rank`."""

    policies: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="POLICY")]]
    """Runs or exported agents (every actor of every kept checkpoint; run@frame#actor is one of them), ONNX files,
    module:function or file.py:function."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Folder to write; it must not exist."""
    episodes: int | None = None
    """Episodes of each policy; without this and --steps 10."""
    steps: int | None = None
    """Transitions of all policies together, instead of --episodes."""
    noise: float = 0.0
    """Standard deviation of normal noise added to actions, in units of half their range."""
    task: str | None = None
    """The task; without it the one of the first run."""
    action_repeat: int | None = None
    """Frames for which each action is held; without it as the first run does, or 1."""
    seed: int = 0
    """Seed of start states and noise."""
    json: bool = False
    """Print JSON."""


def log(args: list[str]) -> None:
    """`fcritic log POLICY... --out DIR`."""
    options = parse(LogOptions, args, "log")
    if not options.policies:
        raise UsageError("name the policies to record: fcritic log RUN --out DIR")
    if options.episodes is not None and options.steps is not None:
        raise UsageError("give --episodes or --steps, not both")
    require_at_least(1, episodes=options.episodes or 1, steps=1 if options.steps is None else options.steps)
    require_at_least(0, noise=options.noise, seed=options.seed)

    from fcritic.api.export import require_free
    from fcritic.offline.folder import write
    from fcritic.offline.gathering import read_policies
    from fcritic.offline.recording import Stage, as_dataset, at_random, noisy

    require_free(options.out)
    task, repeat = task_of(options.policies, options.task, options.action_repeat)
    candidates = read_policies(options.policies, at_random(task, repeat))
    episodes = None if options.steps is not None else options.episodes or 10
    count = len(candidates)
    shares = [None if options.steps is None else (options.steps + place) // count for place in range(count)]
    stage = Stage(task, repeat, episodes or options.steps or 1, options.seed)
    pieces, told = [], Progress("recording", options.json)
    goal, done = options.steps or count * (episodes or 1), 0
    for number, (candidate, share) in enumerate(zip(candidates, shares, strict=True)):
        act = noisy(candidate, options.noise)
        for piece in stage.play(act, f"log {number}", episodes, share):
            pieces.append(piece)
            done += 1 if share is None else len(piece.transitions.reward)
            told(done / goal)
    stage.close()
    dataset = as_dataset(pieces, task, repeat, [candidate.name for candidate in candidates])
    out = write(options.out, dataset, {"noise": options.noise, "seed": options.seed})
    facts = {"dataset": str(out)} | dataset.describe()
    print(json.dumps(facts, indent=2) if options.json else _text(facts, options))


def task_of(policies: tuple[str, ...], task: str | None, action_repeat: int | None) -> tuple[str, int]:
    """Returns the task and action repeat that are typed, or else those of the first run."""
    from fcritic.api.trust import config_of, trust_task
    from fcritic.offline.gathering import run_of

    if task is not None:
        trust_task(task)
    if task is None or action_repeat is None:
        run = next((found for found in map(run_of, policies) if found is not None), None)
        if run is not None:
            config = config_of(run, task)
            return task or config.task, action_repeat or config.action_repeat
    if task is None:
        raise UsageError("the task is unknown, since no run is named; give --task")
    return task, action_repeat or 1


def _text(facts: dict, options: LogOptions) -> str:
    mean = "" if facts["mean_return"] is None else f", mean return {facts['mean_return']:.1f}"
    lines = [
        f"wrote {facts['dataset']}: {facts['transitions']:,} transitions of {facts['task']} in "
        f"{facts['episodes']:,} episodes by {len(facts['sources'])} policies{mean}",
        f"next: fcritic rank --data {shlex.quote(options.out)} --policies {shlex.join(options.policies)}",
    ]
    return "\n".join(lines)
