import gymnasium
from gymnasium.wrappers import NormalizeReward
import numpy as np
import pytest
import safetensors.numpy

from fcritic import envs
from fcritic.envs import GymEnv, ProbeEnv, Step, VectorEnv
from fcritic.errors import EnvironmentFault, UsageError
from fcritic.types import EnvSpec, Transition


class Scripted(envs.AbstractEnv):
    """Counts its steps in the observation; ends after `length`; goes wrong in step 2 when told to."""

    spec = EnvSpec(obs_dim=2, act_dim=1)
    name = "scripted"

    def __init__(self, length=3):
        self.length, self.wrong, self.count, self.episode = length, None, 0, -1

    def obs(self):
        return np.array([self.episode, self.count], np.float32)

    def reset(self):
        self.count, self.episode = 0, self.episode + 1
        return np.array([0, np.inf]) if self.wrong == "reset" else self.obs()

    def reseed(self, seed):
        self.episode = -1

    def step(self, action):
        self.count += 1
        obs, reward = self.obs(), float(action[0]) + self.count
        if self.count == 2:
            if self.wrong == "observation":
                obs[1] = np.nan
            if self.wrong == "reward":
                reward = np.inf
            if self.wrong == "raise":
                raise ValueError("joint fell off")
        return Step(obs, reward, 1.0, self.count == self.length)

    def state(self):
        return None

    def restore(self, state):
        raise NotImplementedError


def actions(vector, count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (count, *vector.shape, vector.spec.act_dim)).astype(np.float32)


def arrays(transition, episodes=()):
    fields = (getattr(transition, name) for name in ("obs", "act", "reward", "discount", "next_obs"))
    return [*fields, np.array(episodes)]


def assert_same(one, other):
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("task, repeat", [("cartpole-swingup", 100), ("probe-terminate", 1), ("Pendulum-v1", 20)])
def test_bookkeeping_equals_single_environments(task, repeat):
    make = {"seeds": [3, 5], "envs": 2, "action_repeat": repeat}
    vector = envs.make_vector(task, **make)
    numbers = envs.copy_seeds(make["seeds"], make["envs"], "train")
    singles = [[envs.make(task, seed=seed, action_repeat=repeat) for seed in row] for row in numbers]
    obs = np.array([[env.reset() for env in row] for row in singles])
    total, length, fresh = np.zeros((2, 2)), np.zeros((2, 2), int), np.ones((2, 2), bool)
    ended = 0
    for act in actions(vector, 13):
        np.testing.assert_array_equal(vector.fresh, fresh)
        np.testing.assert_array_equal(vector.obs, obs)
        transition, episodes = vector.step(act)
        expected = []
        for i, j in np.ndindex(2, 2):
            step = singles[i][j].step(act[i, j])
            np.testing.assert_array_equal(transition.obs[i, j], obs[i, j])
            np.testing.assert_array_equal(transition.act[i, j], act[i, j])
            np.testing.assert_array_equal(transition.next_obs[i, j], step.obs)
            assert transition.reward[i, j] == np.float32(step.reward)
            assert transition.discount[i, j] == step.discount
            total[i, j], length[i, j], fresh[i, j] = total[i, j] + step.reward, length[i, j] + 1, step.last
            if step.last:
                expected.append((i, j, total[i, j], length[i, j], None))
                total[i, j], length[i, j] = 0, 0
            obs[i, j] = singles[i][j].reset() if step.last else step.obs
        assert episodes == expected
        ended += len(episodes)
    assert ended >= 4 and vector.steps == 13
    for field in arrays(transition)[:5]:
        assert field.dtype == np.float32 and field.shape[:2] == (2, 2)
    assert isinstance(transition, Transition)


def test_last_observation_is_the_true_one_and_episodes_may_differ_in_length():
    vector = VectorEnv([[Scripted(2), Scripted(3)]])
    seen = []
    for _ in range(3):
        transition, episodes = vector.step(np.zeros((1, 2, 1)))
        seen.append((transition.next_obs[0].tolist(), vector.obs[0].tolist(), vector.fresh[0].tolist(), episodes))
    assert seen[0] == ([[0, 1], [0, 1]], [[0, 1], [0, 1]], [False, False], [])
    assert seen[1] == ([[0, 2], [0, 2]], [[1, 0], [0, 2]], [True, False], [(0, 0, 3.0, 2, None)])
    assert seen[2] == ([[1, 1], [0, 3]], [[1, 1], [1, 0]], [False, True], [(0, 1, 6.0, 3, None)])


@pytest.mark.parametrize("task", ["probe-both", "probe-delay"])
def test_arrays_handed_out_are_never_written_again(task):
    vector = envs.make_vector(task, seeds=[0, 1], envs=3)
    given, copies = [], []
    acts = actions(vector, 12)
    buffer = acts[0].copy()
    for act in acts:
        buffer[:] = act
        now = [vector.obs, vector.fresh]
        transition, _ = vector.step(buffer)
        given += [*now, *arrays(transition)]
        copies += [array.copy() for array in [*now, *arrays(transition)]]
    assert_same(given, copies)


