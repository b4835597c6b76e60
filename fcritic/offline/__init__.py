"""Logged data and candidate policies: what an evaluator of policies learns from, whatever program made it."""
