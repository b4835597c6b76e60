"""A trained agent to share: everything that acting and the viewers need, without the replay, and a card."""

from collections import deque
import json
import os
from pathlib import Path
import re
import shlex
from typing import Any

from fcritic.config import TrainConfig
from fcritic.disk import Place
from fcritic.errors import UsageError, one_line, writing
from fcritic.logs.metrics import each_row
from fcritic.results.read import ROLLOUT_EPISODES
from fcritic.runs import CHECKPOINTS, COMMANDS, CONFIG, METRICS, VERSIONS, checkpoint
from fcritic.runs.directory import LONGEST_COMMAND, RunDirectory
from fcritic.training.saving import ACTING


def export(run: RunDirectory, out: str | Path, outcome: dict[str, Any]) -> Path:
    """Writes the newest checkpoint of a run, with its curves and a card, to a folder of its own.

    `outcome` is an evaluation of it (`fcritic.results.read.evaluation_report`), for the card. The folder is a run
    directory that can be evaluated and looked into, but not trained on.
    """
    out, newest = Path(out), run.require_checkpoint()
    require_free(out)
    groups, facts = checkpoint.load(newest, list(ACTING))
    kept = {name: value for name, value in facts.items() if name != "replay"} | {"exported": True}
    files = {
        VERSIONS: json.dumps(run.versions(), indent=2) + "\n",
        CONFIG: json.dumps(run.config, indent=2) + "\n",
        COMMANDS: "".join(f"{line}\n" for line in _commands(run)),
        "README.md": card(run, outcome, out.name),
    }
    place = Place.of(os.path.abspath(out))
    # Beside it, so that a failure leaves nothing that looks like an agent.
    with writing("the agent", out), place.new_beside() as part:
        checkpoint.save(part / CHECKPOINTS / newest.name, groups, kept)
        for name, text in files.items():
            (part / name).write_new(text.encode())
        (part / METRICS).write_new(_curves(run))
        part.rename(place.name)
    return out


def require_free(out: str | Path) -> None:
    """Refuses to write over anything."""
    if os.path.lexists(out):
        raise UsageError(f"{out} exists already; choose another --out")


def card(run: RunDirectory, outcome: dict[str, Any], folder: str) -> str:
    """The model card of an agent in a folder: what it is, how it was made, how well it does, what it is not."""
    config, versions = TrainConfig.from_json(run.config), run.versions()
    made_with = [f"{name} {one_line(str(versions[name]), 100)}" for name in ("python", "jax") if name in versions]
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
            f"under {', '.join(made_with)}. Use it with",
            "",
            f"    fcritic evaluate {shlex.quote(folder)}",
            f"    fcritic replay {shlex.quote(folder)} --out episode.html",
            "",
            "It has no replay: it can act, be inspected and start another training (`fcritic train --from`), but "
            "not resume. It was trained in simulation on this one task; how it does elsewhere was not measured.",
            "",
        ]
    )


def _commands(run: RunDirectory) -> list[str]:
    """The commands of the run, without their dates and without the folders of the machine."""
    lines = [one_line(line, LONGEST_COMMAND).partition("fcritic ") for line in run.commands()]
    return [re.sub(r" --out[ =]('[^']*'|\S+)", "", name + options) for _, name, options in lines if name]


def _curves(run: RunDirectory) -> bytes:
    """The evaluations and the last training episodes: what evaluation and pictures read."""
    last: dict[int, deque[int]] = {}
    kept: dict[int, bytes] = {}
    for place, (line, row) in enumerate(each_row(run.metrics)):
        if row["kind"] == "evaluation":
            kept[place] = line
        elif row["kind"] == "episode":
            places = last.setdefault(row["seed"], deque())
            places.append(place)
            kept[place] = line
            if len(places) > ROLLOUT_EPISODES:
                del kept[places.popleft()]
    return b"".join(kept[place] + b"\n" for place in sorted(kept))
