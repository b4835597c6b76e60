"""Tasks that are code: what a user trusts is run, what a stranger's run brings or names is not."""

import json
import shutil

from own_code import code, own_home
import pytest

import fcritic
from fcritic.errors import UsageError
from fcritic.runs.directory import RunDirectory
from fcritic.runs.run_config import config_of

__all__ = ["code", "own_home"]


def run_with_task(path, task):
    config = fcritic.configure("td3", task)
    RunDirectory.create_or_open(path, config.to_json(), "test").close()
    return RunDirectory.open_existing(path)


def test_a_file_of_code_runs_for_its_user_but_not_for_a_stranger(code, tmp_path):
    task = f"{code}/my_robots.py:Robots.pendulum"
    run = run_with_task(tmp_path / "run", task)
    with pytest.raises(UsageError, match=r"wants to run .*; if you trust that code: fcritic check .*pendulum"):
        config_of(run)
    fcritic.runs.trust.trust(task)
    assert config_of(run).task == task
    inside = tmp_path / "run" / "my_robots.py"
    shutil.copy(code / "my_robots.py", inside)
    fcritic.runs.trust.trust(f"{inside}:many")
    with pytest.raises(UsageError, match="brings the code of its own task"):
        config_of(replaced(run, f"{inside}:many"))
    linked = tmp_path / "link.py"
    linked.symlink_to(inside)
    with pytest.raises(UsageError, match="brings the code of its own task"):
        config_of(replaced(run, f"{linked}:many"))


def replaced(run, task):
    config = json.loads((run.path / "config.json").read_text())
    (run.path / "config.json").write_text(json.dumps(config | {"task": task}))
    return run


def test_a_package_around_the_run_does_not_let_its_code_in(tmp_path, monkeypatch):
    """`runs.mine.evil` is found below a folder that is on the path, and lies in the run all the same."""
    run = run_with_task(tmp_path / "runs" / "mine", "runs.mine.evil:make")
    (run.path / "evil.py").write_text("raise SystemExit('executed')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match="brings the code of its own task"):
        config_of(run)


def test_a_run_cannot_have_anything_called_that_is_installed(tmp_path):
    """`pytest:main` would run the tests that lie in the folder: a name alone can be an attack."""
    run = run_with_task(tmp_path / "run", "pytest:main")
    with pytest.raises(UsageError, match="wants to run pytest:main; if you trust that code"):
        config_of(run)
    for task in ("pytest:main", "no_such_module:make", "nowhere.py:make", "Pendulum-v1"):
        fcritic.runs.trust.trust(task)
    assert (tmp_path / "config" / "fcritic" / "trusted-tasks").read_text() == "pytest:main\n"
    assert config_of(run).task == "pytest:main"
    assert config_of(replaced(run, "benchmarks.attacks.sick:Walk-v0"))  # Gymnasium's form is imported, not called
