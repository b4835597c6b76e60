"""A trained agent to give away: what acting and looking need, without the replay, and a card."""

import json
from pathlib import Path
import re
import shlex
import shutil
from typing import Any

from fcritic.config import TrainConfig
from fcritic.disk import replace_file
from fcritic.errors import UsageError, cannot_write
from fcritic.logs.metrics import read_rows
from fcritic.results.read import ROLLOUT_EPISODES
from fcritic.runs import checkpoint
from fcritic.runs.directory import COMMANDS, CONFIG, VERSIONS, RunDirectory

GROUPS = ("agent", "best")
"""The parts of a checkpoint that an exported one keeps."""


def export(run: RunDirectory, out: str | Path, outcome: dict[str, Any]) -> Path:
    """Writes the newest checkpoint of a run, with its curves and a card, to a folder of its own.

    `outcome` is an evaluation of it (`fcritic.results.read.evaluation_report`), for the card. The folder is a run
    directory that can be evaluated and looked into, but not trained on.
    """
    out, newest = Path(out), run.latest_checkpoint()
    if newest is None:
        raise UsageError(f"{run.path} has no checkpoint yet; continue it with fcritic resume")
    require_free(out)
    groups, facts = checkpoint.load(newest, list(GROUPS))
    kept = {name: value for name, value in facts.items() if name != "replay"} | {"exported": True}
    part = out.with_name(f"{out.name}.part")  # so that a failure leaves nothing that looks like an agent
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        checkpoint.save(part / "checkpoints" / newest.name, groups, kept)
        for name in (VERSIONS, CONFIG):
            shutil.copyfile(run.path / name, part / name)
        replace_file(part / COMMANDS, "".join(f"{line}\n" for line in _commands(run)).encode())
        replace_file(part / "metrics.jsonl", _curves(run).encode())
        replace_file(part / "README.md", card(run, outcome).encode())
        part.rename(out)
    except OSError as error:
        raise cannot_write("the agent", out, error) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return out


def require_free(out: str | Path) -> None:
    """Refuses to write over anything."""
    if Path(out).exists():
        raise UsageError(f"{out} exists already; choose another --out")


def card(run: RunDirectory, outcome: dict[str, Any]) -> str:
    """The model card: what it is, how it was made, how well it does, what it is not."""
    config, versions = TrainConfig.from_json(run.config), json.loads((run.path / VERSIONS).read_text())
    rows = [
        f"| {seed['seed']} | {seed['mean_actor']:.1f} | {', '.join(f'{value:.0f}' for value in seed['actors'])} |"
        for seed in outcome["seeds"]
    ]
    return "\n".join(
        [
            f"# {config.recipe} on {config.task}",
            "",
            f"An agent of fcritic: recipe `{config.recipe}`, {outcome['env_steps']:,} frames, action "
            f"repeat {config.action_repeat}, {config.envs} environment{'s' if config.envs > 1 else ''} per seed.",
            "",
            f"Undiscounted return, {outcome['episodes_per_actor']} fresh episodes per actor, without exploration:",
            "",
            "| seed | mean actor | every actor |",
            "|---|---|---|",
            *rows,
            "",
            "Made with",
            "",
            *(f"    {line}" for line in _commands(run)),
            "",
            f"under {', '.join(f'{name} {versions[name]}' for name in ('python', 'jax') if name in versions)}. "
            "Use it with",
            "",
            f"    fcritic evaluate {shlex.quote(run.path.name)}",
            f"    fcritic replay {shlex.quote(run.path.name)} --out episode.html",
            "",
            "It holds no replay: it can act and be looked into, but not be trained on. It was trained in "
            "simulation, on this one task, and is good for nothing else.",
            "",
        ]
    )


def _commands(run: RunDirectory) -> list[str]:
    """The commands of the run, without their dates and without the folders of the machine."""
    lines = [line.partition("fcritic ") for line in (run.path / COMMANDS).read_text().splitlines()]
    return [re.sub(r" --out[ =]('[^']*'|\S+)", "", name + options) for _, name, options in lines if name]


def _curves(run: RunDirectory) -> str:
    """The evaluations and the last training episodes: what evaluation and pictures read."""
    rows = read_rows(run.metrics_path)
    lines = run.metrics_path.read_text().splitlines()
    episodes: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        if row["kind"] == "episode":
            episodes.setdefault(row["seed"], []).append(place)
    kept = {place for place, row in enumerate(rows) if row["kind"] == "evaluation"}
    kept |= {place for places in episodes.values() for place in places[-ROLLOUT_EPISODES:]}
    return "".join(f"{lines[place]}\n" for place in sorted(kept))
