"""What an evaluator trusts: policies that differ only where the data do not reach are told first, as unknown."""

import dataclasses

import numpy as np
import pytest

from fcritic.agents.evaluator import EvaluatorConfig
from fcritic.cli.rank import report_of
from fcritic.envs.base import Units
from fcritic.offline.candidates import Candidate
from fcritic.offline.dataset import Dataset
from fcritic.offline.evaluation import Evaluator
from fcritic.types import EnvSpec

SMALL = EvaluatorConfig(
    discount=0.9, members=3, steps=300, probes=8, hidden=(32, 32), encoder_hidden=(32,), code=8, learning_rate=3e-3
)


def walk(actions, count: int = 2000) -> Dataset:
    """A point x that its action moves, between -1 and 1."""
    rng, rows, length = np.random.default_rng(0), [], 30
    while len(rows) < count:
        x = rng.uniform(-1, 0.9)
        for step in range(length):
            act = actions(x, rng)
            after = float(np.clip(x + 0.2 * act + 0.03 * rng.normal(), -1, 1))
            rows.append((x, act, -(x**2), after, step == 0, step == length - 1))
            x = after
    obs, act, reward, following, first, last = (np.array(each) for each in zip(*rows, strict=True))
    column = lambda array: array[:, None].astype(np.float32)
    flat = (reward.astype(np.float32), np.ones(len(rows), np.float32))
    units = Units.plain(EnvSpec(1, 1))
    return Dataset(column(obs), column(act), *flat, column(following), first, last, last, ("made up",), units)


def policy(name: str, act) -> Candidate:
    return Candidate(name, "function", lambda obs, _: np.asarray(act(obs), np.float32))


def halves(name: str, left: float, right: float) -> Candidate:
    return policy(name, lambda obs: np.where(obs < 0.5, left, right))


@pytest.fixture(scope="module")
def half_tried():
    """Where x > 0.5 only small actions were logged, elsewhere all."""
    data = walk(lambda x, rng: rng.uniform(-1, 1) if x < 0.5 else rng.uniform(-0.2, 0.2))
    levels = [(left, right) for left in (-0.8, -0.3, 0.0, 0.3, 0.8) for right in (-0.15, 0.0, 0.15)]
    return Evaluator.fit(data, [halves(f"{left} {right}", left, right) for left, right in levels], SMALL)


def test_policies_that_differ_in_what_nobody_tried_are_told_first_and_not_ranked(half_tried):
    usual, up, down = halves("usual", 0.3, 0.1), halves("up", 0.3, 1.0), halves("down", 0.3, -1.0)
    candidates = [usual, up, down]
    report = report_of(half_tried, half_tried.rank(candidates), candidates)
    assert sorted(row["name"] for row in report["untrusted"]) == ["down", "up"]
    assert [row["name"] for row in report["ranked"]] == ["usual"]
    assert all(row["reason"] for row in report["untrusted"])


def test_what_nobody_tried_is_far_and_hardly_covered(half_tried):
    usual, up = (half_tried.signs(halves(name, 0.3, right)) for name, right in (("usual", 0.1), ("up", 1.0)))
    assert usual.far < 0.1 < up.far
    assert 1.3 * usual.coverage < up.coverage
    assert 2 * usual.concentrability < up.concentrability


def test_what_follows_an_end_does_not_count():
    """The next state of a termination is of no meaning: far ones there change nothing."""
    data = walk(lambda x, rng: rng.uniform(-1, 1))
    ended = dataclasses.replace(data, discount=np.zeros(len(data), np.float32))
    strange = dataclasses.replace(ended, next_obs=ended.next_obs + 100)
    known = [halves(f"{left}", left, left) for left in (-0.5, 0.0, 0.5)]
    steps = dataclasses.replace(SMALL, steps=20)
    one, two = (Evaluator.fit(each, known, steps) for each in (ended, strange))
    assert two.signs(known[0]).far == one.signs(known[0]).far < 0.1
    assert two.signs(known[0]).coverage == pytest.approx(one.signs(known[0]).coverage, rel=1e-3)
