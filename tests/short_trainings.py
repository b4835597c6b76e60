"""Trainings of a few dozen iterations, for the tests of how one begins."""

from contextlib import contextmanager

import pytest

from fcritic.config import TrainConfig
from fcritic.runs.directory import RunDirectory
from fcritic.training.loop import Training
from fcritic.types import EnvSpec

SPEC = EnvSpec(obs_dim=3, act_dim=2)


@pytest.fixture
def config(tiny) -> TrainConfig:
    """A warm-up of 45 iterations in which episodes of 25 steps end, with an evaluation and a checkpoint in it."""
    often = {"eval_every": 3000, "log_every": 400, "save_every": 1600}
    where = {"task": "acrobot-swingup", "action_repeat": 40, "envs": 2, "seeds": 2, "seed": 3}
    return TrainConfig(tiny, **where, steps=4800, warmup=3600, replay=40, **often)


@contextmanager
def training_of(config, path):
    with RunDirectory.create_or_open(path, config.to_json(), "test") as run:
        training = Training.begin(config, run, quiet=True)
        try:
            yield training
        finally:
            training.close()
