"""The replay of a run as logged data, its policies as candidates, and what they do recorded as a dataset."""

import itertools
from pathlib import Path
import shutil

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from pendulum_agents import TASK, agent_of
import pytest

import fcritic
from fcritic import envs
from fcritic.config import TrainConfig
from fcritic.envs.base import AbstractEnv, Step
from fcritic.errors import UsageError
from fcritic.offline.candidates import Candidate
from fcritic.offline.folder import write
from fcritic.offline.gathering import read_policies
from fcritic.offline.reading import read_logs
from fcritic.offline.recording import Stage, as_dataset, at_random, noisy
from fcritic.runs.directory import RunDirectory
from fcritic.training.loop import Training
from fcritic.training.replay import Normalizer
from fcritic.types import EnvSpec

REPLAY, STEPS = 20, 33


class Steps(AbstractEnv):
    """Shows its seed, the episode and the step. Episodes have 3 actions and terminate, or 5 and a time limit."""

    spec = EnvSpec(obs_dim=3, act_dim=1)
    name = "steps"

    def __init__(self):
        self.reseed(0)

    def reseed(self, seed: int) -> None:
        self._seed, self._episode = seed % 1000, -1

    def reset(self) -> np.ndarray:
        self._episode, self._step = self._episode + 1, 0
        return self._seen()

    def _seen(self) -> np.ndarray:
        return np.array([self._seed, self._episode, self._step], np.float32)

    def step(self, action: np.ndarray) -> Step:
        self._step += 1
        length = 5 if self._episode % 2 else 3
        over = self._step == length
        return Step(self._seen(), float(self._step), float(not (over and length == 3)), over)

    def state(self) -> None:
        return None

    def restore(self, state) -> None:
        raise NotImplementedError


STEPS_TASK = lambda: Steps()
"""Not to be found by its name, and so given by this program, which needs no trust."""


def trained(out, task, steps, save_at=(), **numbers) -> TrainConfig:
    """A run of uniform actions, in which nothing is learned, with checkpoints where they are asked for."""
    agent = numbers.pop("agent", None) or agent_of("fac")
    config = TrainConfig(agent, task=envs.name_of(task), steps=10_000, warmup=10_000, keep=9, **numbers)
    with RunDirectory.create_or_open(out, config.to_json(), "test") as directory:
        training = Training.begin(config, directory, quiet=True)
        for before, step in itertools.pairwise((0, *save_at, steps)):
            training.advance(step - before)
            training.device.flush()
            numbers = jnp.full((config.seeds, 3), 0.1 * step)
            seen = Normalizer(numbers, numbers, jnp.full(config.seeds, step))
            state = eqx.tree_at(lambda state: state.normalizer, training.device.state, seen)
            training.device.put(state, training.device.memory)
            training.save()
        training.close()
    return config


def expected(seed: int, first: int, last: int) -> list[tuple]:
    """Rows number `first` to `last` - 1 of an environment: observation, next one, discount, first, ended."""
    rows, episode = [], 0
    while len(rows) < last:
        length = 5 if episode % 2 else 3
        for step in range(length):
            over = step == length - 1
            discount = 0 if over and length == 3 else 1
            rows.append(((seed, episode, step), (seed, episode, step + 1), discount, step == 0, over))
        episode += 1
    return rows[first:last]


