"""Runs written by hand, and what a watcher says of them."""

import json
from pathlib import Path

from fcritic.logs.metrics import JSONLog
from fcritic.view.watch.server import Watcher

MEAN = "evaluation/mean_actor"


def evaluation(frame, mean=1.0, seed=0, **more):
    values = {"mean_actor": mean, "best_actor": mean + 1, "actors": [mean - 1, mean + 1]}
    return {"seed": seed, "env_steps": frame, "kind": "evaluation"} | values | more


def episode(frame, total, seed=0):
    return {"seed": seed, "env_steps": frame, "kind": "episode", "env": 0, "return": total, "length": 10}


def a_run(folder: Path, rows=(), **config):
    folder.mkdir(parents=True)
    chosen = {"recipe": "fac", "task": "probe-both", "seeds": 1, "steps": 100} | config
    (folder / "config.json").write_text(json.dumps(chosen))
    (folder / "versions.json").write_text("{}")
    (folder / "lock").touch()
    log = JSONLog(folder / "metrics.jsonl")
    log.write(list(rows))
    return log


def only(watcher: Watcher) -> dict:
    (run,) = watcher.snapshot()["runs"]
    return run


def curve(watcher: Watcher, name=MEAN, since="") -> dict:
    answer = watcher.answer(since, [name], [])
    lines = [line for found in answer["curves"].values() for line in found.get(name, [])]
    return {seed: (frames, values) for seed, frames, values in lines}
