"""The evaluator of logged data: values where they are known, trust where data are, and files of strangers."""

import dataclasses
import json
import shutil
import time

import numpy as np
import pytest

from benchmarks.attacks import forging
from fcritic.agents import bellman
from fcritic.agents.bellman import BellmanEquation, corrections
from fcritic.agents.evaluator import EvaluatorConfig
from fcritic.envs.base import Units
from fcritic.errors import UsageError
from fcritic.offline.candidates import Candidate
from fcritic.offline.dataset import Dataset
from fcritic.offline.evaluation import Evaluator
from fcritic.runs import checkpoint
from fcritic.types import EnvSpec

SMALL = EvaluatorConfig(
    discount=0.5, members=3, steps=600, probes=4, hidden=(32, 32), encoder_hidden=(32,), code=8, learning_rate=3e-3
)


def always(level: float) -> Candidate:
    return Candidate(f"{level:g}", "function", lambda obs, _: np.full((len(obs), 1), level, np.float32))


def reward_of(action):
    return 7 / 12 - (action - 0.5) ** 2  # zero on average over actions in [-1, 1]


def logged(reach: float, count: int = 2000) -> Dataset:
    """Episodes of one action, which terminates: a policy's value is its `reward`."""
    rng = np.random.default_rng(0)
    obs, act = rng.normal(size=(count, 2)), rng.uniform(-reach, reach, (count, 1))
    flags, single = np.ones(count, bool), np.float32
    reward = reward_of(act[:, 0])
    arrays = (
        obs.astype(single),
        act.astype(single),
        reward.astype(single),
        np.zeros(count, single),
        obs.astype(single),
    )
    return Dataset(*arrays, flags, flags, flags, ("made up",), Units.plain(EnvSpec(2, 1)))


KNOWN = [always(level) for level in np.linspace(-1, 1, 9)]


@pytest.fixture(scope="module")
def fitted():
    return Evaluator.fit(logged(1.0), KNOWN, SMALL)


def test_values_are_the_known_ones_also_of_a_policy_that_it_never_met(fitted):
    for level in (-1.0, 0.0, 1.0, 0.3, -0.6):
        estimate = fitted.value(always(level))
        assert estimate.mean == pytest.approx(reward_of(level), abs=0.25)
        assert estimate.low <= estimate.mean <= estimate.high
        assert len(estimate.heads) == 3
    drawn = Candidate("drawn", "function", lambda obs, rng: rng.uniform(-1, 1, (len(obs), 1)), stochastic=True)
    assert fitted.value(drawn).mean == pytest.approx(0, abs=0.25)


def test_ranks_follow_values_and_chances_sum_to_one(fitted):
    found = fitted.rank(KNOWN)
    assert found.rows[0].name in ("0.5", "0.25", "0.75")
    assert found.rows[-1].name == "-1"
    assert sum(row.chance_best for row in found.rows) == pytest.approx(1)


def test_a_policy_outside_of_the_logged_actions_is_not_trusted():
    evaluator = Evaluator.fit(logged(0.2), [always(level) for level in np.linspace(-0.2, 0.2, 9)], SMALL)
    inside, outside = evaluator.trust(always(0.1)), evaluator.trust(always(1.0))
    assert inside.mark
    assert not outside.mark
    assert outside.coverage > 4 * inside.coverage
    assert outside.reason


def test_constant_rewards_without_an_end_are_worth_their_sum():
    data = logged(1.0)
    ones = np.ones(len(data), np.float32)
    data = dataclasses.replace(data, reward=2 * ones, discount=ones)
    evaluator = Evaluator.fit(data, KNOWN[:2], dataclasses.replace(SMALL, steps=10))
    assert evaluator.value(KNOWN[0]).mean == pytest.approx(4, rel=1e-3)


def test_fqe_has_a_critic_for_each_policy_and_none_for_others(tmp_path):
    evaluator = Evaluator.fit(logged(1.0), KNOWN[::4], dataclasses.replace(SMALL, method="fqe"))
    for policy, level in zip(KNOWN[::4], (-1, 0, 1), strict=True):
        assert evaluator.value(policy).mean == pytest.approx(reward_of(level), abs=0.15)
    with pytest.raises(UsageError, match=r"fqe has no critic for 0.3"):
        evaluator.value(always(0.3))
    evaluator.save(tmp_path / "judge")
    assert Evaluator.load(tmp_path / "judge").value(KNOWN[4]).mean == evaluator.value(KNOWN[4]).mean


def test_a_saved_one_says_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "judge")
    again = Evaluator.load(tmp_path / "judge")
    for policy in (KNOWN[0], always(0.3)):
        assert again.value(policy).mean == fitted.value(policy).mean
        assert again.trust(policy) == fitted.trust(policy)
    assert (again.config, again.names, again.data) == (fitted.config, fitted.names, fitted.data)


