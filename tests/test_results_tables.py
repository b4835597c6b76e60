"""The tables in the pages are those of the recorded results, so that no number is typed by hand."""

import importlib.util
import json
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


def test_tables_of_benchmarks_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "BENCHMARKS", tmp_path)
    for name in ("performance/update", "reliability/report", "speed/peers"):
        (tmp_path / name).parent.mkdir()
    row = {"recipe": "fac", "precision": "bfloat16"}
    rows = [
        row | {"seeds": 4, "ms_per_iteration": 14.726, "share_of_floor": 0.2},
        row | {"seeds": 1, "ms_per_iteration": 4.534, "share_of_floor": 0.1234},
    ]
    (tmp_path / "performance/update.json").write_text(json.dumps({"rows": rows}))
    assert tables.table("speed").splitlines() == [
        "| recipe | precision | 1 seed | 4 seeds | share of the floor |",
        "| --- | --- | --- | --- | --- |",
        "| `fac` | bfloat16 | 4.53 | 14.73 | 12.3, 20.0 % |",
    ]
    checks = {"kills": {"what": "kill -9", "passed": 1999, "of": 2000}}
    (tmp_path / "reliability/report.json").write_text(json.dumps({"checks": checks}))
    assert tables.table("reliability").splitlines()[2:] == ["| `kills` | kill -9 | 1,999 of 2,000 |"]
    ratios = {"vs_sbx": 2.0, "vs_sb3": 4.0}
    ranges = {"vs_sbx": [1.5, 2.5], "vs_sb3": [3.0, 5.0]}
    turns = {"fcritic": [1.0, 9.0, 8.0], "sbx": [4.0], "sb3": [2.0]}
    both = lambda each: {"sac": each, "td3": each}
    peers = both(ratios) | {"spread": both(ranges), "steps_per_second": both(turns)}
    (tmp_path / "speed/peers.json").write_text(json.dumps(peers))
    assert (
        tables.table("peers").splitlines()[2]
        == "| SAC | 8/s | 4/s | 2.00 (1.50 to 2.50) | 2/s | 4.00 (3.00 to 5.00) |"
    )


def test_every_picture_of_a_study_is_small():
    sizes = {path: path.stat().st_size for path in (ROOT / "studies").rglob("*.png")}
    assert len(sizes) >= 10 and max(sizes.values()) <= 150_000
