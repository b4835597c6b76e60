"""The files that a forge and its users expect say what the project does."""

from pathlib import Path
import re
import subprocess
import tomllib

import pytest

ROOT = Path(__file__).parents[1]
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")


def read(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_forge_runs_commands_that_there_are_on_every_python_that_is_supported():
    jobs = read(".github/workflows/check.yml")["jobs"]
    words = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"make lint", "make test", "make test-all"} <= {*words}
    assert {word.removeprefix("make ") for word in words} <= targets
    low, high = re.findall(r"3\.(\d+)", PROJECT["requires-python"])
    expected = [f"3.{minor}" for minor in range(int(low), int(high))]
    assert jobs["test"]["strategy"]["matrix"]["python"] == expected


def test_the_forge_can_read_the_workflow():
    """What it would refuse, or read as something else: there is no forge here to ask."""
    workflow = read(".github/workflows/check.yml")
    triggers = workflow[True]  # a bare `on` is a truth value to YAML 1.1, not to the forge
    assert set(triggers) == {"push", "pull_request", "schedule"}
    assert all(len(each["cron"].split()) == 5 for each in triggers["schedule"])
    for job in workflow["jobs"].values():
        assert job["runs-on"] == "ubuntu-latest" and job["timeout-minutes"] <= 360
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
        assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)
        versions = [step["with"]["python-version"] for step in job["steps"] if "with" in step]
        assert versions and all(isinstance(version, str) for version in versions)  # 3.10 as a number would be 3.1
        inserted = re.findall(r"\$\{\{ *([\w.-]+) *\}\}", str(job["steps"]))
        assert set(inserted) <= {f"matrix.{name}" for name in job.get("strategy", {}).get("matrix", {})}
        for step in job["steps"]:
            path = step.get("with", {}).get("cache-dependency-path")
            assert path is None or (ROOT / path).is_file()


def test_make_knows_how_to_run_each_command_of_the_workflow():
    jobs = read(".github/workflows/check.yml")["jobs"]
    for line in {step["run"] for job in jobs.values() for step in job["steps"] if "run" in step}:
        program, *words = line.split()
        assert program == "make"
        planned = subprocess.run(["make", "-n", "-C", str(ROOT), *words], capture_output=True, text=True)
        assert planned.returncode == 0 and planned.stdout.strip(), planned.stderr


def test_the_citation_is_of_this_version_and_hooks_run_what_the_linter_runs():
    citation = read("CITATION.cff")
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert {"cff-version", "message", "title", "authors"} <= {*citation}
    lint = re.search(r"^lint:.*\n\t(.*)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    tools = re.findall(r"\$\(BIN\)/(\w+(?: (?:check|format))?)", lint[1])
    hooks = [hook["entry"] for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert all(any(f".venv/bin/{tool}" in hook for hook in hooks) for tool in tools) and len(tools) == 3
