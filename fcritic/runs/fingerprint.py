"""All of a run in a few hashes: two trainings are the same, bit for bit, if theirs are."""

import hashlib
from pathlib import Path

from fcritic.disk import hash_of
from fcritic.errors import CheckpointError
from fcritic.runs import checkpoint
from fcritic.runs.directory import RunDirectory
from fcritic.runs.replay_log import Record, ReplayLog


def fingerprint(path: str | Path) -> dict[str, str | int]:
    """Returns hashes of the newest checkpoint's parts, of the replay and of the metrics, and their frame."""
    run = RunDirectory.open_existing(path)
    newest = run.require_checkpoint()
    manifest = checkpoint.verify(newest)
    facts, capacity = manifest["facts"], run.config.get("replay")
    row, position = facts.get("row"), facts.get("log_position")
    counts = [*row, capacity, position] if isinstance(row, list) else [None]
    if not all(type(count) is int and 0 <= count < 2**53 for count in counts):
        raise CheckpointError(f"{newest} does not say how large its rows are; continue it with fcritic resume")
    rows = ReplayLog(run.replay, row, capacity).rows(Record.of(facts, capacity))
    with run.metrics.reading() as file:
        metrics = hash_of(file, position)
    return {
        "frame": facts["env_steps"],
        **{group: entry["sha256"] for group, entry in sorted(manifest["groups"].items())},
        "replay": hashlib.sha256(rows).hexdigest(),
        "metrics": metrics.hexdigest(),
    }
