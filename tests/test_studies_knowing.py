"""What critics know, judged beside returns: tables and verdicts of rows that are made up, and the quick version."""

import json

import numpy as np
import pytest
from test_comparison import fake_run

from fcritic.study.catalog import load
from fcritic.study.execute import progress
from fcritic.study.report import conduct
from fcritic.study.spec import Trainings
from fcritic.training.loop import train

STUDY = load("knowing")[0]


def told(folder, run, ranks, frame=None, slope=1.0):
    """Adds rows of knowledge to a run: a rank for each seed."""
    names = [f"{name}_{kind}" for kind in ("past", "mixtures") for name in ("slope", "error")]
    rows = [
        dict.fromkeys(names, slope)
        | {"seed": seed, "env_steps": at, "kind": "knowledge", "rank_past": rank, "rank_mixtures": 0.9}
        for at, each in ((10_000, [0.0] * len(ranks)), (frame or run.steps, ranks))
        for seed, rank in enumerate(each)
    ]
    path = folder / run.name / "metrics.jsonl"
    path.write_text(path.read_text() + "".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path):
    cloud, neurons, *_ = STUDY.runs
    for run, value in ((cloud, 800.0), (neurons, 600.0)):
        fake_run(tmp_path, run, [dict.fromkeys((20000, 40000), value + seed) for seed in range(4)])
    told(tmp_path, neurons, [0.1, 0.2, None, 0.3])
    return tmp_path


@pytest.mark.parametrize(
    ("ranks", "frame", "slope", "outcome"),
    [
        ([0.85, 0.9, 0.8, 0.95], None, 1.0, "holds"),
        ([0.85, 0.9, 0.79, 0.95], None, 1.0, "fails"),
        ([0.85, 0.9, None, 0.95], None, 1.0, "fails"),
        ([0.85, 0.9, 0.8, 0.95], None, 3.0, "fails"),
        ([0.85, 0.9, 0.8, 0.95], 30_000, 1.0, "open"),
    ],
)
def test_critics_know_policies_where_the_last_row_of_every_seed_says_so(folder, ranks, frame, slope, outcome):
    told(folder, STUDY.runs[0], ranks, frame, slope)
    found = STUDY.find(Trainings(folder))
    (verdict,) = [each for each in found.verdicts if "rank past actors" in each.claim]
    assert verdict.outcome == outcome
    assert verdict.figures["rank_mixtures"] == [0.9] * 4
    table = found.plot["knowledge"]
    neurons = next(name for name in table if name.endswith("knowing, neurons"))
    np.testing.assert_array_equal(table[neurons]["rank_past"], [0.1, 0.2, np.nan, 0.3])
    (first,) = [each for each in STUDY.sections(found) if each.title == "What the critics know"]
    assert first.parts[1].rows[1][1:3] == ["40,000", "0.10, 0.20, nan, 0.30"]


def test_the_quick_version_trains_asks_and_reports(tmp_path):
    for each in progress(STUDY.quick_runs, tmp_path):
        train(each.run.config(), each.path, quiet=True)
    conduct(STUDY, Trainings(tmp_path), True, "a command", tmp_path / "out")
    page = (tmp_path / "out" / "knowing.md").read_text()
    assert "What the critics know" in page and "knowing, soft actors" in page