def test_every_damaged_file_is_one_line(fitted, tmp_path):
    fitted.save(tmp_path / "judge")
    rng = np.random.default_rng(0)
    for number in range(30):
        copy = tmp_path / f"copy {number}"
        shutil.copytree(tmp_path / "judge", copy)
        file = sorted(copy.iterdir())[number % 3]
        content = bytearray(file.read_bytes())
        if number % 2:
            del content[rng.integers(len(content)) :]
        else:
            content[rng.integers(len(content))] ^= 1  # never one white space for another
        file.write_bytes(content)
        with pytest.raises(UsageError) as told:
            Evaluator.load(copy)
        assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("evaluator",), 1),
        (("config", "hidden"), [2**20, 2**20]),
        (("config", "hidden"), [[]]),
        (("config", "steps"), "many"),
        (("config", "method"), "other"),
        (("config", "discount"), 1.5),
        (("config", "members"), 10**9),
        (("config", "probes"), 10**6),
        (("config",), None),
        (("interface", "obs_dim"), 2**19),
        (("interface", "action_low"), [3.0]),
        (("interface",), []),
        (("names",), []),
        (("names",), [1]),
        (("sizes", "starts"), 10**12),
        (("sizes", "starts"), 3),
        (("sizes",), {}),
        (("reward_scale",), 0),
        (("span",), None),
        (("data",), 7),
    ],
)
def test_a_forged_one_is_refused_at_once(fitted, tmp_path, path, value):
    """Facts of any kind, with hashes that fit them."""
    fitted.save(tmp_path / "judge")
    file = tmp_path / "judge" / checkpoint.MANIFEST
    manifest = json.loads(file.read_text())
    place = manifest["facts"]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    del manifest["sha256"]
    file.write_text(json.dumps(manifest | {"sha256": checkpoint._manifest_hash(manifest)}))
    begun = time.monotonic()
    with pytest.raises(UsageError) as told:
        Evaluator.load(tmp_path / "judge")
    assert "\n" not in str(told.value)
    assert time.monotonic() - begun < 5


def test_witnesses_of_other_lengths_are_refused(fitted, tmp_path):
    fitted.save(tmp_path / "judge")
    forging.change_arrays(
        tmp_path / "judge", "data", lambda name, array: array[:-1] if name == "witness_reward" else array
    )
    shorter = lambda manifest: manifest["facts"]["sizes"].update(
        witness_reward=manifest["facts"]["sizes"]["witness_reward"] - 1
    )
    forging.change_manifest(tmp_path / "judge", shorter)
    with pytest.raises(UsageError, match="is not a fitted evaluator of this version"):
        Evaluator.load(tmp_path / "judge")


def test_another_number_of_probes_is_refused_where_no_network_tells(tmp_path):
    config = dataclasses.replace(SMALL, method="blind", steps=20)
    Evaluator.fit(logged(1.0), KNOWN, config).save(tmp_path / "judge")
    forging.change_manifest(
        tmp_path / "judge", lambda manifest: manifest["facts"]["config"].update(probes=SMALL.probes + 1)
    )
    with pytest.raises(UsageError, match="is not a fitted evaluator of this version"):
        Evaluator.load(tmp_path / "judge")


def test_other_folders_are_named(tmp_path):
    with pytest.raises(UsageError, match="is not a fitted evaluator; name a folder"):
        Evaluator.load(tmp_path)
    checkpoint.save(tmp_path / "step-000000000001", {"agent": {"a": np.zeros(1)}}, {"env_steps": 1})
    with pytest.raises(UsageError, match="is not a fitted evaluator of this version"):
        Evaluator.load(tmp_path / "step-000000000001")


def chain(features: np.ndarray, weights: np.ndarray) -> tuple[BellmanEquation, float]:
    """The equation of a random chain of 5 states, all visited alike, and the value of the first one."""
    rng = np.random.default_rng(0)
    moves, reward = rng.dirichlet(np.ones(5), 5), rng.normal(size=5)
    value = np.linalg.solve(np.eye(5) - 0.9 * moves, reward)
    moment, ahead = features.T @ features / 5, 0.9 * features.T @ moves @ features / 5
    return BellmanEquation(moment, ahead, reward @ features / 5, features[0], weights), value[0]


@pytest.mark.parametrize("weights", (np.zeros(5), np.arange(5.0)))
def test_a_correction_ends_at_the_exact_value_whatever_the_critics_say(monkeypatch, weights):
    equations, exact = chain(np.random.default_rng(1).normal(size=(5, 5)), weights)
    said = equations.first @ weights
    monkeypatch.setattr(bellman, "RIDGE", 1e-12)
    monkeypatch.setattr(bellman, "CAUTION", 0.0)
    assert said + corrections(equations) == pytest.approx(exact, rel=1e-4)


