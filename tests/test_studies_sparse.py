"""`fcritic explore sparse`: its trainings, verdicts and files."""

from pathlib import Path

import numpy as np
import pytest

from fcritic.agents.fac import FAC
from fcritic.cli.dispatch import run
from fcritic.errors import UsageError
from fcritic.study import execute
from fcritic.study.catalog import load
from fcritic.study.execute import progress
from fcritic.study.report import conduct
from fcritic.study.spec import Trainings, plain

load("sparse")
from studies.exploration import sparse  # noqa: E402
from studies.exploration.sparse import METHODS, SETTINGS, Found, training  # noqa: E402


def found(first_reward, mean_actor=1.0) -> Found:
    count = len(first_reward)
    measures = {name: np.full(count, 0.5) for name in ("diversity", "disagreement", "coverage")}
    return Found(np.array(first_reward, float), np.full(count, mean_actor), measures)


@pytest.mark.parametrize("method", METHODS)
def test_methods_differ_in_what_their_names_say(method):
    agent = training("deepsea-10", method, 5000, 4).config().agent
    if isinstance(agent, FAC):
        assert (agent.prior_scale > 0) == ("prior" in method)
        assert agent.explore.per_step == ("per step" in method)
        assert agent.functional == method.startswith("functional")
    else:
        assert method in ("sac", "td3", "sac+") and agent.discount == SETTINGS["deepsea-10"].discount


@pytest.mark.parametrize("task", SETTINGS)
def test_every_task_can_be_configured(task):
    config = training(task, "functional, prior", SETTINGS[task].frames, 4).config()
    assert config.warmup_actions == "policy" and config.warmup < config.steps / 3
    assert config.replay * config.envs * config.action_repeat >= min(config.steps, 400_000) - 16
    assert config.agent.prior_scale == SETTINGS[task].prior


TABLE = {
    ("trap", "functional, prior"): found([80.0, 80.0]),
    ("trap", "functional"): found([800.0, np.inf]),
    ("trap", "sac"): found([80.0, np.inf]),
    ("riverswim-6", "functional, prior"): found([300.0, 600.0]),
    ("riverswim-6", "functional"): found([3000.0, np.inf], mean_actor=0.0),
    ("riverswim-6", "sac"): found([np.inf, 300.0]),
}
FRAMES = {"trap": 800, "riverswim-6": 3000}


def test_search_times_and_verdicts_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Never found is 1; tasks count alike; a gap must exceed two standard errors."""
    np.testing.assert_allclose(sparse.search_times(TABLE, FRAMES, "functional, prior"), [0.1, 0.15])
    np.testing.assert_allclose(sparse.search_times(TABLE, FRAMES, "sac"), [0.55, 0.55])
    monkeypatch.setattr(sparse.Sparse, "find", lambda self, runs, quick: sparse.findings_of(TABLE, FRAMES))
    report = conduct(sparse.STUDY, Trainings(tmp_path), False, "", tmp_path)
    verdicts = {claim["statement"]: claim["verdict"] for claim in report["claims"]}
    assert verdicts == {
        "A prior: functional, prior before functional": "holds",
        "Beside baselines: functional, prior before sac": "holds",
    }
    assert report["data"]["found_share"]["trap"]["functional"] == 0.5
    assert report["data"]["solved_share"]["riverswim-6"]["functional"] == 0.0
    assert len((tmp_path / "sparse.csv").read_text().splitlines()) == 13
    assert (tmp_path / "sparse.png").stat().st_size > 5000


def test_a_finished_training_is_read_from_its_folder(tmp_path: Path):
    run_ = training("trap", "sac", 120, 2)
    assert sparse.found_in(run_, tmp_path) is None
    assert execute.run_all(progress((run_,), tmp_path), execute.Budget(None), print) == []
    first = sparse.found_in(run_, tmp_path)
    assert first.first_reward.shape == (2,) and np.isnan(first.measures["diversity"]).all()
    assert (first.measures["coverage"] >= 1).all()
    assert sparse.found_in(training("trap", "sac", 120, 3), tmp_path) is None  # another training's folder
    assert sparse.found_in(training("trap", "sac", 500, 2), tmp_path) is None  # not at its end


def test_claims_are_judged_on_the_tasks_that_both_methods_have_finished(tmp_path: Path, monkeypatch, capsys):
    done = {("trap", "functional"), ("trap", "plain"), ("riverswim-6", "functional")}
    read = lambda run, folder: found([10.0] * run.seeds) if (run.task, run.method) in done else None
    monkeypatch.setattr(sparse, "found_in", read)
    findings = sparse.STUDY.find(Trainings(tmp_path), False)
    assert [verdict.figures["tasks"] for verdict in findings.verdicts] == [["trap"]]
    assert findings.verdicts[0].kind == "paper" and findings.outcome == "fails"
    assert findings.plot["found_share"].keys() == {"trap", "riverswim-6"}
    done.clear()
    assert run(["explore", "sparse", "--dir", str(tmp_path), "--only", "nobody"]) == 2
    assert run(["experiment", "report", "sparse", "--dir", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "is finished; begin with: fcritic explore sparse" in capsys.readouterr().err


def test_trainings_of_another_machine_are_added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    there = sparse.rows_of({("hopper-hop", "sac"): found([10.0, np.inf])}, {"hopper-hop": 320_000})
    file = tmp_path / "sparse.csv"
    lines = [",".join(there[0]), *(",".join(str(value) for value in plain(row).values()) for row in there)]
    file.write_text("\n".join(lines))
    again = sparse.read_found(file)["hopper-hop", "sac"]
    np.testing.assert_array_equal(again.first_reward, [10.0, np.inf])
    assert again.measures.keys() == {"diversity", "disagreement", "coverage"}
    here = lambda run, folder: found([10.0] * run.seeds) if (run.task, run.method) == ("trap", "td3") else None
    monkeypatch.setattr(sparse, "found_in", here)
    told = sparse.STUDY.find(Trainings(tmp_path, (file,)), False).plot["first_reward"]
    assert told == {"trap": {"td3": [10.0] * 4}, "hopper-hop": {"sac": [10.0, np.inf]}}
    for text, message in (
        ("a,b\n1,2\n", "lacks task, method"),
        (file.read_text().replace("320000", "5"), "5 frames"),
        (file.read_text().replace("inf", "soon"), "cannot be read"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=message):
            sparse.read_found(file)


def test_the_recorded_trainings_are_still_those_of_the_study():
    """Every row of the committed file is read, so that a later machine can add to it."""
    file = Path(sparse.__file__).with_name("sparse.csv")
    assert len(sparse.read_found(file)) == len(SETTINGS) * len(sparse.SHOWN)
