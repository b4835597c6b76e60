"""Claims over several tasks: figures by hand, intervals in known cases, tasks that one side lacks."""

import dataclasses

import numpy as np
import pytest
from test_comparison import fake_run

from fcritic.errors import UsageError
from fcritic.study.across import AcrossTasks, beside, better_by_task, judge
from fcritic.study.comparison import Better, gather
from fcritic.study.spec import Run, Trainings

TASKS = ("cheetah-run", "walker-walk")
RUNS = tuple(Run(recipe, task, seeds=4, steps=400_000) for task in TASKS for recipe in ("sac", "td3"))
CLAIM = Better("sac is better than td3", "sac", "td3")
STUDY = AcrossTasks("two-tasks", "Which is better?", RUNS, across=(CLAIM,))
ENDS = {("cheetah-run", "sac"): [10.0, 20.0, 30.0, 100.0], ("cheetah-run", "td3"): [9.0, 15.0, 25.0, 40.0]}
ENDS |= {("walker-walk", "sac"): [50.0, 60.0, 70.0, 80.0], ("walker-walk", "td3"): [1.0, 2.0, 3.0, 60.0]}


def trained(folder, runs=RUNS, add=0.0, last=400_000):
    for run in runs:
        ends = [end + add * (run.recipe == "sac") for end in ENDS[run.task, run.recipe]]
        fake_run(folder, run, [{last // 2: 0.0, last: end} for end in ends])
    return gather(STUDY, Trainings(folder))


def test_claims_over_tasks_are_of_end_scores():
    STUDY.require_sound()
    for claim, says in (
        (dataclasses.replace(CLAIM, of="area"), "are of end scores"),
        (Better("", "sac", "x"), "labelled x"),
    ):
        with pytest.raises(UsageError, match=says):
            dataclasses.replace(STUDY, across=(claim,)).require_sound()


def test_figures_by_hand(tmp_path):
    row = beside(trained(tmp_path), "sac", "td3")
    assert row is not None and row["seeds"] == 4 and row["frames"] == [400_000, 400_000]
    # sorted 10 20 30 50 60 70 80 100: the middle half; 1 2 3 9 15 25 40 60 of the other
    assert row["ours"]["value"] == (30 + 50 + 60 + 70) / 4
    assert row["theirs"]["value"] == (3 + 9 + 15 + 25) / 4
    assert row["difference"]["value"] == 52.5 - 13
    # pairs won: 1 + 2 + 3 + 4 of 16; 3 + 3.5 + 4 + 4 of 16
    assert row["better"]["value"] == pytest.approx((10 / 16 + 14.5 / 16) / 2)
    assert 0 <= row["better"]["low"] < row["better"]["value"] < row["better"]["high"] <= 1


@pytest.mark.parametrize(("add", "outcome"), [(1000.0, "holds"), (-1000.0, "fails"), (-39.5, "open")])
def test_a_claim_is_decided_by_the_interval_of_the_difference(add, outcome, tmp_path):
    verdict = judge(CLAIM, trained(tmp_path, add=add))
    assert verdict.outcome == outcome
    low, high = verdict.figures["interval"]
    assert low < verdict.figures["difference"] < high
    assert verdict.claim == "sac is better than td3, over 2 of 2 tasks: cheetah-run, walker-walk"


def test_a_task_that_one_side_lacks_is_left_out_and_told(tmp_path):
    verdict = judge(CLAIM, trained(tmp_path, RUNS[:3]))
    assert verdict.claim.endswith("over 1 of 2 tasks: cheetah-run")
    assert verdict.figures["sac"] == (20 + 30) / 2
    nobody = judge(CLAIM, trained(tmp_path / "other", RUNS[:1]))
    assert nobody.outcome == "open" and nobody.figures == {"not run": ["sac", "td3"]}


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """Two methods alike: the difference's interval leaves out 0 in about a twentieth of the cases."""
    from fcritic.results import statistics

    generator, outside = np.random.default_rng(0), 0
    for _ in range(200):
        joined = generator.normal(size=(8, 6))
        gap = lambda both: statistics.interquartile_mean(both[:, :3]) - statistics.interquartile_mean(both[:, 3:])
        found = statistics.interval(joined, gap, resamples=200)
        outside += not found.low < 0 < found.high
    assert outside <= 20


def test_ties_count_half():
    assert better_by_task(np.array([[1.0, 5.0]]), np.array([[1.0, 2.0]])) == 0.75


def test_the_report_has_both_methods_over_all_tasks(tmp_path):
    trained(tmp_path)
    found = STUDY.find(Trainings(tmp_path))
    (section,) = [each for each in STUDY.sections(found) if each.title == "Over all tasks"]
    (row,) = section.parts[1].rows
    assert row[:4] == ["sac", "td3", "2", "4"] and row[4].startswith("52 [") and row[6].startswith("40 [")
