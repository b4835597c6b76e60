"""All of a run in a few hashes: two trainings are the same, bit for bit, if theirs are."""

import hashlib
from pathlib import Path

from fcritic.api.trust import config_of
from fcritic.disk import hash_of
from fcritic.envs import task_spec
from fcritic.runs import checkpoint
from fcritic.runs.directory import RunDirectory
from fcritic.runs.replay_log import parse_pieces
from fcritic.runs.snapshot import replay_log_of, replay_record


def fingerprint(path: str | Path) -> dict[str, str | int]:
    """Hashes of the newest checkpoint's parts, of the replay and of the metrics, and the frame they belong to."""
    run = RunDirectory.open_existing(path)
    config = config_of(run)
    manifest = checkpoint.verify(run.require_checkpoint())
    facts = manifest["facts"]
    record = replay_record(facts, config.replay)
    rows = replay_log_of(run, config, task_spec(config.task)).read(parse_pieces(record["pieces"]), record["oldest"])
    with run.metrics.reading() as file:
        metrics = hash_of(file, facts["log_position"])
    return {
        "frame": facts["env_steps"],
        **{group: entry["sha256"] for group, entry in sorted(manifest["groups"].items())},
        "replay": hashlib.sha256(rows).hexdigest(),
        "metrics": metrics.hexdigest(),
    }
