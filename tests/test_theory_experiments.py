"""Experiments: verdicts are computed, files and messages are as promised, small studies find what they should."""

import json
from pathlib import Path

import numpy as np
import pytest

from fcritic.cli.dispatch import run
from fcritic.errors import UsageError
from fcritic.theory import experiments
from fcritic.theory.experiments import studies
from fcritic.theory.experiments.base import Claim, Experiment, Outcome, conduct, plain, report_text
from fcritic.theory.pictures import panels
from fcritic.theory.problems import idle_behaviour


class Toy(Experiment):
    """Two claims, one of them false."""

    name = "toy"
    statement = "One is less than the other."

    def run(self, quick: bool) -> Outcome:
        low, high = (1.0, 2.0) if quick else (2.0, np.inf)
        claims = [
            Claim("low < high", low < high, {"low": low, "high": high}, "a label"),
            Claim("high < low", high < low, {"gap": [low, high]}),
        ]
        return Outcome(claims, {"points": np.array([low, high])}, [{"low": low, "high": high}], ["seen by hand"])

    def draw(self, outcome: Outcome, path: Path) -> None:
        with panels(path) as (axis,):
            axis.plot(outcome.data["points"])


def test_a_run_writes_what_it_found(tmp_path: Path):
    report = conduct(Toy(), quick=False, out=tmp_path / "new")
    assert report == json.loads((tmp_path / "new" / "toy.json").read_text())
    assert [claim["verdict"] for claim in report["claims"]] == ["holds", "fails"]
    assert report["verdict"] == "fails"
    assert report["claims"][0]["figures"] == {"low": 2.0, "high": "inf"}
    assert (tmp_path / "new" / "toy.csv").read_text() == "low,high\n2.0,inf\n"
    assert (tmp_path / "new" / "toy.png").stat().st_size > 1000


def test_a_report_for_a_person_names_every_verdict(tmp_path: Path):
    text = report_text(conduct(Toy(), quick=True, out=tmp_path))
    assert "verdict: holds  low < high (a label)" in text
    assert "verdict: fails  high < low" in text
    assert "gap: 1, 2" in text
    assert "note: seen by hand" in text
    assert "1 of 2 claims hold" in text


def test_a_folder_that_cannot_be_written_is_said_in_one_line(tmp_path: Path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(UsageError, match=r"cannot write the picture to .* choose another --out"):
        conduct(Toy(), quick=True, out=tmp_path / "taken")


def test_plain_values():
    found = plain({"a": np.float64(1 / 3), 2: (np.int64(1), np.bool_(True)), "n": [np.nan, -np.inf], "t": "x"})
    assert found == {"a": 0.333333, "2": [1, True], "n": ["nan", "-inf"], "t": "x"}


@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_every_experiment_is_found_by_its_name(name: str):
    experiment = experiments.load(name)
    assert experiment.name == name
    assert experiment.statement.endswith(".")


def test_without_a_name_the_command_lists_them(capsys: pytest.CaptureFixture):
    for args in (["theory"], ["theory", "--help"]):
        assert run(args) == 0
        text = capsys.readouterr().out
        for name, line in experiments.EXPERIMENTS.items():
            assert f"{name} " in text
            assert line in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["theory", "theorem1"], "unknown experiment 'theorem1'; did you mean theorem-1?"),
        (["theory", "zzz"], "unknown experiment 'zzz'; known are counterexamples, "),
        (["theory", "all", "--quik"], "unknown option --quik; did you mean --quick?"),
        (["theory", "--quick"], "is missing"),
    ],
)
def test_mistakes_are_one_line_and_exit_with_two(args: list[str], message: str, capsys: pytest.CaptureFixture):
    assert run(args) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch):
    from fcritic.cli import theory

    monkeypatch.setattr(theory, "load", lambda name: Toy())
    assert run(["theory", "toy", "--quick", "--out", str(tmp_path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["verdict"] == "fails"
    assert printed["quick"] is True
    assert "data" not in printed
    assert run(["theory", "all", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("toy: One is less") == len(experiments.EXPERIMENTS)


def test_committed_results_are_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch):
    """Neither by default, from whatever folder, nor by naming their folder."""
    from fcritic.cli import theory, verdicts

    monkeypatch.setattr(theory, "load", lambda name: Toy())
    committed = tmp_path / "results" / "theory" / "toy.json"
    committed.parent.mkdir(parents=True)
    committed.write_text("evidence")
    monkeypatch.setattr(verdicts, "EVIDENCE", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    assert run(["theory", "toy", "--quick"]) == 0 and (tmp_path / "reports" / "toy" / "toy.json").is_file()
    assert run(["theory", "toy", "--out", "results/theory"]) == 2
    assert "holds committed results" in capsys.readouterr().err
    assert committed.read_text() == "evidence" and len(list(committed.parent.iterdir())) == 1


def test_the_slope_of_a_power_is_its_exponent():
    x = np.array([1.0, 2.0, 5.0])
    assert studies.slope(x, 3 * x**-1.5) == pytest.approx(-1.5)


def test_small_studies_find_the_terms_of_the_bound():
    outer = studies.outer_study(2, 30)
    assert outer["largest_share_of_bound"] <= 1 + 1e-9
    assert outer["identity_gap"] < 1e-10
    injected = studies.approximation_study(np.array([0.01, 0.1]), 1, 100)
    assert (injected["squared_error"] <= injected["bound"]).all()
    assert studies.slope(injected["injected"][0] ** 2, injected["squared_error"][0]) == pytest.approx(1, abs=0.25)
    plateau = studies.plateau_study(200)
    assert np.isinf(plateau["coverage"])
    assert plateau["uncovered"][-1] > 1
    assert plateau["covered"][-1] < 1e-12


def test_least_squares_errors_grow_with_coverage():
    small, large = (studies.task_of(idle_behaviour(share)) for share in (0.5, 0.05))
    errors = [studies._least_squares(task, 2000, 20, 80).mean() for task in (small, large)]
    ratio = studies.task_coverage(large) / studies.task_coverage(small)
    assert errors[1] / errors[0] == pytest.approx(ratio, rel=0.5)