def test_a_correction_is_small_where_the_equation_says_nothing():
    one = np.ones(1)
    of = lambda ahead, weight: BellmanEquation(one[None], ahead * one[None], one, one, weight * one)
    assert corrections(of(0.5, 0.0)) == pytest.approx(1 / (1.001 - 0.5), rel=1e-4)  # 2 without the ridge of 0.001
    assert corrections(of(0.5, 2.0)) == pytest.approx(0, abs=1e-9)  # the critics are right: 1 + 0.5 * 2 = 2
    assert corrections(of(1.001, 0.0)) == pytest.approx(0, abs=1e-9)  # singular: the plain solution is infinite
    assert abs(corrections(of(1.00099, 0.0))) < 1000  # nearly singular: the plain solution is 10,000


def test_a_policy_unlike_all_known_ones_is_valued_better_by_its_own_equation(fitted):
    """Known policies act alike everywhere. This one does not, and its code says so in numbers never met."""
    step = Candidate("step", "function", lambda obs, _: np.where(obs[:, :1] > 0, 0.9, -0.3).astype(np.float32))
    exact = (reward_of(0.9) + reward_of(-0.3)) / 2
    found = fitted.value(step)
    assert found.mean == pytest.approx(exact, abs=0.1)
    assert abs(found.mean - exact) < abs(found.heads.mean() - exact)
    assert found.low <= exact <= found.high


def linear_quadratic(episodes: int = 1000, length: int = 20) -> Dataset:
    """Episodes of uniform actions in s' = .9 s + .3 a with the reward -(s^2 + .1 a^2), cut by a time limit."""
    rng = np.random.default_rng(0)
    obs, act = np.zeros((episodes, length + 1)), rng.uniform(-1, 1, (episodes, length))
    obs[:, 0] = rng.uniform(-1, 1, episodes)
    for step in range(length):
        obs[:, step + 1] = 0.9 * obs[:, step] + 0.3 * act[:, step]
    reward = -(obs[:, :-1] ** 2) - 0.1 * act**2
    first, last = np.zeros((2, episodes, length), bool)
    first[:, 0], last[:, -1] = True, True
    column = lambda array: array.reshape(-1, 1).astype(np.float32)
    arrays = (
        column(obs[:, :-1]),
        column(act),
        column(reward)[:, 0],
        np.ones(act.size, np.float32),
        column(obs[:, 1:]),
    )
    return Dataset(
        *arrays, *(flag.ravel() for flag in (first, last, last)), ("made up",), Units.plain(EnvSpec(1, 1))
    )


def controller(gain: float) -> Candidate:
    return Candidate(f"gain {gain:.2f}", "function", lambda obs, _: (-gain * obs).astype(np.float32))


def test_a_linear_quadratic_task_is_valued_within_two_percent():
    """The value of a = -k s is -(1 + .1 k^2) s^2 / (1 - gamma (.9 - .3 k)^2); none of the judged gains is known."""
    config = dataclasses.replace(
        SMALL, discount=0.9, members=4, steps=6000, probes=8, hidden=(64, 64), encoder_hidden=(64,),
        learning_rate=1e-3, policies_per_update=16, settled=0.0,
    )  # fmt: skip
    evaluator = Evaluator.fit(linear_quadratic(), [controller(gain) for gain in np.linspace(-0.25, 1, 40)], config)
    gains = np.random.default_rng(1).uniform(-0.2, 0.95, 30)
    squares = (evaluator.starts.astype(float) ** 2).mean()
    exact = -(1 + 0.1 * gains**2) * squares / (1 - 0.9 * (0.9 - 0.3 * gains) ** 2)
    found = np.array([evaluator.value(controller(gain)).mean for gain in gains])
    assert np.abs(found / exact - 1).mean() < 0.02
    assert np.abs(found - exact).max() < 0.04 * np.ptp(exact)


def test_a_fit_ends_when_values_have_settled():
    early = Evaluator.fit(logged(1.0), KNOWN, dataclasses.replace(SMALL, steps=6000, settled=0.02))
    never = Evaluator.fit(logged(1.0), KNOWN, dataclasses.replace(SMALL, steps=700, settled=0.0))
    assert early.updates < 5000
    assert never.updates == 700
    assert early.value(always(0.3)).mean == pytest.approx(reward_of(0.3), abs=0.1)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_fit_of_few_steps_comes_to_its_end(steps):
    found = Evaluator.fit(logged(1.0, 40), KNOWN[:1], dataclasses.replace(SMALL, steps=steps, members=1))
    assert np.isfinite(found.value(KNOWN[0]).mean)
