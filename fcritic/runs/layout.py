"""The names of the files in a run directory, for those who write them and for those who only look."""

CONFIG, COMMANDS, VERSIONS, LOCK = "config.json", "command.txt", "versions.json", "lock"
METRICS, JOURNAL = "metrics.jsonl", "journal.jsonl"
CHECKPOINTS, REPLAY, TENSORBOARD = "checkpoints", "replay", "tensorboard"
