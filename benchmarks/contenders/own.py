"""Trains a recipe on request, and tells how long it took: the same dialogue as `peer.py`.

    python -m benchmarks.contenders.own RECIPE TASK WARMUP

It is the real training loop, with its logs. Evaluation and checkpoints are put off and observations are not
normalised, because the peers do none of these.
"""

import json
import sys
import tempfile
import time

from fcritic.config import MOST_ITERATIONS, TrainConfig
from fcritic.runs.directory import RunDirectory
from fcritic.runs.versions import versions
from fcritic.startup.backend import prepare
from fcritic.training.loop import Training

NEVER = MOST_ITERATIONS


def main(recipe: str, task: str, warmup: int) -> None:
    """Builds the training, lets it begin to learn, and serves requests until the input ends."""
    prepare()
    config = TrainConfig.of(
        recipe, task=task, warmup=warmup, normalize=False, steps=NEVER, eval_every=NEVER, save_every=NEVER
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        RunDirectory.create_or_open(f"{folder}/run", config.to_json(), "bench", frozenset()) as run,
    ):
        training = Training.begin(config, run, quiet=True)
        training.advance(config.warmup_iterations + 100)
        _tell({"settings": config.to_json(), "versions": versions()})
        for line in sys.stdin:
            start = time.perf_counter()
            training.advance(int(line))
            training.device.wait()
            _tell({"steps": int(line), "seconds": time.perf_counter() - start})


def _tell(message: dict) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