@pytest.mark.parametrize("steps", [14, STEPS])
def test_a_ring_is_put_back_into_its_episodes(tmp_path, steps):
    """Two seeds with two environments each; the longer run has overwritten the beginning of the ring."""
    config = trained(tmp_path / "run", STEPS_TASK, steps, seeds=2, envs=2, replay=REPLAY)
    found = read_logs(tmp_path / "run")
    written = steps - 1  # one step waits to be stored
    first = max(0, written - REPLAY)
    numbers = [number % 1000 for row in envs.copy_seeds(config.seed_numbers, 2, "train") for number in row]
    assert len(set(numbers)) == 4
    rows = [row for number in numbers for row in expected(number, first, written)]
    obs, next_obs, discount, begins, ends = (np.array(column) for column in zip(*rows, strict=True))
    np.testing.assert_array_equal(found.obs, obs)
    np.testing.assert_array_equal(found.next_obs, next_obs)
    np.testing.assert_array_equal(found.discount, discount)
    np.testing.assert_array_equal(found.first, begins)
    cut = np.zeros(len(rows), bool)
    cut[written - first - 1 :: written - first] = True
    np.testing.assert_array_equal(found.ended, ends & ~(cut & (discount == 1)))  # a limit shows in the next row
    np.testing.assert_array_equal(found.reward, next_obs[:, 2])
    np.testing.assert_array_equal(found.last, ends | cut)
    assert abs(found.act).max() <= 1
    assert found.act.std() > 0.3
    # Complete are episodes of 3 with rewards 1, 2, 3 and of 5; those that the ring has cut are not counted.
    _, values = found.returns(1.0)
    assert set(values) <= {6.0, 15.0}
    begun = {row[0][:2] for row in rows if row[3]}
    assert len(values) == sum(over and row[0][:2] in begun for over, row in zip(found.ended, rows, strict=True))
    assert (found.action_repeat, found.task) == (1, config.task)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Seeds 3 and 4 on the pendulum with two checkpoints, whose normalisers differ."""
    out = tmp_path_factory.mktemp("offline") / "run"
    trained(out, TASK, 20, save_at=(10,), seeds=2, seed=3, replay=60)
    return out


def test_every_actor_of_every_checkpoint_is_a_candidate(run):
    data = read_logs(run)
    found = read_policies(run, data)
    names = [f"{run}@{frame}.s{seed}#{actor}" for frame in (10, 20) for seed in (3, 4) for actor in (0, 1, 2)]
    assert [candidate.name for candidate in found] == names
    assert len({candidate.act(data.obs).tobytes() for candidate in found}) == 12
    for number, name in ((9, f"{run}@20.s4#0"), (2, f"{run}@10.s3#2")):
        (one,) = read_policies(name, data)
        np.testing.assert_array_equal(one.act(data.obs), found[number].act(data.obs))
    assert [candidate.name for candidate in read_policies(f"{run}@10#1", data)] == [names[1], names[4]]
    with pytest.raises(UsageError, match=r"has no policy @11; its names are @10 @20, seeds .s3 to .s4"):
        read_policies(f"{run}@11", data)


def test_the_black_box_and_the_pytree_act_alike(run):
    """As a run, as an agent that Python has loaded, and as a function in the task's own units."""
    data, agent = read_logs(run), fcritic.load(run, seed=4)
    by_run = read_policies(f"{run}@20.s4", data)
    black_boxes = [lambda obs, actor=actor: agent.act(obs, actor) for actor in range(3)]
    for one, two, three in zip(by_run, read_policies(agent, data), read_policies(black_boxes, data), strict=True):
        np.testing.assert_array_equal(one.act(data.obs), two.act(data.obs))
        np.testing.assert_allclose(one.act(data.obs), three.act(data.obs), rtol=1e-4)
        np.testing.assert_allclose(one.act(data.obs[:5]), one.act(data.obs)[:5], rtol=1e-5)
        assert len(set(one.act(data.obs).ravel().tolist())) > 30


