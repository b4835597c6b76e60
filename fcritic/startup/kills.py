"""Killed without warning, again and again, under frequent saves: does it always go on, and to the same end?"""

from collections.abc import Callable
import os
from pathlib import Path
import random
import subprocess
import sys
import tempfile
import time

from fcritic.logs.metrics import read_rows
from fcritic.runs.directory import RunDirectory
from fcritic.runs.fingerprint import fingerprint

SAVE_EVERY, FRAMES_PER_ITERATION = 80, 40
SMALL = (
    "--recipe td3 --task acrobot-swingup --action-repeat 20 --envs 2 --seeds 2 --warmup 400 --replay 200 "
    "--batch-size 8 --actor-hidden 8 --critic-hidden 8 --eval-every 2000 --keep 2 "
    f"--log-every 1 --save-every {SAVE_EVERY}"
).split()
"""A row of losses in every iteration shows the frame at which a process was killed."""

PATIENCE = 300.0
"""Seconds after which a process that shows no progress counts as hung."""


def check(count: int, say: Callable[[str], None], seed: int = 0) -> dict:
    """`count` kills -9 of one training, each continued by `resume`; then the end beside an uninterrupted run's."""
    generator = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _finish(folder, "first", 1000)  # compiles all programs, which a short life would never finish
        lives = []
        for number in range(count):
            lives.append(_one_life(folder, generator))
            if (number + 1) % 20 == 0:
                say(f"{number + 1} of {count} kills; at frame {lives[-1]['saved']:,}")
        end = lives[-1]["saved"] + 1000
        _finish(folder, "killed", end)
        _finish(folder, "whole", end)
        same = fingerprint(folder / "killed") == fingerprint(folder / "whole")
        bytes_same = _metrics(folder, "killed").read_bytes() == _metrics(folder, "whole").read_bytes()
    lost = [life["lost"] for life in lives]
    continued = sum(life["continued"] for life in lives)
    return {
        "passed": continued,
        "of": count,
        "most_frames_lost": max(lost),
        "save_interval": SAVE_EVERY,
        "within_one_interval": max(lost) <= SAVE_EVERY + FRAMES_PER_ITERATION,
        "same_end": same and bytes_same,
        "frames": end,
    }


def _one_life(folder: Path, generator: random.Random) -> dict:
    """Starts or continues the training, kills it at a random moment, and returns what was kept."""
    before = _saved(folder)
    metrics = _metrics(folder, "killed")
    size = metrics.stat().st_size if metrics.exists() else 0
    with subprocess.Popen(_command(folder, "killed", 10**9), **_quiet()) as process:
        if generator.random() < 0.9:  # otherwise anywhere in the start, the restoring included
            continued = _wait_for_rows(process, metrics, size)
            time.sleep(generator.uniform(0.0, 1.5))
        else:
            time.sleep(generator.uniform(0.0, 4.0))
            continued = process.poll() is None
        process.kill()
        process.wait()
    saved = _saved(folder)
    reached = max((int(row["env_steps"]) for row in read_rows(metrics)), default=0) if metrics.exists() else 0
    return {"continued": continued and saved >= before, "saved": saved, "lost": max(0, reached - saved)}


def _wait_for_rows(process: subprocess.Popen, metrics: Path, size: int) -> bool:
    """Until the process has written rows of its own: first it cuts the file back, then it grows."""
    deadline, smallest = time.monotonic() + PATIENCE, size
    while time.monotonic() < deadline and process.poll() is None:
        now = metrics.stat().st_size if metrics.exists() else 0
        smallest = min(smallest, now)
        if now > smallest:
            return True
        time.sleep(0.01)
    return False


def _saved(folder: Path) -> int:
    """The frame from which the training would continue."""
    newest = RunDirectory(folder / "killed").latest_checkpoint()
    return 0 if newest is None else int(newest.name.removeprefix("step-"))


def _finish(folder: Path, name: str, steps: int) -> None:
    subprocess.run(_command(folder, name, steps), check=True, **_quiet())


def _metrics(folder: Path, name: str) -> Path:
    return folder / name / "metrics.jsonl"


def _command(folder: Path, name: str, steps: int) -> list[str]:
    options = [*SMALL, "--steps", str(steps), "--quiet", "--out", str(folder / name)]
    return [sys.executable, "-m", "fcritic", "train", *options]


def _quiet() -> dict:
    # Small programs are kept too, so that 200 starts do not compile 200 times.
    environment = os.environ | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    return {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
