"""An exported agent acts as the run it came from, and says that it cannot be trained on."""

import json
import shutil

import pytest

from benchmarks.attacks.small import small_config, train_until
from fcritic.cli.dispatch import run as command
from fcritic.runs import checkpoint


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("export") / "run"
    train_until(small_config("fac-shared"), out, 30)
    return out


def outcome(capsys, *args):
    capsys.readouterr()
    assert command(list(args)) == 0
    return json.loads(capsys.readouterr().out)


def test_it_acts_as_the_run_does_and_is_smaller(trained, tmp_path, capsys):
    out = tmp_path / "given"
    report = outcome(capsys, "export", str(trained), "--out", str(out), "--episodes", "1", "--json")
    assert report["bytes"] < sum(path.stat().st_size for path in trained.rglob("*") if path.is_file())
    again = [outcome(capsys, "evaluate", str(path), "--episodes", "1", "--json") for path in (trained, out)]
    assert again[0] == again[1]
    assert report["seeds"] == again[0]["seeds"]
    card = (out / "README.md").read_text()
    assert f"| 3 | {report['seeds'][0]['mean_actor']:.1f} |" in card
    assert not (out / "replay").exists()


def test_it_cannot_be_trained_on(trained, tmp_path, capsys):
    out = tmp_path / "given"
    outcome(capsys, "export", str(trained), "--out", str(out), "--episodes", "1", "--json")
    before = sorted(path.relative_to(out) for path in out.rglob("*"))
    assert command(["resume", str(out), "--quiet"]) == 2
    assert "is an exported agent without a replay" in capsys.readouterr().err
    assert sorted(path.relative_to(out) for path in out.rglob("*")) == before


def test_nothing_is_written_over(trained, tmp_path, capsys):
    (tmp_path / "mine").write_text("kept")
    assert command(["export", str(trained), "--out", str(tmp_path / "mine")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "kept"


def test_folders_of_the_machine_stay_out(trained, tmp_path, capsys):
    copy = tmp_path / "run"
    shutil.copytree(trained, copy)
    (copy / "command.txt").write_text("2026-01-01T00:00:00 fcritic train --task x --out /home/me/secret --seed 3\n")
    outcome(capsys, "export", str(copy), "--out", str(tmp_path / "given"), "--episodes", "1", "--json")
    assert (tmp_path / "given" / "command.txt").read_text() == "fcritic train --task x --seed 3\n"
    assert "secret" not in (tmp_path / "given" / "README.md").read_text()


def test_a_forged_agent_without_its_frame_is_one_line(trained, tmp_path, capsys):
    outcome(capsys, "export", str(trained), "--out", str(tmp_path / "given"), "--episodes", "1", "--json")
    (saved,) = (tmp_path / "given" / "checkpoints").iterdir()
    groups, facts = checkpoint.load(saved)
    shutil.rmtree(saved)
    checkpoint.save(saved, groups, {name: value for name, value in facts.items() if name != "iteration"})
    assert command(["evaluate", str(tmp_path / "given")]) == 2
    assert "lacks the counters of its training" in capsys.readouterr().err