@pytest.mark.parametrize("task, repeat", [("ball_in_cup-catch", 100), ("probe-terminate", 1), ("probe-both", 1)])
def test_restore_continues_exactly(task, repeat):
    make = {"envs": 2, "action_repeat": repeat}
    vector = envs.make_vector(task, seeds=[0, 1], **make)
    acts = actions(vector, 24)
    for act in acts[:13]:
        vector.step(act)
    stored = safetensors.numpy.load(safetensors.numpy.save(vector.state()))
    expected = [arrays(*vector.step(act)) for act in acts[13:]]
    other = envs.make_vector(task, seeds=[7, 8], **make)
    assert other.restore(stored) == 0
    assert other.steps == 13
    for act, wanted in zip(acts[13:], expected, strict=True):
        assert_same(arrays(*other.step(act)), wanted)
    assert_same([other.obs, other.fresh], [vector.obs, vector.fresh])


def test_environments_that_cannot_tell_their_state_begin_anew():
    def build():
        wrapped = lambda: NormalizeReward(gymnasium.make("Pendulum-v1"))
        return VectorEnv([[GymEnv(wrapped(), seed=0), GymEnv(wrapped(), seed=1)]])

    vector = build()
    for act in actions(vector, 5):
        vector.step(act)
    state, other = vector.state(), build()
    assert other.restore(state) == 2
    assert other.fresh.all() and np.isfinite(other.obs).all()
    for act in actions(other, 200):
        _, episodes = other.step(act)
    assert [episode.length_in_steps for episode in episodes] == [200, 200]


def test_restore_refuses_another_shape():
    state = envs.make_vector("probe-both", seeds=[0, 1], envs=2).state()
    with pytest.raises(UsageError, match="resume with"):
        envs.make_vector("probe-both", seeds=[0], envs=2).restore(state)


@pytest.mark.parametrize(
    "wrong, says",
    [
        ("observation", r"observation\[1\] is nan at step 4, 1 steps"),
        ("reward", "reward is inf at step 4, 1 steps"),
        ("raise", "step raised ValueError: joint fell off at step 4, 1 steps"),
        ("reset", r"observation\[1\] is inf at step 3, 0 steps"),
    ],
)
def test_a_faulty_environment_is_named(wrong, says):
    faulty = Scripted()
    vector = VectorEnv([[Scripted(), Scripted()], [Scripted(), faulty]])
    where = r"scripted \(seed index 1, environment 1\)"
    with pytest.raises(EnvironmentFault, match=f"{where}: {says}"):
        for count in range(6):
            if count == 2:  # the second episode begins in good order, except where the reset is at fault
                faulty.wrong = wrong
            vector.step(np.zeros((2, 2, 1)))
    assert issubclass(EnvironmentFault, RuntimeError)


def test_an_action_that_is_not_finite_is_named():
    vector = envs.make_vector("probe-both", seeds=[0, 1], envs=1)
    with pytest.raises(EnvironmentFault, match=r"probe-both \(seed index 1, environment 0\): action\[0\] is nan"):
        vector.step(np.array([[[0.0]], [[np.nan]]]))


def test_environments_must_fit_together():
    with pytest.raises(ValueError, match="same sizes"):
        VectorEnv([[ProbeEnv("both", seed=0), Scripted()]])
    for rows in ([], [[]], [[Scripted()], []]):
        with pytest.raises(ValueError, match="equal length"):
            VectorEnv(rows)


def test_seeds_are_independent_of_their_company():
    def signs(salt="train", **make):
        vector = envs.make_vector("probe-both", salt=salt, **make)
        seen = []
        for _ in range(64):
            seen.append(vector.obs[..., 0].copy())
            vector.step(np.zeros((*vector.shape, 1)))
        return np.stack(seen)

    together = signs(seeds=[4, 9], envs=2)
    np.testing.assert_array_equal(together[:, 1:, :1], signs(seeds=[9], envs=1))
    streams = [*together.reshape(64, 4).T, *signs(seeds=[4, 9], envs=2, salt="evaluation").reshape(64, 4).T]
    assert len({stream.tobytes() for stream in streams}) == 8


def test_numbers_of_seeds_and_environments_are_checked():
    for seeds, count in [([], 1), ([0], 0), ([-1], 1)]:
        with pytest.raises(UsageError):
            envs.make_vector("probe-both", seeds=seeds, envs=count)


@pytest.mark.parametrize("task", ["cartpole-swingup", "finger-turn_easy", "Pendulum-v1", "probe-both"])
def test_restarting_with_seeds_is_building_with_them(task):
    """Whatever happened before; finger-turn_easy also draws its target when an episode begins."""
    used = envs.make_vector(task, seeds=[0, 1], envs=2)
    for act in actions(used, 5):
        used.step(act)
    used.restart(envs.copy_seeds([7, 8], 2, "again"))
    built = envs.make_vector(task, seeds=[7, 8], envs=2, salt="again")
    np.testing.assert_array_equal(used.obs, built.obs)
    assert used.fresh.all() and used.steps == 0
    for act in actions(built, 5, seed=1):
        assert_same(arrays(*used.step(act)), arrays(*built.step(act)))
