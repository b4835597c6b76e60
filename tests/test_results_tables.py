"""The tables in the pages are those of the recorded results, so that no number is typed by hand."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("tables", ROOT / "studies" / "tables.py")
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)


def test_every_table_is_current():
    stale = [str(page) for page in tables.pages() if tables.written(page.read_text()) != page.read_text()]
    assert stale == [], "run: make results"
    assert sum(len(tables.MARKS.findall(page.read_text())) for page in tables.pages()) > 10


def test_a_table_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "one.csv").write_text(
        "task,method,seed,frames,mean_actor,actors\n"
        "a,sac,0,10,1,\na,sac,1,10,3,\na,sac,0,20,5,\nb,sac,0,10,99,\n"
        "a,fac,0,10,2,1 3\na,fac,1,10,4,2 6\na,fac,0,20,8,8 8\na,fac,1,20,8,8 8\n"
    )
    monkeypatch.setattr(tables, "HERE", tmp_path)
    tables.curves.cache_clear()
    order = "one\nwhere: task=a\nframes: 10 20 last\nrows: sac | fac => `fac` | fac [0:1] => the first\n"
    page = f"before\n<!-- results: {order}-->\nold\n<!-- end of results -->\nafter"
    assert tables.written(page) == (
        f"before\n<!-- results: {order}-->\n\n"
        "|  | 10 | 20 | last | seeds, last of these |\n| --- | --- | --- | --- | --- |\n"
        "| sac | 2 ± 1 |  | 2 ± 1 at 10 | 1, 3 |\n"
        "| `fac` | 3 ± 1 | 8 ± 0 | 8 ± 0 at 20 | 8, 8 |\n"
        "| the first | 2 ± 1 | 8 ± 0 | 8 ± 0 at 20 | 8, 8 |\n\n"
        "<!-- end of results -->\nafter"
    )
    assert tables.written(tables.written(page)) == tables.written(page)
    with pytest.raises(ValueError, match="no method td3"):
        tables.table("one\nframes: 10\nrows: td3")
    tables.curves.cache_clear()


def test_every_picture_of_a_study_is_small():
    sizes = {path: path.stat().st_size for path in (ROOT / "studies").rglob("*.png")}
    assert len(sizes) >= 10 and max(sizes.values()) <= 150_000