def test_a_gaussian_policy_is_its_mode_unless_asked_otherwise(tmp_path):
    trained(tmp_path / "sac", TASK, 20, agent=agent_of("sac"), replay=60)
    data = read_logs(tmp_path / "sac")
    (mode,), (drawn,) = (
        read_policies(tmp_path / "sac", data),
        read_policies(tmp_path / "sac", data, stochastic=True),
    )
    assert (mode.stochastic, drawn.stochastic) == (False, True)
    np.testing.assert_array_equal(mode.act(data.obs), mode.act(data.obs))
    one, again, other = (drawn.act(data.obs, np.random.default_rng(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert abs(one - other).max() > 0.1
    obs = np.repeat(data.obs[:1], 4000, axis=0)
    policy = fcritic.load(tmp_path / "sac").policy()
    mean, raw = np.split(np.asarray(policy.network(fcritic.load(tmp_path / "sac").normalizer(obs[0]))), 2)
    drawn_before = np.arctanh(np.clip(drawn.act(obs, np.random.default_rng(0)), -1 + 1e-6, 1 - 1e-6))
    assert drawn_before.mean() == pytest.approx(float(mean[0]), abs=0.1)
    assert drawn_before.std() == pytest.approx(float(np.exp(raw[0])), rel=0.1)


def test_a_damaged_checkpoint_is_passed_over_and_damaged_rows_are_not_read(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    newest = sorted(copy.glob("checkpoints/*"))[-1] / "agent.safetensors"
    content = newest.read_bytes()
    newest.write_bytes(content[:-1])
    data = read_logs(copy)  # needs the rows alone
    with pytest.warns(UserWarning, match="skipped: checkpoint .*agent.safetensors has"):
        assert {candidate.name.partition("@")[2][:2] for candidate in read_policies(copy, data)} == {"10"}
    rows = next(copy.glob("replay/rows-*"))
    rows.write_bytes(rows.read_bytes()[:-4])
    with pytest.warns(UserWarning, match="skipped: .*are needed"):
        assert len(read_logs(copy)) < len(data)
    for rows in copy.glob("replay/rows-*"):
        rows.write_bytes(b"")
    with pytest.raises(UsageError, match=r"no checkpoint in .* can be used"):
        read_logs(copy)


def test_an_exported_agent_has_policies_but_no_data(run, tmp_path):
    from fcritic.api.export import export

    outcome = {"env_steps": 20, "episodes_per_actor": 1, "seeds": []}
    export(RunDirectory.open_existing(run), tmp_path / "given", outcome)
    assert len(read_policies(tmp_path / "given", read_logs(run))) == 6
    with pytest.raises(UsageError, match=r"is an exported agent without a replay; .* fcritic log"):
        read_logs(tmp_path / "given")


def test_what_is_of_another_task_is_refused(run, tmp_path):
    trained(tmp_path / "run", STEPS_TASK, 14, replay=REPLAY)
    with pytest.raises(UsageError, match=r"has the task Pendulum-v1, .* rank them apart"):
        read_logs([run, tmp_path / "run"])
    with pytest.raises(UsageError, match="is of the task Pendulum-v1, not cartpole-swingup"):
        read_logs(run, task="cartpole-swingup")
    cheetah = Path(__file__).parent.parent / "trained/cheetah-run"
    with pytest.raises(UsageError, match="cheetah-run, with 17 observations and 6 actions; the data have 3 and 1"):
        read_policies(cheetah, read_logs(run))


def steps_of(obs, rng) -> np.ndarray:
    return np.full((len(obs), 1), 0.5, np.float32)


@pytest.mark.parametrize(("amount", "lengths"), [({"episodes": 4}, [3, 3, 5, 5]), ({"steps": 11}, [3, 3, 2, 3])])
def test_what_is_recorded_is_what_was_done(tmp_path, amount, lengths):
    """Two environments share the episodes, so that short ones are not preferred; the last one may be cut off."""
    task = envs.name_of(STEPS_TASK)
    stage = Stage(task, 1, 2)
    pieces = list(stage.play(steps_of, "test", **amount))
    stage.close()
    found = as_dataset(pieces, task, 1, ["half"])
    assert sorted(stop - start for start, stop in found.episodes) == sorted(lengths)
    assert len(found) == sum(lengths)
    assert (found.act == 0.5).all()
    for start, stop in found.episodes:
        np.testing.assert_array_equal(found.obs[start:stop, 2], np.arange(stop - start))
        np.testing.assert_array_equal(found.obs[start + 1 : stop], found.next_obs[start : stop - 1])
        whole = stop - start == (5 if found.obs[start, 1] % 2 else 3)
        assert found.ended[stop - 1] == whole
        assert (found.discount[stop - 1] == 0) == (whole and stop - start == 3)
    again = read_logs(write(tmp_path / "folder", found))
    np.testing.assert_array_equal(again.next_obs, found.next_obs)
    assert (again.task, again.action_repeat) == (task, 1)


def test_noise_is_added_and_cut():
    candidate = Candidate("half", "function", steps_of)
    act = noisy(candidate, 0.3)
    found = act(np.zeros((10_000, 3), np.float32), np.random.default_rng(0))
    assert found.max() == 1
    assert found.dtype == np.float32
    assert np.median(found) == pytest.approx(0.5, abs=0.02)
    assert found[found < 0.5].mean() == pytest.approx(0.5 - 0.3 * np.sqrt(2 / np.pi), abs=0.02)


def test_policies_can_be_tried_before_there_is_any_data():
    data = at_random("Pendulum-v1", 1, 20)
    assert len(data) == 20
    (candidate,) = read_policies(lambda obs: obs[:, :1], data)
    np.testing.assert_allclose(candidate.act(data.obs), data.obs[:, :1] / 2, atol=1e-6)
