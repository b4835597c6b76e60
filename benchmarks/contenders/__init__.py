"""Processes that train when asked: a recipe of ours, and the peers beside it."""
