"""`fcritic explore sparse`: its trainings, verdicts and files."""

import json
from pathlib import Path

import numpy as np
import pytest

from fcritic.agents.fac import FAC
from fcritic.cli.dispatch import run
from fcritic.exploration.experiments import sparse, sparse_files, sparse_runs
from fcritic.exploration.experiments.sparse_runs import METHODS, SETTINGS, Found, config_of
from fcritic.theory.experiments import base
from fcritic.theory.experiments.base import conduct


def found(first_reward, mean_actor=1.0) -> Found:
    count = len(first_reward)
    measures = {name: np.full(count, 0.5) for name in ("diversity", "disagreement", "coverage")}
    return Found(np.array(first_reward, float), np.full(count, mean_actor), measures)


@pytest.mark.parametrize("method", METHODS)
def test_methods_differ_in_what_their_names_say(method):
    agent = config_of("deepsea-10", method, 5000, 4).agent
    if isinstance(agent, FAC):
        assert (agent.prior_scale > 0) == ("prior" in method)
        assert agent.explore.per_step == ("per step" in method)
        assert agent.functional == method.startswith("functional")
    else:
        assert method in ("sac", "td3", "sac+") and agent.discount == SETTINGS["deepsea-10"].discount


@pytest.mark.parametrize("task", SETTINGS)
def test_every_task_can_be_configured(task):
    config = config_of(task, "functional, prior", SETTINGS[task].frames, 4)
    assert config.warmup_actions == "policy" and config.warmup < config.steps / 3
    assert config.replay * config.envs * config.action_repeat >= min(config.steps, 400_000) - 16
    assert config.agent.prior_scale == SETTINGS[task].prior


