"""A run made elsewhere, looked at in a folder full of somebody's files: nothing that it names is run."""

import json
import os
from pathlib import Path
import subprocess
import sys

import numpy as np
import pytest

from fcritic.cli.dispatch import run
from fcritic.config import TrainConfig
from fcritic.runs import checkpoint

ROOT = Path(__file__).parents[1]
MARK = "from pathlib import Path\nPath(__file__).with_name('executed').touch()\n"
COMMANDS = ("resume", "evaluate", "replay", "inspect", "export")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with a run `run`, which has a checkpoint, and an own configuration."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "place"
    checkpoint.save(folder / "run" / "checkpoints" / f"step-{9:012d}", {"agent": {"x": np.zeros(1)}}, {})
    monkeypatch.chdir(folder)
    return folder


def name(place, task, **fields):
    """Makes the run name this task."""
    config = TrainConfig.of("td3").to_json() | {"task": task} | fields
    (place / "run" / "config.json").write_text(json.dumps(config))


def marked(path):
    """A file of Python code that leaves a mark beside itself where it is run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{MARK}\ndef make():\n    raise SystemExit('called')\n")
    return path.with_name("executed")


def words(command):
    return [command, "run", *(["--out", "exported"] if command == "export" else [])]


def complaint(capsys, args):
    """What a command says, on exactly one line."""
    assert run(args) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("fcritic: ") and err.endswith("\n") and err.count("\n") == 1
    return err.removeprefix("fcritic: ").rstrip("\n")


def in_a_process(args, **environment):
    """`python -m fcritic`, which has the working folder on Python's path."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"} | environment
    command = [sys.executable, "-m", "fcritic", *args]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_gymnasium_id_of_a_run_imports_nothing_from_the_working_folder(place, command):
    executed = marked(place / "helper.py")
    name(place, "helper:X-v0")
    result = in_a_process(words(command))
    assert not executed.exists()
    line = f"fcritic: run wants to run helper:X-v0 of {place / 'helper.py'}; if you know and trust that code: "
    assert result.stderr == f"{line}fcritic check helper:X-v0\n"
    assert (result.returncode, result.stdout) == (2, "")


def test_what_lies_in_the_working_folder_does_not_pass_for_a_plugin_or_a_tracker(place):
    """JAX, Gymnasium and `--log` import by name what is found; under `python -m` that was whatever lay around."""
    marks = [marked(place / f"{each}.py") for each in ("wandb", "imageio", "jax_plugins/evil/__init__")]
    plugins = "[jax_plugins]\nevil = planted\n[gymnasium.envs]\n__root__ = planted:make\n"
    (place / "evil-1.0.dist-info").mkdir()
    (place / "evil-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (place / "evil-1.0.dist-info" / "entry_points.txt").write_text(plugins)
    marks.append(marked(place / "planted.py"))
    name(place, "probe-both", log="wandb")
    result = in_a_process(["resume", "run"])
    assert not any(mark.exists() for mark in marks)
    assert result.returncode == 2 and "Traceback" not in result.stderr


def test_a_module_of_the_working_folder_runs_where_its_user_names_it(place, capsys):
    """In all ways to start the program; and from then on a run may name it, until it changes."""
    code = place / "my_pendulum.py"
    code.write_text("import gymnasium\n\ndef make():\n    return gymnasium.make('Pendulum-v1')\n")
    name(place, "my_pendulum:make")
    assert "wants to run my_pendulum:make of" in complaint(capsys, ["resume", "run"])
    result = in_a_process(["check", "my_pendulum:make", "--steps", "10"])
    assert result.returncode == 0, result.stderr
    assert "wants to run" not in complaint(capsys, ["evaluate", "run"])  # its checkpoint is none, but that is all
    code.write_text(code.read_text() + "# changed\n")
    line = f"{code} has changed since you trusted it; if you trust it now: fcritic check my_pendulum:make"
    assert complaint(capsys, ["evaluate", "run"]) == line


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("test.autotest:X-v0", "test is a part of Python, not an environment"),
        ("os:system", "os is a part of Python, not an environment"),
        ("os.path:exists", "os is a part of Python, not an environment"),
        ("zipapp:main", "zipapp is a part of Python, not an environment"),
        ("__main__:x", "__main__ is the program itself"),
        ("nowhere:make", "there is no module nowhere"),
        ("nowhere.py:make", "there is no file"),
        ("loop.py:make", "there is no file"),
        ("here/loop.py:make", "there is no file"),
        ("a b:make", "'a b' is not a module that can be imported"),
        ("a:b:make", "'a:b' is not a module that can be imported"),
        (":make", "'' is not a module that can be imported"),
        ("..:X-v0", "'..' is not a module that can be imported"),
    ],
)
def test_what_can_be_no_task_is_never_recommended(place, capsys, task, words):
    (place / "loop.py").symlink_to("loop.py")
    (place / "here").symlink_to("here")
    name(place, task)
    line = complaint(capsys, ["resume", "run"])
    assert line.startswith(f"run names the task {task}, but {words}") and "fcritic check" not in line


