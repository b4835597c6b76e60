"""How fast the whole training is, environments included, beside its updates alone."""

from collections.abc import Iterator
from contextlib import contextmanager
import dataclasses
import os
from pathlib import Path
import statistics
import tempfile
import time
from typing import Any

import jax

from fcritic.config import MOST_ITERATIONS, TrainConfig
from fcritic.errors import require_at_least
from fcritic.runs.directory import RunDirectory
from fcritic.startup.backend import prepare, wake_device
from fcritic.training.loop import Training

NEVER = MOST_ITERATIONS
_IMPORTED = time.perf_counter()


@dataclasses.dataclass(frozen=True)
class Options:
    """Frames per second of the whole training, and the share of time in which the device waits for the host."""

    recipe: str = "fac-shared"
    """Which recipe."""
    task: str = "cheetah-run"
    """As for `fcritic train`."""
    seeds: int = 4
    """Seeds side by side."""
    envs: int = 4
    """Environments per seed."""
    env_processes: int = 0
    """Worker processes for the environments; 0: none."""
    warmup: int = 10_000
    """Frames without learning, before the measurement."""
    rounds: int = 5
    """Rounds; each times the training, then its updates alone."""
    iterations: int = 200
    """Iterations of one round."""
    out: str | None = None
    """File for the JSON."""
    json: bool = False
    """Print JSON."""

    def __post_init__(self) -> None:
        counts = ("seeds", "envs", "rounds", "iterations")
        require_at_least(1, **{name: getattr(self, name) for name in counts})


def measure(options: Options, say=lambda line: None) -> dict[str, Any]:
    """Times of the loop and of its parts; evaluation and checkpoints are put off."""
    imported = seconds_since_start()
    prepare()
    wake_device()
    # Whatever options the training has under the same name are passed on.
    shared = {field.name for field in dataclasses.fields(TrainConfig)} & vars(options).keys() - {"recipe"}
    settings = {name: getattr(options, name) for name in shared}
    config = TrainConfig.of(options.recipe, **settings, steps=NEVER, eval_every=NEVER, save_every=NEVER)
    with (
        tempfile.TemporaryDirectory() as folder,
        RunDirectory.create_or_open(f"{folder}/run", config.to_json(), "bench", frozenset()) as run,
    ):
        training = Training.begin(config, run, quiet=True)
        starts = {"seconds_of_imports": round(imported, 2)} | _first_update(training, imported)
        say(f"first update {starts['seconds_to_first_update']:.1f} s after the start of the process")
        training.advance(20)
        rounds = [_round(training, options.iterations) for _ in range(options.rounds)]
        training.close()
    return _report(config, rounds) | starts


def seconds_since_start() -> float:
    """Since the operating system started the process; where it does not tell, since this module was imported."""
    try:
        # The second field, a name in brackets, may hold spaces; the 22nd counts ticks since the machine started.
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError, ValueError, IndexError):  # not Linux
        return time.perf_counter() - _IMPORTED


def _first_update(training: Training, imported: float) -> dict[str, float]:
    """The parts of the time to the first update, and within the warm-up that in the environments and until the
    programs are there; `seconds_to_` both of these count from the start of the process."""
    built, ready = seconds_since_start(), []
    training.device.when_compiled(lambda: ready.append(seconds_since_start()))
    with _timed_environments(training) as inside:
        training.advance(training.config.warmup_iterations)
    warm = seconds_since_start()
    training.advance(1)
    training.device.wait()
    seconds = {
        "seconds_to_build": built - imported,
        "seconds_of_warmup": warm - built,
        "seconds_of_environments_in_warmup": sum(inside),
        "seconds_to_programs": max(ready),
        "seconds_to_first_update": seconds_since_start(),
    }
    return {name: round(value, 2) for name, value in seconds.items()}


@contextmanager
def _timed_environments(training: Training) -> Iterator[list[float]]:
    """A list that gets the seconds of every step of the environments."""
    inside, step = [], training.vector.step

    def timed_step(actions):
        start = time.perf_counter()
        answer = step(actions)
        inside.append(time.perf_counter() - start)
        return answer

    training.vector.step = timed_step
    yield inside
    del training.vector.step


def _round(training: Training, iterations: int) -> dict[str, float]:
    """Seconds per iteration of the loop, of its updates alone, and of the environments in it."""
    training.device.wait()
    with _timed_environments(training) as inside:
        start = time.perf_counter()
        training.advance(iterations)
        training.device.wait()
        whole = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(iterations):
        training.device.learn(training.pending, training.progress.iteration)
    training.device.wait()
    alone = time.perf_counter() - start
    return {"loop": whole / iterations, "update": alone / iterations, "environments": sum(inside) / iterations}


def _report(config: TrainConfig, rounds: list[dict[str, float]]) -> dict[str, Any]:
    loop, update, environments = (
        statistics.median(one[name] for one in rounds) for name in ("loop", "update", "environments")
    )
    frames = config.seeds * config.frames_per_iteration
    return {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "recipe": config.recipe,
        "task": config.task,
        "seeds": config.seeds,
        "envs": config.envs,
        "frames_per_second": round(frames / loop, 1),
        "ms_per_iteration": round(1000 * loop, 3),
        "ms_spread": [round(1000 * pick(one["loop"] for one in rounds), 3) for pick in (min, max)],
        "ms_of_updates_alone": round(1000 * update, 3),
        "ms_of_environments": round(1000 * environments, 3),
        "over_updates_alone": round(loop / update - 1, 3),
        "share_device_waits": round(max(0.0, 1 - update / loop), 3),
    }


def report_text(report: dict[str, Any]) -> str:
    """A few lines for a person."""
    return (
        f"{report['recipe']} on {report['task']}, {report['seeds']} seeds x {report['envs']} environments, "
        f"{report['device']}: {report['frames_per_second']:.0f} frames/s\n"
        f"an iteration takes {report['ms_per_iteration']:.2f} ms, its updates alone "
        f"{report['ms_of_updates_alone']:.2f} ms, the environments {report['ms_of_environments']:.2f} ms; "
        f"the device waits {report['share_device_waits']:.0%} of the time\n"
        f"first update {report['seconds_to_first_update']:.1f} s after the start of the process "
        f"({report['seconds_of_imports']:.1f} s of imports, {report['seconds_to_build']:.1f} s to build, "
        f"{report['seconds_of_warmup']:.1f} s of warm-up)"
    )
