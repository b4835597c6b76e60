"""Watching runs while they train: reads what they write, changes nothing. Uses the standard library alone."""
