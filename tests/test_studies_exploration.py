"""Studies of exploration: their verdicts, and what is kept of a long one."""

import json
from pathlib import Path

import numpy as np
import pytest

from fcritic.cli.dispatch import run
from fcritic.exploration.known import History
from fcritic.study.catalog import load
from fcritic.study.report import conduct
from fcritic.study.spec import Trainings
from studies.exploration.methods import ENSEMBLES, Method, brief_methods, main_methods, masked_methods

load("deepsea")
from studies.exploration import calibration, deepsea, riverswim  # noqa: E402
from studies.exploration.deepsea import Dive, Diver, claims_of, climb, divers, reaches  # noqa: E402
from studies.exploration.judging import gap  # noqa: E402


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
    # A gap of 3 standard errors: not enough of two seeds each (4.3 are needed), enough of eight (2.1).
    two, eight = np.array([0.0, 1.0]), np.tile([0.0, 1.0], 4)
    far = lambda seeds: gap(seeds, seeds + 3 * np.sqrt(2 * seeds.var(ddof=1) / len(seeds)))
    assert far(two).errors_needed == pytest.approx(4.303, abs=1e-3) and not far(two).below
    assert far(eight).errors_needed == pytest.approx(2.145, abs=1e-3) and far(eight).below


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


def stand_in(name: str, solved_at: float, largest: int = 100) -> Diver:
    """Solves every sea up to a size in this episode."""
    return Diver(name, lambda task, episodes: np.full(3, solved_at if task.states <= largest else np.inf), {})


def test_deepsea_climbs_while_half_of_the_seeds_solve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names = [*riverswim.LEARNERS, *(method.name for method in deepsea._ensembles(quick=True))]
    who = {name: stand_in(name, 20.0) for name in names}
    who |= {name: stand_in(name, np.inf) for name in ("greedy", "epsilon-greedy", "shared")}
    who["functional-own+prior"] = stand_in("functional-own+prior", 15.0, largest=6)
    monkeypatch.setattr(deepsea, "divers", lambda methods: list(who.values()))
    monkeypatch.setattr(deepsea, "knowledge", lambda *rest: {"cosine": np.array([[0.1, 0.7, 0.2]])})
    report = conduct(deepsea.STUDY, Trainings(tmp_path), True, "", tmp_path)
    reach = report["data"]["reach"]["deterministic"]
    assert (reach["independent+prior"], reach["functional-own+prior"], reach["shared"]) == (10, 6, 0)
    assert "10" not in report["data"]["median"]["deterministic"]["greedy"]  # it did not go on
    assert report["data"]["slopes"] == {"functional-own+prior": {"cosine": 0.2}}
    verdicts = {claim["statement"]: claim["verdict"] for claim in report["claims"]}
    assert verdicts["Greedy and epsilon-greedy learners solve no size"] == "holds"
    assert verdicts["The functional form gets further than independent critics, both with a prior"] == "fails"
    assert verdicts["A prior brings shared critics further"] == "holds"
    assert verdicts["A prior brings actors critics further"] == "fails"  # the same episodes are no gain
    assert verdicts["The second term of functional-own+prior critics points where the exact one does"] == "fails"
    best = "critics with their best options reach as far as bootstrapped ones with priors, deterministic"
    assert (verdicts[f"functional-own {best}"], verdicts[f"functional-first {best}"]) == ("holds", "holds")


def test_claims_of_a_full_ladder():
    """Remedies are judged where both have been, at size 20, although `functional-own` got further."""
    methods = [method.name for method in deepsea._ensembles(quick=False)]
    names = [*riverswim.LEARNERS, *methods, "functional-all-first+prior", "functional-near+prior"]
    found = {("deterministic", name, 20): 500.0 for name in names} | {
        ("deterministic", "functional-own+prior", 30): 700.0
    }
    found["deterministic", "functional-all-first+prior", 20] = 200.0
    dives = {
        (form, name, size): Dive(form, name, size, np.array([mean - 10, mean, mean + 10]), 0.0)
        for (form, name, size), mean in found.items()
    }
    verdicts = {verdict.claim: verdict for verdict in claims_of(dives, episodes=1000)}
    remedy = verdicts["All actors and no second term: fewer episodes than own actor and both terms"]
    assert remedy.outcome == "holds" and remedy.figures["functional-own+prior: mean episodes at N = 20"] == 500
    assert verdicts["Policies near its actor, never run, in a critic's training: fewer episodes"].outcome == "fails"
    assert verdicts["The functional form gets further than actors critics, both with a prior"].outcome == "holds"
    assert verdicts["Greedy and epsilon-greedy learners solve no size"].outcome == "fails"
    assert reaches(dives)["deterministic"]["functional-own+prior"] == 30


def test_a_finished_dive_is_not_repeated(tmp_path: Path):
    """Unless it was too short, or another method's; what is not a dive at all is replaced."""
    asked = []

    def dive(task, episodes: int) -> np.ndarray:
        asked.append(episodes)
        return np.array([5.0, 80.0 if episodes >= 80 else np.inf])

    def climbed(episodes: int, **settings: int) -> list[float]:
        who = [Diver("someone, per step", dive, settings)]
        return climb(who, {"deterministic": (4,)}, episodes, tmp_path)[0].solved_at.tolist()

    assert climbed(50) == climbed(50) == [5.0, np.inf] and asked == [50]
    assert climbed(100) == climbed(90) == climbed(1000) == [5.0, 80.0] and asked == [50, 100]
    assert climbed(60) == [5.0, np.inf] and asked == [50, 100]  # a shorter ladder is part of the longer one
    climbed(60, members=3)
    assert asked == [50, 100, 60]
    (tmp_path / "deepsea-4" / "someone-per-step.json").write_text("[1, 2]")
    assert climbed(70) == [5.0, np.inf] and asked == [50, 100, 60, 70]


def test_a_new_option_leaves_finished_dives_valid():
    who = {diver.name: diver.settings for diver in divers([Method("functional-first", "prior", mask=True)])}
    assert who["functional-first+prior+masks"] == {
        "ensemble": {"kind": "functional", "second_term": False, "evaluated": "own"},
        "options": {"prior_scale": 1.0, "prior_weight": 0.0, "mask": 1.0, "per_step": 0.0},
        "seeds": 10,
    }


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
