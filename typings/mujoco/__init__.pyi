"""MuJoCo is compiled and ships no types; all that it has is taken as `Any`."""

from typing import Any

def __getattr__(name: str) -> Any: ...
