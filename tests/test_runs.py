"""Run directories: one experiment each, one writer at a time, nothing lost on refusal."""

import errno
import json
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from fcritic.errors import UsageError
from fcritic.runs import checkpoint, versions
from fcritic.runs import directory as runs
from fcritic.runs.directory import RunDirectory

ROOT = Path(__file__).parents[1]
CONFIG = {"env": "cheetah-run", "steps": 1000, "agent": {"name": "fac", "rate": 3e-4, "hidden": (256, 256)}}


def begin(path, config=CONFIG, **options):
    return RunDirectory.create_or_open(path, config, "fcritic train", **options)


def contents(folder):
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def refusal(call, *arguments, **options):
    """The message of a refusal, which must be one line."""
    with pytest.raises(UsageError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_new_run_records_what_was_asked_and_with_what(tmp_path):
    with begin(tmp_path / "a" / "run") as run:
        assert run.config == json.loads(json.dumps(CONFIG))
        assert run.config["agent"]["hidden"] == [256, 256]
        found = json.loads((run.path / "versions.json").read_text())
        machine = {"platform", "device", "cpu", "xla_flags", "matmul_precision"}
        assert {*versions.PACKAGES, "python", "git", *machine} == set(found)
        assert found["jax"] and found["numpy"] == np.__version__ and found["device"]
        assert run.metrics.path.parent == run.checkpoints.path.parent == run.path
        assert run.checkpoint_path(5).name == "step-000000000005"
        assert run.latest_checkpoint() is None and run.version_changes() == []
        assert not list(run.path.glob("*.tmp-*"))


def test_the_same_configuration_continues(tmp_path):
    begin(tmp_path / "run").close()
    with begin(tmp_path / "run") as run:
        lines = (run.path / "command.txt").read_text().splitlines()
        assert len(lines) == 2 and all(line.endswith("Z fcritic train") or "+00:00" in line for line in lines)


def test_another_configuration_is_refused_in_one_line(tmp_path):
    begin(tmp_path / "run").close()
    before = contents(tmp_path)
    other = {"env": "walker-walk", "steps": 1000, "agent": {"name": "fac", "rate": 1e-3}}
    message = refusal(begin, tmp_path / "run", other)
    assert 'env was "cheetah-run", now "walker-walk"' in message
    assert "agent.rate was 0.0003, now 0.001" in message
    assert "agent.hidden was [256, 256], now absent" in message
    assert message.endswith("choose another --out or change the flags back")
    assert contents(tmp_path) == before
    many = CONFIG | {f"field{number}": number for number in range(9)}
    assert "and 6 more" in refusal(begin, tmp_path / "run", many)
    begin(tmp_path / "run").close()  # a refusal holds no lock


def test_free_fields_may_change(tmp_path):
    begin(tmp_path / "run").close()
    longer = CONFIG | {"steps": 5000}
    assert "steps was 1000, now 5000" in refusal(begin, tmp_path / "run", longer)
    assert "steps" in refusal(begin, tmp_path / "run", longer, free_fields=frozenset({"step", "agent"}))
    with begin(tmp_path / "run", longer, free_fields=frozenset({"steps"})) as run:
        assert run.config["steps"] == 5000
    nested = longer | {"agent": CONFIG["agent"] | {"rate": 0.5}}
    with begin(tmp_path / "run", nested, free_fields=frozenset({"agent"})) as run:
        assert run.config["agent"]["rate"] == 0.5


def test_equal_numbers_are_no_difference(tmp_path):
    begin(tmp_path / "run", {"a": 1, "b": float("nan"), "c": {}}).close()
    begin(tmp_path / "run", {"a": 1.0, "b": float("nan"), "c": {}, "d": None}).close()
    assert "c was {}, now absent" in refusal(begin, tmp_path / "run", {"a": 1, "b": float("nan")})


def test_what_is_not_a_run_is_left_alone(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "main.tex").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = contents(tmp_path)
    assert "is not a run directory (it contains main.tex)" in refusal(begin, tmp_path / "thesis")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        assert "move what is in the way or choose another --out" in refusal(begin, path)
    assert contents(tmp_path) == before
    (tmp_path / "empty").mkdir()
    begin(tmp_path / "empty").close()


def test_a_beginning_that_was_killed_can_be_taken_over(tmp_path):
    (tmp_path / "lock").touch()
    (tmp_path / "versions.json").write_text("{")
    (tmp_path / "config.json.tmp-123").write_text('{"en')
    with begin(tmp_path) as run:
        assert run.config["env"] == "cheetah-run" and run.version_changes() == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_unwritable_is_one_line_and_loses_nothing(tmp_path, monkeypatch, number):
    begin(tmp_path / "run").close()
    before = contents(tmp_path / "run")

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    message = refusal(begin, tmp_path / "run", CONFIG | {"steps": 2}, free_fields=frozenset({"steps"}))
    assert message.startswith(f"cannot write the run to {tmp_path / 'run'}: {os.strerror(number)}; ")
    refusal(begin, tmp_path / "other")
    monkeypatch.undo()
    assert contents(tmp_path / "run") == before
    begin(tmp_path / "run").close()
    begin(tmp_path / "other").close()


def test_proc_is_a_real_place_that_cannot_be_written():
    assert "cannot write the run to /proc/fcritic" in refusal(begin, "/proc/fcritic")


HOLD = """
    import os, sys, time
    from fcritic.runs.directory import RunDirectory
    run = RunDirectory.create_or_open(sys.argv[1], {"a": 1}, "hold")
    worker = os.fork() if "fork" in sys.argv else 1
    os.write(1, f"{worker}\\n".encode())  # at once, so that two processes do not mix their lines
    time.sleep(60)
    """


@pytest.mark.parametrize("mode", ["alone", "fork"])
def test_two_processes_cannot_train_in_one_run(tmp_path, mode):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(HOLD), str(tmp_path / "run"), mode]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        numbers = {int(process.stdout.readline()) for _ in range(2 if mode == "fork" else 1)}
        try:
            message = refusal(begin, tmp_path / "run", {"a": 1})
            assert message.startswith(f"another process is training in {tmp_path / 'run'}")
            assert RunDirectory.open_existing(tmp_path / "run").config == {"a": 1}  # reading is free
        finally:
            process.kill()  # no chance to clean up: the system must release the lock
            process.wait()
        try:
            begin(tmp_path / "run", {"a": 1}).close()  # even while a forked worker lives on
        finally:
            for worker in numbers - {0, 1}:
                os.kill(worker, signal.SIGKILL)


