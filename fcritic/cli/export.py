"""`fcritic export`: a trained agent to give away, or one of its policies as an ONNX file."""

import dataclasses
import json
import os
from typing import Annotated, Any, Literal

import tyro

from fcritic.cli.commands import Directory, evaluated
from fcritic.cli.parsing import parse
from fcritic.errors import UsageError


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Writes a trained agent to give away, without its replay and with a card, or one policy as an ONNX file."""

    directory: Directory
    """Directory of the run."""
    out: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for the newest agent, which is evaluated for its card; it must not exist."""
    episodes: int = 10
    """Episodes per actor for the card, and for --actor best."""
    onnx: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """ONNX file of one policy, from the task's raw observations to the task's actions; it must not exist."""
    seed: int | None = None
    """Seed of the policy in the ONNX file; without it the run's first."""
    actor: int | Literal["best"] = 0
    """Number of the actor in the ONNX file, or `best`: the one whose new episodes have the highest mean return."""
    best: bool = False
    """In the ONNX file an actor of the seed's best evaluation so far instead of the last one."""
    json: bool = False
    """Print JSON."""


def export(args: list[str]) -> None:
    """`fcritic export DIR --out DIR`, `fcritic export DIR --onnx FILE`."""
    options = parse(ExportOptions, args, "export")
    if options.out is None and options.onnx is None:
        raise UsageError("--out is missing: a folder for the agent, or --onnx with a file for one policy")
    if options.onnx is None and (options.seed is not None or options.actor or options.best):
        raise UsageError("--seed, --actor and --best choose the policy of --onnx; --out takes the whole agent")
    outcome = {}
    if options.onnx is not None:
        outcome |= _write_policy(options, options.onnx)
    if options.out is not None:
        outcome |= _write_agent(options, options.out)
    if options.json:
        print(json.dumps(outcome, indent=2))


def _write_agent(options: ExportOptions, folder: str) -> dict[str, Any]:
    from fcritic.api.export import export, require_free
    from fcritic.runs.directory import RunDirectory

    run = RunDirectory.open_existing(options.directory)
    require_free(folder)
    outcome = evaluated(options.directory, options.episodes)
    out = export(run, folder, outcome)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    if not options.json:
        print(f"wrote {out} ({size / 1e6:.1f} MB), mean actor {outcome['mean_actor']:.1f}")
    return {"agent": str(out), "bytes": size} | outcome


def _write_policy(options: ExportOptions, file: str) -> dict[str, Any]:
    from fcritic.api.load import load
    from fcritic.api.to_onnx import require_place, to_onnx

    require_place(file)
    number = 0 if options.actor == "best" else options.actor
    agent = load(options.directory, options.seed, options.best, number)
    if options.actor == "best":
        found = evaluated(options.directory, options.episodes, options.best)["seeds"]
        best = next(each["best_actor_index"] for each in found if each["seed"] == agent.seed)
        agent = dataclasses.replace(agent, actor=best)
    different = to_onnx(agent, file)
    if not options.json:
        size = os.path.getsize(file)
        print(
            f"wrote {file} ({size / 1e3:.0f} kB): actor {agent.actor} of seed {agent.seed}; "
            f"under ONNX Runtime its actions differ from the agent's by at most {different:.0e} of half their range"
        )
    return {"onnx": file, "actor": agent.actor, "seed": agent.seed, "difference": different}
