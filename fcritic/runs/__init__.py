"""A run on disk: its directory, checkpoints, replay and journal."""
