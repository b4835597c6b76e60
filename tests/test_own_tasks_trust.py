"""Tasks that are code: what a user trusts is run, what a stranger's run brings or names is not."""

import json
import re
import shutil

from own_code import code, own_home
import pytest

import fcritic
from fcritic.api.trust import config_of, trust_task
from fcritic.errors import UsageError
from fcritic.runs.directory import RunDirectory

__all__ = ["code", "own_home"]


def run_with_task(path, task):
    config = fcritic.configure("td3", task)
    RunDirectory.create_or_open(path, config.to_json(), "test").close()
    return RunDirectory.open_existing(path)


def test_a_file_of_code_runs_for_its_user_but_not_for_a_stranger(code, tmp_path):
    task = f"{code}/my_robots.py:Robots.pendulum"
    run = run_with_task(tmp_path / "run", task)
    with pytest.raises(UsageError, match=r"wants to run .* of .*my_robots\.py; .* fcritic check .*pendulum"):
        config_of(run)
    trust_task(task)
    assert config_of(run).task == task
    with pytest.raises(UsageError, match="wants to run"):  # another function of the same file
        config_of(replaced(run, f"{code}/my_robots.py:many"))
    with (code / "my_robots.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(UsageError, match=r"my_robots\.py has changed since you trusted it; .* fcritic check "):
        config_of(replaced(run, task))
    trust_task(task)
    assert config_of(run).task == task


def test_the_code_of_a_run_is_never_trusted(code, tmp_path):
    run = run_with_task(tmp_path / "run", "probe-both")
    inside = tmp_path / "run" / "my_robots.py"
    shutil.copy(code / "my_robots.py", inside)
    trust_task(f"{inside}:many")
    with pytest.raises(UsageError, match="contains the code of its own task"):
        config_of(replaced(run, f"{inside}:many"))
    linked = tmp_path / "link.py"
    linked.symlink_to(inside)
    with pytest.raises(UsageError, match="contains the code of its own task"):
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
    with pytest.raises(UsageError, match="contains the code of its own task"):
        config_of(run)


def test_a_run_cannot_have_anything_called_that_is_installed(tmp_path):
    """`pytest:main` would run the tests that lie in the folder: a name alone can be an attack."""
    run = run_with_task(tmp_path / "run", "pytest:main")
    with pytest.raises(UsageError, match=r"wants to run pytest:main of .*pytest.__init__\.py; if you know"):
        config_of(run)
    for task in ("pytest:main", "no_such_module:make", "nowhere.py:make", "Pendulum-v1", "os:system"):
        trust_task(task)
    ledger = tmp_path / "config" / "fcritic" / "trusted-tasks"
    assert re.fullmatch(rf"sha256:[0-9a-f]{{64}} {re.escape(pytest.__file__)}:main\n", ledger.read_text())
    assert config_of(run).task == "pytest:main"
    with pytest.raises(UsageError, match="wants to run"):  # Gymnasium's form imports the module
        config_of(replaced(run, "benchmarks.attacks.sick:Walk-v0"))
    trust_task("benchmarks.attacks.sick:Walk-v0")
    assert config_of(run).task == "benchmarks.attacks.sick:Walk-v0"


def test_a_list_of_an_earlier_version_counts_no_longer(code, tmp_path):
    """It named modules, and files without what was in them."""
    task, ledger = f"{code}/my_robots.py:many", tmp_path / "config" / "fcritic" / "trusted-tasks"
    ledger.parent.mkdir(parents=True)
    ledger.write_text(f"pytest:main\n{code}/my_robots.py\n{task}\n \n\n")
    run = run_with_task(tmp_path / "run", task)
    for each in (task, "pytest:main"):
        with pytest.raises(UsageError, match="wants to run"):
            config_of(replaced(run, each))
    trust_task(task)
    assert config_of(replaced(run, task)).task == task
    assert ledger.read_text().startswith("pytest:main\n")  # what is there stays
