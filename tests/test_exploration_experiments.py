"""The command `fcritic explore`, its verdicts and its files."""

import json
from pathlib import Path

import numpy as np
import pytest

from fcritic.cli.dispatch import run
from fcritic.exploration import experiments
from fcritic.exploration.episodes import History
from fcritic.exploration.experiments import calibration, deepsea, riverswim
from fcritic.exploration.experiments.judging import gap
from fcritic.exploration.methods import ENSEMBLES, Method, brief_methods, main_methods, masked_methods
from fcritic.theory.experiments.base import conduct


@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_every_experiment_is_found_by_its_name(name: str):
    assert experiments.load(name).name == name
    assert experiments.load(name).statement.endswith(".")


def test_without_a_name_the_command_lists_them(capsys: pytest.CaptureFixture):
    assert run(["explore"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name}" in text and line in text for name, line in experiments.EXPERIMENTS.items())
    assert run(["explore", "riversim"]) == 2
    assert "did you mean riverswim?" in capsys.readouterr().err


def test_names_of_methods():
    assert Method("functional", "none").name == "functional"
    assert Method("shared", "anchored", mask=True, per_step=True).name == "shared+anchored+masks, per step"
    methods = main_methods() + masked_methods("prior") + [each for each in brief_methods("prior") if each.per_step]
    assert len({method.name for method in methods}) == len(methods) == 5 * len(ENSEMBLES)


def test_a_gap_must_exceed_its_uncertainty():
    low, high = np.array([1.0, 1.2, 0.8]), np.array([2.0, 2.2, 1.8])
    assert gap(low, high).below and gap(high, low).above
    wide = np.array([0.0, 4.0, 1.0])
    assert not gap(low, wide).below and not gap(low, wide).above


def test_riverswim_as_json(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(riverswim, "EPISODES", 12)
    monkeypatch.setattr(riverswim, "SEEDS", 2)
    monkeypatch.setattr(riverswim, "MARKS", (5, 12))
    random = np.random.default_rng(0)

    def instantly(task, ensemble, options, episodes, seeds):
        return History(random.random((seeds, episodes)), np.ones((seeds, episodes), bool)), None

    monkeypatch.setattr(riverswim, "run", instantly)  # ensembles themselves have their own tests
    assert run(["explore", "riverswim", "--quick", "--json", "--out", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["regret"]["psrl"]["6"] > 0 and found["regret"]["greedy"]["6"] == pytest.approx(
        12 * 3.297, abs=0.01
    )
    assert {"functional", "functional+anchored", "independent+anchored, per step"} <= found["regret"].keys()
    assert {claim["verdict"] for claim in found["claims"]} <= {"holds", "fails"}
    for ending in ("json", "csv", "png"):
        assert (tmp_path / f"riverswim.{ending}").stat().st_size > 100


def stand_in_ladder(task, episodes: int, base: float) -> np.ndarray:
    return np.full(3, base if task.states <= 6 else np.inf)


def test_deepsea_climbs_while_half_of_the_seeds_solve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names = [*riverswim.LEARNERS, *(method.name for method in deepsea._ensembles(quick=True))]
    fast = {name: (lambda task, episodes: np.full(3, 20.0)) for name in names}
    fast |= {name: (lambda task, episodes: np.full(3, np.inf)) for name in ("greedy", "epsilon-greedy", "shared")}
    fast["functional-own+prior"] = lambda task, episodes: stand_in_ladder(task, episodes, 15.0)
    monkeypatch.setattr(deepsea, "_players", lambda quick: fast)
    report = conduct(deepsea.EXPERIMENT, True, tmp_path)
    reach = report["data"]["reach"]["deterministic"]
    assert (reach["independent+prior"], reach["functional-own+prior"], reach["shared"]) == (10, 6, 0)
    assert "10" not in report["data"]["median"]["deterministic"]["greedy"]  # it did not go on
    verdicts = {claim["statement"]: claim["verdict"] for claim in report["claims"]}
    assert verdicts["Greedy and epsilon-greedy learners solve no size"] == "holds"
    assert verdicts["The functional form gets further than independent critics, both with a prior"] == "fails"
    assert verdicts["A prior brings shared critics further"] == "holds"


def test_calibration_on_three_data_sets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(calibration, "KINDS", ("functional",))
    monkeypatch.setattr(calibration, "PRIORS", ("none", "anchored"))
    monkeypatch.setattr(calibration, "MEMBERS", 10)
    curves = [calibration._all_curves(calibration.river_swim(6), 20, seed, 3.6) for seed in range(3)]
    rows = [
        {
            "method": name,
            "episodes": 20,
            "seed": seed,
            **calibration.measures(each, found["posterior"], calibration.GRID),
        }
        for seed, found in enumerate(curves)
        for name, each in found.items()
        if name != "posterior"
    ]
    table = calibration._table(rows, 20)
    assert table["functional"]["std_ratio"] < 0.1  # first weights alone are no posterior
    assert 0.5 < table["functional+anchored"]["std_ratio"] < 2.0
    assert table["functional+anchored"]["wasserstein"] < table["functional"]["wasserstein"]
