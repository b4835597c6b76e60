"""`fcritic export`: a trained agent to give away."""

import dataclasses
import json
from typing import Annotated

import tyro

from fcritic.cli.commands import Directory, evaluated
from fcritic.cli.parsing import parse


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Copies the newest agent of a run without its replay, evaluates it and writes a card."""

    directory: Directory
    """Directory of the run."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Folder to write; it must not exist."""
    episodes: int = 10
    """Episodes per actor for the card."""
    json: bool = False
    """Print JSON."""


def export(args: list[str]) -> None:
    """`fcritic export DIR --out DIR`."""
    from fcritic.api.export import export, require_free
    from fcritic.runs.directory import RunDirectory

    options = parse(ExportOptions, args, "export")
    run = RunDirectory.open_existing(options.directory)
    require_free(options.out)
    outcome = evaluated(options.directory, options.episodes)
    out = export(run, options.out, outcome)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    if options.json:
        print(json.dumps({"agent": str(out), "bytes": size} | outcome, indent=2))
    else:
        print(f"wrote {out} ({size / 1e6:.1f} MB), mean actor {outcome['mean_actor']:.1f}")