def test_search_times_and_verdicts_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Never found is 1; tasks count alike; a gap must exceed two standard errors."""
    table = {
        ("trap", "functional, prior"): found([80.0, 80.0]),
        ("trap", "functional"): found([800.0, np.inf]),
        ("trap", "sac"): found([80.0, np.inf]),
        ("riverswim-6", "functional, prior"): found([300.0, 600.0]),
        ("riverswim-6", "functional"): found([3000.0, np.inf], mean_actor=0.0),
        ("riverswim-6", "sac"): found([np.inf, 300.0]),
    }
    frames = {"trap": 800, "riverswim-6": 3000}
    np.testing.assert_allclose(sparse.search_times(table, frames, "functional, prior"), [0.1, 0.15])
    np.testing.assert_allclose(sparse.search_times(table, frames, "sac"), [0.55, 0.55])
    monkeypatch.setattr(sparse.Sparse, "run", lambda self, quick: sparse.outcome_of(table, frames))
    report = conduct(sparse.EXPERIMENT, False, tmp_path)
    verdicts = {claim["statement"]: claim["verdict"] for claim in report["claims"]}
    assert verdicts == {
        "A prior: functional, prior before functional": "holds",
        "Beside baselines: functional, prior before sac": "holds",
    }
    assert report["data"]["found_share"]["trap"]["functional"] == 0.5
    assert report["data"]["solved_share"]["riverswim-6"]["functional"] == 0.0
    assert len((tmp_path / "sparse.csv").read_text().splitlines()) == 13
    assert (tmp_path / "sparse.png").stat().st_size > 5000


def test_a_real_run_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = sparse_runs.conduct_run("trap", "sac", 120, 2, tmp_path)
    assert first.first_reward.shape == (2,) and np.isnan(first.measures["diversity"]).all()
    assert (first.measures["coverage"] >= 1).all()
    assert sparse_runs.is_finished("trap", "sac", 120, 2, tmp_path)
    assert not sparse_runs.is_finished("trap", "td3", 120, 2, tmp_path)
    assert not sparse_runs.is_finished("trap", "sac", 120, 3, tmp_path)
    monkeypatch.setattr(sparse_runs, "train", lambda *rest, **options: pytest.fail("it was finished"))
    again = sparse_runs.conduct_run("trap", "sac", 120, 2, tmp_path)
    np.testing.assert_array_equal(again.first_reward, first.first_reward)
    np.testing.assert_array_equal(again.mean_actor, first.mean_actor)


def test_tasks_are_chosen_and_mistyped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    asked = []

    def instantly(task, method, frames, seeds, folder):
        asked.append((task, frames, seeds))
        return found([10.0] * seeds)

    monkeypatch.setattr(sparse, "conduct_run", instantly)
    assert run(["explore", "sparse", "--tasks", "hopper-hop", "--json", "--out", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(asked) == {("hopper-hop", 320_000, 4)} and len(told["claims"]) == len(sparse.EARLIER)
    assert told["found_share"]["hopper-hop"]["sac"] == 1.0
    assert told["first_reward"]["hopper-hop"]["functional"] == [10.0] * 4
    assert run(["explore", "sparse", "--tasks", "hoper-hop"]) == 2
    assert "did you mean hopper-hop?" in capsys.readouterr().err
    asked.clear()
    chosen = ["--methods", "functional, prior", "td3", "--out", str(tmp_path)]
    assert run(["explore", "sparse", "--tasks", "trap", *chosen]) == 0 and len(asked) == 2
    capsys.readouterr()
    assert run(["explore", "sparse", "--methods", "functional prior"]) == 2
    assert "did you mean functional, prior?" in capsys.readouterr().err
    assert run(["explore", "deepsea", "--tasks", "hopper-hop"]) == 2
    assert "--tasks, --methods, --finished and --add are for `explore sparse`" in capsys.readouterr().err


def test_only_what_is_finished_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys):
    """A claim is judged on the tasks that both of its methods have run."""
    done = {("trap", "functional"), ("trap", "plain"), ("riverswim-6", "functional")}
    monkeypatch.setattr(sparse, "is_finished", lambda task, method, *rest: (task, method) in done)
    monkeypatch.setattr(sparse, "conduct_run", lambda task, method, frames, seeds, folder: found([10.0] * seeds))
    assert run(["explore", "sparse", "--finished", "--json", "--out", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [claim["figures"]["tasks"] for claim in told["claims"]] == [["trap"]]
    assert told["found_share"].keys() == {"trap", "riverswim-6"}
    done.clear()
    assert run(["explore", "sparse", "--finished", "--out", str(tmp_path)]) == 2
    assert "leave out --finished to begin" in capsys.readouterr().err


def test_figures_of_another_machine_are_added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys):
    there = sparse_files.rows_of({("hopper-hop", "sac"): found([10.0, np.inf])}, {"hopper-hop": 320_000})
    file = tmp_path / "sparse.csv"
    base._write_rows(there, file)
    again = sparse_files.read_found(file)["hopper-hop", "sac"]
    np.testing.assert_array_equal(again.first_reward, [10.0, np.inf])
    assert again.measures.keys() == {"diversity", "disagreement", "coverage"}
    monkeypatch.setattr(sparse, "is_finished", lambda task, method, *rest: (task, method) == ("trap", "td3"))
    monkeypatch.setattr(sparse, "conduct_run", lambda task, method, frames, seeds, folder: found([10.0] * seeds))
    line = ["explore", "sparse", "--finished", "--add", str(file), "--json", "--out", str(tmp_path / "all")]
    assert run(line) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["first_reward"] == {"trap": {"td3": [10.0] * 4}, "hopper-hop": {"sac": [10.0, "inf"]}}
    for text, message in (
        ("a,b\n1,2\n", "is no sparse.csv"),
        (file.read_text().replace("320000", "5"), "5 frames"),
    ):
        file.write_text(text)
        assert run(line) == 2 and message in capsys.readouterr().err
    assert run([*line[:3], "--add", str(tmp_path)]) == 2 and "cannot read" in capsys.readouterr().err


def test_all_quick_leaves_out_what_must_compile_deep_agents(monkeypatch: pytest.MonkeyPatch):
    from fcritic.cli import explore

    asked = []
    monkeypatch.setattr(explore, "judge", lambda options, known, load, brief: asked.append(list(known)))
    assert run(["explore", "all", "--quick"]) == 0 and run(["explore", "all"]) == 0
    assert asked == [["riverswim", "deepsea", "calibration"], ["riverswim", "deepsea", "calibration", "sparse"]]
