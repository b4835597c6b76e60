"""The study of policies that an evaluator has never met: its measures, its verdicts, and its files."""

import csv
import json

import numpy as np
import pytest

from fcritic.study.catalog import load
from fcritic.study.report import conduct
from fcritic.study.spec import Findings, Trainings

load("unseen-policies")
from studies.evaluation import gathering, unseen_policies  # noqa: E402
from studies.evaluation.unseen_policies import (  # noqa: E402
    Evidence,
    area_under_roc,
    judge,
    measures,
    rank_correlation,
)


def test_measures_by_hand():
    truth, value = np.array([0.0, 10.0, 20.0, 30.0]), np.array([1.0, 2.0, 4.0, 3.0])
    found = measures(truth, value, span=30.0)
    assert found["rank"] == pytest.approx(0.8)  # 1 - 6 (1 + 1) / (4 (16 - 1))
    assert found["regret1"] == pytest.approx(10 / 30) and found["regret5"] == 0
    assert found["error"] == pytest.approx((1 + 8 + 16 + 27) / 4 / 30)
    assert found["slope"] == pytest.approx(40 / 5)  # covariance 10, variance 1.25
    assert rank_correlation(np.array([1.0, 1.0, 2.0]), np.array([5.0, 6.0, 7.0])) == pytest.approx(0.8660, abs=1e-4)
    assert measures(truth, np.ones(4), 30.0)["rank"] == 0


def test_the_area_is_the_chance_to_score_higher():
    score, found = np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, False, True, True])
    assert area_under_roc(score, found) == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert np.isnan(area_under_roc(score, np.zeros(4, bool)))


def said(method, split, policy, group, truth, value, half=20.0, trusted=True, coverage=1.0):
    heads = {"low": value - half, "high": value + half, "coverage": coverage, "spread": half / 100}
    facts = {"task": "made-up", "logs": "replay", "split": split, "method": method, "policy": policy}
    facts |= {"group": group, "truth": truth, "noise": 0.0, "value": value} | heads
    return facts | {"trusted": trusted, "td_rows": 10, "seconds": 1.0}


def rows_of(error: float) -> list[dict]:
    """Ten policies of each group, worth 0 to 90: functional critics err by so much, blind ones say 45."""
    found = []
    for group in ("known", "unseen"):
        for number in range(10):
            truth = 10.0 * number
            off = error if number == 9 else 0.0
            each = {
                "functional": truth + off,
                "blind": 45.0,
                "nearest": truth + 5.0,
                "fqe": truth,
                "fqe_8x": 45.0 + number % 2,
            }
            found += [
                said(method, 0, f"{group} {number}", group, truth, value, trusted=method != "functional" or not off,
                     coverage=10.0 if off else 1.0)
                for method, value in each.items()
            ]  # fmt: skip
    return found


def outcomes(findings: Findings) -> dict[str, str]:
    return {verdict.claim.split(",")[0][:40]: verdict.outcome for verdict in findings.verdicts}


def test_verdicts_follow_the_figures():
    found = Evidence(rows_of(0.0))
    assert found.best == "fqe" and found.span == 90
    good, bad = judge(rows_of(0.0)), judge(rows_of(-90.0))
    assert good.plot["summary"]["tasks"]["made-up"]["unseen"]["functional"]["rank"] == pytest.approx(1)
    assert good.plot["summary"]["tasks"]["made-up"]["unseen"]["blind"]["error"] == pytest.approx(25 / 90)
    told = {verdict.claim: verdict.outcome for verdict in good.verdicts}
    assert [outcome for claim, outcome in told.items() if "area under" not in claim] == ["holds"] * (len(told) - 1)
    worse = {verdict.claim: verdict.outcome for verdict in bad.verdicts}
    assert [worse[claim] for claim in worse if "FQE at its best ranks" in claim] == ["fails"]
    assert [worse[claim] for claim in worse if "area under" in claim] == ["holds"]  # coverage 10 gives them away
    assert [worse[claim] for claim in worse if "marked as trusted" in claim] == ["holds"]


def test_what_is_recorded_gives_the_same_verdicts(tmp_path, monkeypatch):
    study = unseen_policies.STUDY
    monkeypatch.setattr(type(study), "find", lambda self, runs, quick: judge(rows_of(-90.0)))
    report = conduct(study, Trainings(tmp_path), False, "a command", tmp_path)
    with (tmp_path / "results" / "made-up.csv").open(newline="") as file:
        again = judge(list(csv.DictReader(file)))
    assert [each.outcome for each in again.verdicts] == [claim["verdict"] for claim in report["claims"]]
    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert summary["tasks"]["made-up"]["unseen"]["functional"].keys() >= {
        "rank",
        "regret1",
        "regret5",
        "error",
        "slope",
    }
    assert (tmp_path / "unseen-policies.png").stat().st_size > 1000


def test_logs_are_packed_without_loss():
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(7, 2)).astype(np.float32)
    rows = np.concatenate([obs[:-1], rng.normal(size=(6, 3)).astype(np.float32), obs[1:]], axis=1)
    rows[2, -2:] = 5.0  # an episode that was cut: what it led to is in no other row
    packed = gathering.packed(rows, 2)
    assert packed["last"].tolist() == [2, 5]
    np.testing.assert_array_equal(gathering.unpacked(packed["rows"], packed["last"], packed["after"]), rows)


def test_linear_controllers_are_the_networks_that_stand_for_them():
    mean, deviation = np.array([1.0, -2.0]), np.array([0.5, 2.0])
    policies, names = gathering.controllers(2, 1, mean, deviation)
    obs = np.random.default_rng(1).normal(size=(5, 2))
    rng = np.random.default_rng(0)
    gain = 0.1 * rng.normal(size=(2, 1))
    assert names[0] == "linear 0" and names[-1] == "constant 0.5"
    np.testing.assert_allclose(policies.pick(0).mode(obs), np.tanh((obs - mean) / deviation @ gain), atol=1e-12)
    np.testing.assert_allclose(policies.pick(-1).mode(obs), 0.5, atol=1e-12)
