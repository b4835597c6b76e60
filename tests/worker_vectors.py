"""Vectors of environments that are closed after their test, the processes of their workers, and their actions."""

import numpy as np
import pytest
from sick_vectors import TASK

from fcritic import envs


@pytest.fixture
def make():
    """Builds vectors that are closed when the test is over."""
    made = []

    def build(task=TASK, *, seeds=(0, 1), count=2, **options):
        made.append(envs.make_vector(task, seeds=list(seeds), envs=count, **options))
        return made[-1]

    yield build
    for vector in made:
        vector.close()


def pids(vector):
    return vector._group.pids


def random_actions(vector, count, seed=0):
    shape = (count, *vector.shape, vector.spec.act_dim)
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
