"""One set of transitions, whichever autoreset mode a Gymnasium vector environment declares."""

from functools import partial

from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
import numpy as np
import pytest

from benchmarks.attacks.sick import Short
from fcritic import envs
from fcritic.envs import GymEnv, VectorEnv
from fcritic.errors import EnvironmentFault, UsageError

SEEDS, COPIES, STEPS = [3, 8], 3, 60


def record(vector):
    """Everything that comes out of a vector in some steps."""
    rng = np.random.default_rng(1)
    rows, episodes = [vector.obs.copy()], []
    for _ in range(STEPS):
        transition, ended = vector.step(rng.uniform(-1, 1, (*vector.shape, 2)).astype(np.float32))
        rows += [*(np.array(part) for part in transition[:5]), vector.obs.copy(), vector.fresh.copy()]
        episodes += ended
    return rows, episodes


def singles(seeds, kind="box"):
    numbers = envs.copy_seeds(seeds, COPIES, "train")
    return VectorEnv([[GymEnv(Short(kind), seed=seed) for seed in row] for row in numbers])


def gym_vector(mode, kind="box", make=SyncVectorEnv, **options):
    return make([partial(Short, kind)] * len(SEEDS) * COPIES, autoreset_mode=mode, **options)


def assert_same(one, other):
    assert one[1] == other[1]
    for left, right in zip(one[0], other[0], strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("kind", ["box", "dict"])
@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("seeds", [SEEDS, [0, 1], [100, 7]])
def test_every_mode_gives_the_same_transitions(mode, kind, seeds):
    expected = record(singles(seeds, kind))
    assert len(expected[1]) > 60 and {episode.length_in_steps for episode in expected[1]} == {1, 2, 3, 4, 5}
    discounts = np.stack(expected[0][4::7])
    assert 0 < discounts.mean() < 1
    vector = envs.from_gym_vector(gym_vector(mode, kind), seeds=seeds)
    assert_same(record(vector), expected)
    numbers = envs.copy_seeds([5, 6], COPIES, "train")
    vector.restart(numbers)
    assert_same(record(vector), record(singles([5, 6], kind)))


def test_the_same_from_processes_of_gymnasium():
    vector = envs.from_gym_vector(gym_vector("NextStep", make=AsyncVectorEnv, context="spawn"), seeds=SEEDS)
    try:
        assert_same(record(vector), record(singles(SEEDS)))
    finally:
        vector.close()


def test_resume_begins_episodes_and_says_so():
    one, other = (envs.from_gym_vector(gym_vector("NextStep"), seeds=SEEDS) for _ in range(2))
    record(one)
    assert other.restore(one.state()) == 6
    assert other.fresh.all() and other.steps == STEPS
    record(other)


class Forgetful(SyncVectorEnv):
    """Goes wrong in the way it is told to."""

    wrong = ""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=None if self.wrong == "mask" else options)

    def step(self, actions):
        if self.wrong == "raise":
            raise ValueError("joint\nfell off")
        obs, reward, terminated, truncated, infos = super().step(actions)
        if self.wrong == "final":
            infos.pop("final_obs", None)
        if self.wrong == "flags":
            terminated = terminated.astype(int)
        if self.wrong == "nan":
            obs[4, 1, 0] = np.nan
        return obs, reward, terminated, truncated, infos


@pytest.mark.parametrize(
    "wrong, mode, says",
    [
        ("mask", "NextStep", "a reset with a mask moved it too; make the .* SAME_STEP"),
        ("mask", "Disabled", "a reset with a mask moved it too"),
        ("final", "SameStep", "observation is None, not an array of numbers"),
        ("flags", "NextStep", "terminations are int64, not True or False"),
        ("raise", "SameStep", r"step raised ValueError: joint fell off \(in this or another of the 6"),
        ("nan", "Disabled", r"observation\[2\] is nan"),
    ],
)
def test_what_goes_wrong_is_named(wrong, mode, says):
    inner = gym_vector(mode, make=Forgetful)
    vector = envs.from_gym_vector(inner, seeds=SEEDS)
    inner.wrong = wrong
    with pytest.raises(EnvironmentFault, match=rf"Forgetful \(seed index \d, environment \d\): {says}"):
        record(vector)


def test_what_cannot_be_used_is_refused():
    for declared in (None, "Sometimes"):
        inner = gym_vector("NextStep")
        inner.metadata = {"autoreset_mode": declared} if declared else {}
        with pytest.raises(UsageError, match=f"autoreset mode {declared}; set metadata"):
            envs.from_gym_vector(inner, seeds=SEEDS)
    with pytest.raises(UsageError, match="6 sub-environments cannot be shared out among 4 seeds"):
        envs.from_gym_vector(gym_vector("NextStep"), seeds=[0, 1, 2, 3])
