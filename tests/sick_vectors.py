"""Vectors with an environment that can be made sick, how they are played, and what is compared of them."""

import numpy as np
import pytest

from fcritic import envs

TASK = "benchmarks.attacks.sick:Walk-v0"
SICK = (1, 0)


@pytest.fixture
def plan(monkeypatch):
    """Makes one environment do something in one step of its life."""

    def set_plan(what, at=4, place=SICK, salt="train"):
        seed = "*" if place is None else envs.copy_seeds([0, 1], 2, salt)[place[0]][place[1]]
        monkeypatch.setenv("FCRITIC_SICK", f"{seed},{at},{what}")

    return set_plan


def actions(count, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 2, 2, 1)).astype(np.float32)


def play(env, acts):
    """Transitions and episodes of each step, and the observations and flags after it."""
    rows = []
    for act in acts:
        transition, episodes = env.step(act)
        rows.append(([np.array(part) for part in transition[:5]], episodes, env.obs.copy(), env.fresh.copy()))
    return rows


def assert_same_elsewhere(one, other, sick=(SICK,)):
    """Equal bit for bit in all environments but the sick ones."""
    healthy = np.ones((2, 2), bool)
    for place in sick:
        healthy[place] = False
    for (parts, episodes, *after), (parts2, episodes2, *after2) in zip(one, other, strict=True):
        for left, right in zip([*parts, *after], [*parts2, *after2], strict=True):
            np.testing.assert_array_equal(left[healthy], right[healthy])
        keep = lambda found: [episode for episode in found if episode[:2] not in sick]
        assert keep(episodes) == keep(episodes2)


def assert_true_transitions(rows, first):
    """Each transition continues where the one before ended, or begins an episode."""
    obs = first
    for parts, _, after, _ in rows:
        for place in np.ndindex(2, 2):
            began = parts[0][place][0] == 0  # the time in its episode
            assert began or (parts[0][place] == obs[place]).all()
            assert parts[4][place][0] == parts[0][place][0] + 1
            np.testing.assert_allclose(parts[2][place], 2 * parts[1][place][0], rtol=1e-6)
        obs = after
