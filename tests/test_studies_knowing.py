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


SOFT, PLUS = STUDY.runs[:2]
TIMES = ("", "_corrected")
CLOUD = next(run for run in STUDY.runs if run.method == "knowing, behaviour and cloud")


def told(folder, run, ranks, frame=None, slope=1.0, slice_rank=0.75):
    """Adds rows of knowledge to a run: a rank for each seed."""
    kinds = ("past", "mixtures", "slice", "others")
    names = [f"{name}_{kind}{time}" for kind in kinds for name in ("slope", "error") for time in TIMES]
    known = {"rank_mixtures": 0.9, "rank_slice": slice_rank, "rank_others": 0.1}
    known |= {f"{name}_corrected": value for name, value in known.items()}
    rows = [
        dict.fromkeys(names, slope)
        | known
        | {"seed": seed, "env_steps": at, "kind": "knowledge", "rank_past": 0.5, "rank_past_corrected": rank}
        for at, each in ((10_000, [0.0] * len(ranks)), (frame or run.steps, ranks))
        for seed, rank in enumerate(each)
    ]
    path = folder / run.name / "metrics.jsonl"
    path.write_text(path.read_text() + "".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path):
    for run, value in ((SOFT, 800.0), (CLOUD, 600.0), (PLUS, 700.0)):
        fake_run(tmp_path, run, [dict.fromkeys((20_000, 40_000, 60_000), value + seed) for seed in range(4)])
    told(tmp_path, CLOUD, [0.1, 0.2, None, 0.3])
    return tmp_path


@pytest.mark.parametrize(
    ("ranks", "more", "outcome"),
    [
        ([0.85, 0.9, 0.8, 0.95], {}, "holds"),
        ([0.85, 0.9, 0.79, 0.95], {}, "fails"),
        ([0.85, 0.9, None, 0.95], {}, "fails"),
        ([0.85, 0.9, 0.8, 0.95], {"slope": 3.0}, "fails"),
        ([0.85, 0.9, 0.8, 0.95], {"slice_rank": 0.69}, "fails"),
        ([0.85, 0.9, 0.8, 0.95], {"frame": 30_000}, "open"),
    ],
)
def test_critics_know_policies_where_the_last_row_of_every_seed_says_so(folder, ranks, more, outcome):
    told(folder, SOFT, ranks, **more)
    found = STUDY.find(Trainings(folder))
    (verdict,) = [each for each in found.verdicts if each.claim.startswith("knowing, soft actors: with every seed")]
    assert verdict.outcome == outcome
    assert verdict.figures["rank_mixtures_corrected"] == [0.9] * 4 and verdict.figures["rank_past"] == [0.5] * 4
    table = found.plot["knowledge"]
    cloud = next(name for name in table if name.endswith("knowing, behaviour and cloud"))
    np.testing.assert_array_equal(table[cloud]["rank_past_corrected"], [0.1, 0.2, np.nan, 0.3])
    (first,) = [each for each in STUDY.sections(found) if each.title == "What the critics know"]
    head, row = first.parts[1].heads, first.parts[1].rows[1]
    assert row[1] == "60,000" and row[head.index("rank, past, corrected")] == "0.20 (0.10)"


def test_what_is_there_is_judged_and_drawn(folder):
    found = STUDY.find(Trainings(folder))
    (claim,) = [each for each in found.verdicts if each.claim.startswith("soft actors with functional critics")]
    assert claim.claim.endswith(", over 1 of 6 tasks: cartpole-swingup") and claim.outcome == "holds"
    (other,) = [each for each in found.verdicts if each.claim.startswith("with tau .02 soft actors")]
    assert other.outcome == "open" and other.figures["not run"] == [
        "knowing, soft actors, tau .02",
        "knowing, sac+, tau .02",
    ]
    STUDY.draw(found, folder / "picture.png")
    assert (folder / "picture.png").stat().st_size > 10_000


def test_wherever_the_study_stops_both_sides_of_its_first_claims_have_the_same_tasks():
    """Of the first 9, 15 and 21 trainings; those of rivals are as many as ours."""
    tasks = lambda count, method: {run.task for run in STUDY.runs[:count] if run.method == f"knowing, {method}"}
    for count in (6, 9, 12, 15, 21):
        assert tasks(count, "soft actors") == tasks(count, "sac+")
    assert len(tasks(15, "soft actors, one value")) == 3
    assert {run.seeds for run in STUDY.runs} == {10} and len(STUDY.runs) == 99


def test_all_methods_make_as_many_updates_unless_that_is_their_question():
    for run in STUDY.runs:
        config = run.config()
        critic, actor = config.updates_per_frame
        expected = {"G = 1": 1, "G = 4": 4}.get(run.method.rsplit(", ", 1)[-1], 2)
        assert (critic * 8, actor * 8) == (expected, 1), run.name


def test_the_quick_version_trains_asks_and_reports(tmp_path):
    for each in progress(STUDY.quick_runs, tmp_path):
        train(each.run.config(), each.path, quiet=True)
    conduct(STUDY, Trainings(tmp_path), True, "a command", tmp_path / "out")
    page = (tmp_path / "out" / "knowing.md").read_text()
    assert "What the critics know" in page and "knowing, soft actors" in page
