"""The code of docs/python.md and docs/rank.md runs, and the findings of docs/environments.md exist."""

from pathlib import Path
import re
import shlex

import numpy as np
from PIL import Image
import pytest

from fcritic.cli.dispatch import run
from fcritic.envs import check

ROOT = Path(__file__).parents[1]
IN_SMALL = {  # a functional agent would take three times as long to compile
    '"fac-small"': '"td3"',
    "steps=20_000": "steps=40, warmup=20, batch_size=4, actor_hidden=(8,), critic_hidden=(8,), quiet=True",
}


def test_the_page_about_python_runs(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(snippets) == 7
    code = "\n".join(snippets)
    for there, small in IN_SMALL.items():
        assert code.count(there) == 2
        code = code.replace(there, small)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(code, names)
    assert names["action"].shape == (1,) and (tmp_path / "runs" / "pendulum" / "config.json").exists()
    assert names["found"].per_critic.shape == (2,)
    assert names["slope"].params.keys() == {"w1", "w2"}


def test_the_page_about_ranking_runs(tmp_path, monkeypatch):
    """Its controllers, its two commands and its code in Python, with few updates."""
    page = (ROOT / "docs" / "rank.md").read_text(encoding="utf-8")
    controllers, code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trained").symlink_to(ROOT / "trained")
    (tmp_path / "controllers.py").write_text(controllers)
    log, rank = (shlex.split(line) for line in re.findall(r"^    fcritic (.*)$", page, re.MULTILINE)[:2])
    log[log.index("--episodes") + 1] = "1"
    assert run(log) == 0
    kinds = rank.pop(rank.index("controllers.py:{soft,firm,stiff,brake}"))  # which a shell takes apart
    rank[rank.index("--policies") + 1 : rank.index("--policies") + 1] = [
        f"controllers.py:{name}" for name in re.findall(r"\w+", kinds.partition(":")[2])
    ]
    rank[rank.index("--steps") + 1] = "10"
    assert run([*rank, "--members", "2", "--hidden", "8"]) == 0
    assert "controllers.py:stiff" in (tmp_path / "ranking.html").read_text()
    assert code.count("steps=6000") == 1
    names: dict = {}
    exec(f"{controllers}\n{code.replace('steps=6000', 'steps=10, members=2, hidden=(8,)')}", names)
    assert [policy.name for policy in names["policies"]][-2:] == ["controllers.py:firm", "brake"]
    assert np.isfinite(names["evaluator"].value(names["new"]).mean)


def test_the_page_about_trust_runs(tmp_path, monkeypatch):
    """Algorithm 3 on a table, drawn as a training is, and C from samples beside the exact one."""
    page = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), names)
    assert abs(names["sampled"] / names["exact"] - 1) < 1e-4
    assert names["walk"].measures["trust"][0][1][0] == pytest.approx(1.0)  # the first data are the first policy's
    wide, high = Image.open(tmp_path / "trust-tables.png").size
    assert wide > 3 * high  # three pictures side by side


def test_the_table_of_findings_is_complete():
    page = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 4]
    listed = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])}
    source = Path(check.__file__).read_text()
    named = set(re.findall(r'"(?:error|warning|note)",\s*"([a-z-]+)"', source)) - {"warning", "note"}
    assert len(named) > 30 and named == listed
