"""`fcritic doctor`: what is found, what mends it, and the exit code."""

import dataclasses
import errno
import importlib.metadata
from importlib.metadata import Distribution
import json
from pathlib import Path
import re
import sys
import tomllib

import jax
from packaging.requirements import Requirement
import pytest

from fcritic.cli.dispatch import run
from fcritic.startup import doctor, kills


def test_this_machine_is_healthy(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["doctor", "--no-self-test", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["healthy"]
    names = [finding["name"] for finding in report["findings"]]
    assert names == [
        "python",
        "packages",
        "control suite",
        "device",
        "memory",
        "disk",
        "cache",
        "graphics",
        "programs",
        "extras",
    ]
    assert "jax" in report["findings"][1]["found"]
    assert list(tmp_path.iterdir()) == []


def test_what_is_optional_is_named_with_the_command_that_needs_it(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/chromium" if name == "chromium" else None)
    finding = doctor.programs()
    assert finding.status == "note" and finding.repair == "sudo apt-get install ffmpeg"
    assert finding.found == "no ffmpeg, so no fcritic video; /usr/bin/chromium"
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert doctor.programs().status == "ok"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("ray", "wandb") else name)
    finding = doctor.extras()
    assert (
        finding.found == "no ray, so no fcritic experiment run --on ray, no wandb, so no fcritic train --log wandb"
    )
    assert finding.status == "note" and finding.repair.endswith("-m pip install -e '.[cluster,trackers]'")


def test_every_optional_package_of_a_command_is_looked_for():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {
        group: project["optional-dependencies"][group] for group in ("cluster", "data", "onnx", "trackers", "tune")
    }
    needed = {re.match(r"[\w-]+", line)[0]: group for group, lines in groups.items() for line in lines}
    needed.pop("tensorboard")  # reads what a run has written; no command needs it
    assert needed == {name: group for name, (group, _) in doctor.EXTRAS.items()}


def test_a_missing_and_an_old_package_are_named_with_the_command(monkeypatch):
    real = importlib.metadata.version

    def version(name):
        if name == "optax":
            raise importlib.metadata.PackageNotFoundError(name)
        return "4.0.0" if name == "mujoco" else real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    finding = doctor.packages()
    assert finding.status == "broken"
    assert "mujoco is 4.0.0, <4,>=3.17 is needed" in finding.found and "optax is missing" in finding.found
    assert "-m pip install" in finding.repair and "'mujoco<4,>=3.17'" in finding.repair


def test_the_control_suite_is_installed_by_itself_where_pip_cannot(monkeypatch):
    """From Python 3.13 on a plain `pip install` leaves it out; elsewhere it asks for the same version."""
    assert doctor.control_suite().status == "ok"
    every = map(Requirement, importlib.metadata.requires("fcritic"))
    asked = {one.name: one for one in every if "extra" not in str(one.marker)}
    suite = asked["dm_control"]
    assert f"{suite.name}{suite.specifier}" == doctor.REQUIREMENT
    assert [suite.marker.evaluate({"python_version": version}) for version in ("3.12", "3.13")] == [True, False]
    # What it needs itself comes along everywhere; labmaze is for mazes, setuptools for no line of it.
    needs = {Requirement(text).name.lower() for text in importlib.metadata.requires("dm_control")}
    assert needs - {name.lower() for name in asked} == {"labmaze", "setuptools", "h5py"}
    with monkeypatch.context() as absent:
        absent.setattr(
            importlib.metadata, "version", lambda name: Distribution.from_name(f"{name}-missing").version
        )
        assert doctor.control_suite().status == "note"
        assert doctor.control_suite().repair == f"{sys.executable} -m pip install --no-deps dm_control==1.0.50"
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0.10")
    assert doctor.control_suite().status == "broken" and "is 1.0.10" in doctor.control_suite().found


def test_a_disk_that_cannot_be_written(monkeypatch):
    def refuse(path, data):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(doctor, "replace_file", refuse)
    finding = doctor.disk()
    assert finding.status == "broken" and "Read-only" in finding.found and "--out" in finding.repair


def test_no_graphics_is_a_note(monkeypatch):
    failed = lambda *arguments, **options: doctor.subprocess.CompletedProcess(arguments, 1)
    monkeypatch.setattr(doctor.subprocess, "run", failed)
    assert doctor.graphics().status == "note" and "apt-get" in doctor.graphics().repair


def test_an_idle_gpu_is_noticed(monkeypatch):
    monkeypatch.setattr(doctor, "_has_nvidia_gpu", lambda: True)
    if jax.default_backend() == "cpu":
        assert "[gpu]" in doctor.device().repair


@pytest.mark.parametrize(("same_end", "status"), [(True, "ok"), (False, "broken")])
def test_the_self_test_is_judged(monkeypatch, same_end, status):
    monkeypatch.setattr(kills, "check", lambda count, say: {"passed": 2, "of": 2, "same_end": same_end})
    assert doctor.survives_a_kill().status == status


def test_a_doctor_does_not_faint_and_tells_the_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "disk", lambda: 1 / 0)
    for look in ("graphics", "packages", "device", "memory", "cache"):
        monkeypatch.setattr(doctor, look, lambda: doctor.Finding("x", "ok", "fine"))
    assert run(["doctor", "--no-self-test"]) == 1
    told = capsys.readouterr().out
    assert "ZeroDivisionError" in told and "not healthy" in told


def test_a_finding_is_data():
    assert dataclasses.asdict(doctor.python())["name"] == "python"
    assert Path(doctor.python().found.split(" at ")[1]).exists()
