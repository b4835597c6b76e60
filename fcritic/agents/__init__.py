"""Algorithms: frozen dataclasses of numbers whose methods take and return states."""
