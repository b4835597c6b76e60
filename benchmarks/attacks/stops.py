"""Stopped anywhere and continued: is it, bit for bit, the training that was never stopped?"""

from collections.abc import Callable
from pathlib import Path
import random
import shutil
import tempfile

from benchmarks.attacks.small import RECIPES, small_config, train_until
from fcritic.runs.fingerprint import fingerprint


def check(count: int, say: Callable[[str], None], recipes: tuple[str, ...] = RECIPES) -> dict:
    """`count` random stop points for every recipe; each time all hashes and every byte of the metrics."""
    results, generator = {}, random.Random(0)
    for recipe in recipes:
        with tempfile.TemporaryDirectory() as folder:
            results[recipe] = _one_recipe(recipe, count, generator, Path(folder))
        say(f"{recipe}: {results[recipe]['equal']} of {count} stop points continued bit for bit")
    passed, of = sum(each["equal"] for each in results.values()), count * len(recipes)
    return {"passed": passed, "of": of, "recipes": results}


def _one_recipe(recipe: str, count: int, generator: random.Random, folder: Path) -> dict:
    config = small_config(recipe)
    train_until(config, folder / "whole", config.iterations)
    expected = fingerprint(folder / "whole")
    stops = sorted(generator.sample(range(1, config.iterations), count))
    different = []
    for stop in stops:
        train_until(config, folder / "parts", stop)
        train_until(config, folder / "parts", config.iterations)
        if fingerprint(folder / "parts") != expected:
            different.append(stop)
        shutil.rmtree(folder / "parts")
    return {"equal": count - len(different), "stops": stops, "different": different}
