"""`fcritic video DIR`: an episode of an actor as an mp4 file."""

import dataclasses
import json

from fcritic.cli.commands import Directory
from fcritic.cli.parsing import parse
from fcritic.cli.replay import require_episode_seed, require_writable
from fcritic.disk import destination
from fcritic.errors import UsageError, require_at_least

LARGEST = 4096


@dataclasses.dataclass(frozen=True)
class VideoOptions:
    """Films an episode of an actor. Needs OpenGL (EGL or OSMesa) and ffmpeg; `fcritic replay` needs neither."""

    directory: Directory
    """Directory of the run."""
    out: str | None = None
    """File to write, .mp4; without it video.mp4 in the directory of the run."""
    actor: int = 0
    """Number of the actor."""
    seed: int | None = None
    """Seed of the run whose actor is shown; without it the first."""
    best: bool = False
    """The actor of the seed's best evaluation so far instead of the last one."""
    episode_seed: int = 0
    """Seed of the episode's start."""
    width: int = 640
    """Pixels from side to side; tasks without MuJoCo choose their own."""
    height: int = 480
    """Pixels from top to bottom."""
    fps: int = 30
    """Pictures per second."""
    json: bool = False
    """Print JSON."""


def video(args: list[str]) -> None:
    """`fcritic video DIR`: play, draw, encode."""
    options = parse(VideoOptions, args, "video")
    require_episode_seed(options.episode_seed)
    require_at_least(16, width=options.width, height=options.height)
    require_at_least(1, fps=options.fps)
    if max(options.width, options.height) > LARGEST or options.fps > 240:
        raise UsageError(f"--width and --height must be at most {LARGEST}, --fps at most 240")
    from fcritic.api.load import load
    from fcritic.runs.directory import RunDirectory
    from fcritic.view.film import Film, choose_drawing, find_encoder, shoot

    run = RunDirectory.open_existing(options.directory)
    out = destination(options.out, run.place / "video.mp4")
    require_writable(out, (".mp4",))
    find_encoder()
    can_draw = choose_drawing()  # before anything asks for the suite's tasks, which imports MuJoCo
    agent = load(options.directory, options.seed, options.best)
    film = Film(out, options.width, options.height, options.fps, can_draw)
    outcome = {"film": str(out)} | shoot(agent, options.actor, options.episode_seed, film)
    played = f"return {outcome['return']:.1f} in {outcome['steps']:,} actions"
    text = f"wrote {out}: {outcome['frames']:,} pictures, {played}"
    print(json.dumps(outcome, indent=2) if options.json else text)
