"""The code of docs/python.md runs from top to bottom, and the findings of docs/environments.md exist."""

from pathlib import Path
import re

from fcritic.envs import check

ROOT = Path(__file__).parents[1]
IN_SMALL = {  # a functional agent would take three times as long to compile
    '"fac-small"': '"td3"',
    "steps=20_000": "steps=40, warmup=20, batch_size=4, actor_hidden=(8,), critic_hidden=(8,), quiet=True",
}


def test_the_page_about_python_runs(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(snippets) == 6
    code = "\n".join(snippets)
    for there, small in IN_SMALL.items():
        assert code.count(there) == 1
        code = code.replace(there, small)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(code, names)
    assert names["action"].shape == (1,) and (tmp_path / "runs" / "pendulum" / "config.json").exists()
    assert names["found"].per_critic.shape == (2,)
    assert names["slope"].params.keys() == {"w1", "w2"}


def test_the_table_of_findings_is_complete():
    page = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 4]
    listed = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])}
    source = Path(check.__file__).read_text()
    named = set(re.findall(r'"(?:error|warning|note)",\s*"([a-z-]+)"', source)) - {"warning", "note"}
    assert len(named) > 30 and named == listed