def test_one_process_cannot_either(tmp_path):
    with begin(tmp_path):
        assert "another process is training" in refusal(begin, tmp_path)
        reader = RunDirectory.open_existing(tmp_path)
        assert "another process is training" in refusal(reader.lock)
    reader.lock()
    reader.lock()
    reader.close()
    reader.close()


def test_checkpoints_of_a_run(tmp_path):
    with begin(tmp_path) as run:
        for step in (10, 200):
            checkpoint.save(run.checkpoint_path(step), {"agent": {"x": np.zeros(1)}}, {"step": step})
        (run.checkpoints / "step-000000000300.tmp-9").make()
        assert run.latest_checkpoint() == run.checkpoint_path(200)
    with begin(tmp_path) as run:  # with the lock in hand, leftovers are nobody's
        assert len(run.checkpoints.entries()) == 2


def test_opening_what_is_missing_suggests_what_is_there(tmp_path):
    begin(tmp_path / "fac-cheetah").close()
    begin(tmp_path / "sac-cheetah").close()
    (tmp_path / "fac-cheetha.txt").touch()
    assert refusal(RunDirectory.open_existing, tmp_path / "fac-cheeta").endswith("did you mean fac-cheetah?")
    assert "name the directory of a run" in refusal(RunDirectory.open_existing, tmp_path / "no" / "where")
    message = refusal(RunDirectory.open_existing, tmp_path)
    assert "is not a run" in message and "fac-cheetah, sac-cheetah" in message
    assert "is not a run" in refusal(RunDirectory.open_existing, tmp_path / "fac-cheetha.txt")
    for damage in ('{"a"', "[]"):
        (tmp_path / "sac-cheetah" / "config.json").write_text(damage)
        assert "config.json" in refusal(RunDirectory.open_existing, tmp_path / "sac-cheetah")
        assert "config.json" in refusal(begin, tmp_path / "sac-cheetah")


def test_changed_versions_are_listed_and_noted(tmp_path, monkeypatch):
    begin(tmp_path).close()
    now = runs.versions() | {"jax": "9.9.9"}
    old = now["jaxlib"]
    monkeypatch.setattr(runs, "versions", lambda: {name: now[name] for name in now if name != "jaxlib"})
    with begin(tmp_path) as run:
        changes = run.version_changes()
        assert [change.split()[0] for change in changes] == ["jax", "jaxlib"]
        assert changes[1] == f"jaxlib {old} -> None"
        assert changes[0].endswith("-> 9.9.9")
        assert "-> 9.9.9" in (run.path / "command.txt").read_text().splitlines()[1]


def test_git_hash_never_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # no git
    assert versions._git_hash() is None
    monkeypatch.undo()
    monkeypatch.setattr(versions, "__file__", str(tmp_path / "versions.py"))  # no repository
    assert versions._git_hash() is None


def test_asking_git_leaves_the_checkout_alone(tmp_path, monkeypatch):
    """A git that rewrites its index locks it first, and leaves the lock behind when it is killed."""
    package = tmp_path / "fcritic"
    (package / "runs").mkdir(parents=True)
    for name in ("errors.py", "runs/versions.py"):
        (package / name).write_text("")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for task in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *task], check=True)
    os.utime(package / "errors.py", (1, 1))  # what git would write down
    monkeypatch.setattr(versions, "__file__", str(package / "runs" / "versions.py"))
    before = (tmp_path / ".git" / "index").read_bytes()
    clean = versions._git_hash()
    assert clean and re.fullmatch("[0-9a-f]{40}", clean) and (tmp_path / ".git" / "index").read_bytes() == before
    (package / "errors.py").write_text("changed")
    assert versions._git_hash() == f"{clean}-dirty"
