"""A run on disk: its directory, checkpoints, replay and journal. It does not depend on agents.

Here are the names of the files, for writers and readers.
"""

CONFIG, COMMANDS, VERSIONS, LOCK = "config.json", "command.txt", "versions.json", "lock"
METRICS, JOURNAL, CHANGES = "metrics.jsonl", "journal.jsonl", "changes.jsonl"
METRICS_LIMIT = 2**30
"""Bytes of metrics that are read as a whole; a run of ten million episodes has fewer."""

CHECKPOINTS, REPLAY, TENSORBOARD = "checkpoints", "replay", "tensorboard"
