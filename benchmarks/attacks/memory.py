"""Does memory grow: over a hundred trainings in one process, and within a long one?"""

from collections.abc import Callable
import dataclasses
import gc
import os
from pathlib import Path
import shutil
import tempfile

from benchmarks.attacks.small import small_config, train_until
from fcritic.runs.directory import RunDirectory
from fcritic.training.loop import FREE_FIELDS, Training


def check(trainings: int, say: Callable[[str], None], iterations: int = 20_000) -> dict:
    """Growth in MB over `trainings` trainings after the first tenth, and over the second half of a long one."""
    many = _many(trainings, say)
    long = _long(iterations, say)
    passed = (many["grown_mb"] < 50) + (long["grown_mb"] < 5)
    return {"passed": passed, "of": 2, "trainings": many, "long_run": long}


def _many(trainings: int, say: Callable[[str], None]) -> dict:
    config = dataclasses.replace(small_config("td3"), steps=1200, save_every=800)
    sizes = []
    with tempfile.TemporaryDirectory() as name:
        for number in range(trainings):
            train_until(dataclasses.replace(config, seed=number), Path(name) / "run", config.iterations)
            shutil.rmtree(Path(name) / "run")
            sizes.append(resident_mb())
            if (number + 1) % 20 == 0:
                say(f"{number + 1} trainings: {sizes[-1]:.0f} MB")
    first = sizes[len(sizes) // 10]
    return {"count": trainings, "first_mb": round(first, 1), "grown_mb": round(sizes[-1] - first, 1)}


def _long(iterations: int, say: Callable[[str], None]) -> dict:
    """In its first half the ring, the logs and the caches reach their size."""
    config = small_config("td3")
    steps = iterations * config.frames_per_iteration
    config = dataclasses.replace(config, steps=steps, replay=1000, save_every=steps // 50, eval_every=steps // 10)
    sizes = []
    with (
        tempfile.TemporaryDirectory() as name,
        RunDirectory.create_or_open(Path(name) / "run", config.to_json(), "reliability", FREE_FIELDS) as run,
    ):
        training = Training.begin(config, run, quiet=True)
        for _ in range(10):
            training.advance(iterations // 10)
            sizes.append(resident_mb())
        training.close()
    say(f"{iterations} iterations: {' '.join(f'{size:.0f}' for size in sizes)} MB")
    grown = round(sizes[-1] - sizes[4], 1)
    return {"iterations": iterations, "mb": [round(size, 1) for size in sizes], "grown_mb": grown}


def peak_mb() -> float:
    """The most memory that this process has held.

    Not what `getrusage` says: on Linux that begins with the peak of the process that started this one.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def resident_mb() -> float:
    """Memory that this process holds now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
