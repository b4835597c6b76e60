"""The files that a forge and its users expect say what the project does."""

from pathlib import Path
import re
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


def test_the_citation_is_of_this_version_and_hooks_run_what_the_linter_runs():
    citation = read("CITATION.cff")
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert {"cff-version", "message", "title", "authors"} <= {*citation}
    lint = re.search(r"^lint:.*\n\t(.*)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    tools = re.findall(r"\$\(BIN\)/(\w+(?: (?:check|format))?)", lint[1])
    hooks = [hook["entry"] for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert all(any(f".venv/bin/{tool}" in hook for hook in hooks) for tool in tools) and len(tools) == 3