@pytest.mark.parametrize("task", ["fcritic.__main__:main", "gymnasium.envs.registration:make", "gymnasium:make"])
def test_parts_of_this_program_and_of_gymnasium_are_not_recommended(place, capsys, task):
    name(place, task)
    package = task.partition(":")[0].partition(".")[0]
    line = f"run names the task {task}, a part of {package} that no task has to name"
    assert complaint(capsys, ["resume", "run"]) == line


@pytest.mark.parametrize("task", ["os:system", "test.autotest:X-v0", "__main__:main", "loop.py:make"])
def test_what_can_be_no_task_is_not_called_for_its_user_either(place, capsys, task):
    (place / "loop.py").symlink_to("loop.py")
    for command in (["check", task], ["train", "--task", task]):
        assert complaint(capsys, command).startswith(("os is a", "test is a", "__main__ is", "there is no file"))


def test_a_package_that_others_have_registered_an_id_with_must_be_trusted(place, capsys):
    """Plugins of Gymnasium put ids without a module into its registry; its own are always free."""
    import gymnasium

    executed = marked(place / "plugin.py")
    gymnasium.register("Planted-v0", entry_point="plugin:Env")
    try:
        name(place, "Planted-v0")
        assert complaint(capsys, ["resume", "run"]).startswith("run wants to run Planted-v0 of ")
        assert not executed.exists()
    finally:
        del gymnasium.registry["Planted-v0"]
    name(place, "Pendulum-v1")
    assert "no checkpoint in run" in complaint(capsys, ["resume", "run"])  # of its checkpoint


def test_a_package_is_not_itself_where_its_folder_is_another(place, capsys, tmp_path, monkeypatch):
    """A link to trusted code inside a stranger's package would run that package first."""
    own = tmp_path / "own"
    executed = marked(place / "pack" / "__init__.py")
    marked(own / "pack" / "__init__.py")
    (own / "pack" / "robot.py").write_text("def make():\n    raise ValueError\n")
    (place / "pack" / "robot.py").symlink_to(own / "pack" / "robot.py")
    monkeypatch.chdir(own)
    assert "cannot build its environment" in complaint(capsys, ["train", "--task", "pack.robot:make"])
    for loaded in ("pack", "pack.robot"):
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(own)])
    name(place, "pack.robot:make")
    monkeypatch.chdir(place)
    assert "wants to run pack.robot:make" in complaint(capsys, ["resume", "run"])
    assert not executed.exists()


def test_the_list_is_not_looked_for_in_the_working_folder(place, capsys, monkeypatch):
    (place / "robot.py").write_text("def make():\n    raise ValueError\n")
    name(place, "robot.py:make")
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    monkeypatch.setenv("HOME", str(place / "home"))
    complaint(capsys, ["train", "--task", "robot.py:make"])
    (place / "config").mkdir()
    (place / "home" / ".config" / "fcritic").rename(place / "config" / "fcritic")
    assert "wants to run robot.py:make" in complaint(capsys, ["resume", "run"])


def test_names_of_all_kinds_are_one_line_in_every_command(place, capsys):
    metrics = '{"seed": 0, "env_steps": 9, "kind": "evaluation", "mean_actor": 1, "best_actor": 2}\n'
    (place / "run" / "metrics.jsonl").write_text(metrics)
    for task in (
        "x\0y",
        "\ud800",
        "a" * 5000,
        "",
        "$\\frac$",
        "deepsea-999999",
        "probe-",
        "GymV26Environment-v0",
        "given:x",
    ):
        name(place, task)
        for command in COMMANDS:
            assert complaint(capsys, words(command)), task
        assert run(["plot", "run", "--out", "curve.png"]) == 0 and "Traceback" not in capsys.readouterr().err
