"""`fcritic replay DIR`: an episode of each actor as one HTML file, in 3D where the task is made with MuJoCo."""

import dataclasses
import json
from typing import Any

from fcritic.cli.commands import Directory
from fcritic.cli.parsing import parse
from fcritic.disk import Place, destination
from fcritic.errors import UsageError, require_at_least


@dataclasses.dataclass(frozen=True)
class ReplayOptions:
    """Plays an episode of each actor and writes it as one HTML file that any browser shows, without a network."""

    directory: Directory
    """Directory of the run."""
    out: str | None = None
    """File to write, .html; without it replay.html in the directory of the run."""
    actor: tuple[int, ...] = ()
    """Numbers of actors, from 0; without it all of them, at most 10."""
    seed: int | None = None
    """Seed of the run whose actors are shown; without it the first."""
    best: bool = False
    """The actors of the seed's best evaluation so far instead of the last ones."""
    episode_seed: int = 0
    """Seed of the episode's start, the same for all actors."""
    json: bool = False
    """Print JSON."""


def replay(args: list[str]) -> None:
    """`fcritic replay DIR`: play, write the page, say what is in it."""
    from fcritic.api.load import load
    from fcritic.runs.directory import RunDirectory
    from fcritic.view.replaying import MOST_ACTORS, write_replay

    options = parse(ReplayOptions, args, "replay")
    require_episode_seed(options.episode_seed)
    run = RunDirectory.open_existing(options.directory)
    out = destination(options.out, run.place / "replay.html")
    require_writable(out, (".html", ".htm"))
    agent = load(options.directory, options.seed, options.best)
    chosen = sorted(set(options.actor)) or list(range(min(agent.actors, MOST_ACTORS)))
    for index in chosen:
        agent.policy(index)  # refuses what is not there before anything is played
    outcome = write_replay(agent, chosen, options.episode_seed, out)
    print(json.dumps(outcome, indent=2) if options.json else _text(outcome))


def require_episode_seed(seed: int) -> None:
    """Refuses a number that cannot seed an environment."""
    require_at_least(0, episode_seed=seed)
    if seed >= 2**32:
        raise UsageError(f"--episode-seed must be below {2**32}, not {seed}")


def require_writable(out: Place, suffixes: tuple[str, ...]) -> None:
    """Refuses a name that could not be written, before the work is done."""
    if out.path.suffix.lower() not in suffixes:
        raise UsageError(f"cannot write to {out}; give --out a name that ends in {' or '.join(suffixes)}")
    if not out.parent.is_folder():
        raise UsageError(f"the folder {out.parent} does not exist; make it or choose another --out")
    if out.is_folder():
        raise UsageError(f"{out} is a folder; choose another --out")
    if out.status() is not None and not out.is_file():
        raise UsageError(f"{out} is a link or not a plain file; remove it or choose another --out")


def _text(outcome: dict[str, Any]) -> str:
    lines = [f"{outcome['task']}, seed {outcome['seed']} at frame {outcome['frame']:,}"]
    for each in outcome["actors"]:
        line = f"  actor {each['actor']}: return {each['return']:.1f} in {each['steps']:,} actions"
        if each["critic"] is not None:
            said, measured = each["critic"]["value"], each["critic"]["measured"]
            line += f"; its critic says {said:.2f} per state, measured {measured:.2f}"
        lines.append(line)
    lines += [f"  {note}" for note in outcome["notes"]]
    return "\n".join([*lines, f"wrote {outcome['page']} ({outcome['bytes'] / 1e6:.2f} MB); open it in a browser"])
