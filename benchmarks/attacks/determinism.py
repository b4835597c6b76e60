"""The same seed in two fresh processes: the same hashes?"""

from collections.abc import Callable
from pathlib import Path
import subprocess
import sys
import tempfile

from benchmarks import own_environment
from benchmarks.attacks.small import RECIPES
from fcritic.runs.fingerprint import fingerprint


def check(count: int, say: Callable[[str], None], recipes: tuple[str, ...] = RECIPES) -> dict:
    """Every recipe in `count` processes of its own."""
    results = {}
    for recipe in recipes:
        with tempfile.TemporaryDirectory() as folder:
            prints = [_in_a_process(recipe, Path(folder) / str(number)) for number in range(count)]
        results[recipe] = all(each == prints[0] for each in prints)
        say(f"{recipe}: {'equal' if results[recipe] else 'different'} in {count} processes")
    return {"passed": sum(results.values()), "of": len(results), "recipes": results}


def _in_a_process(recipe: str, out: Path) -> dict:
    command = [sys.executable, "-m", "benchmarks.attacks.small", recipe, str(out)]
    subprocess.run(command, check=True, env=own_environment())
    return fingerprint(out)
