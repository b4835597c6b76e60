"""Claims of an experiment are judged by the figures, and by nothing where there are none."""

import json

import pytest

from fcritic.experiments.catalog import EXPERIMENTS
from fcritic.experiments.gather import gather
from fcritic.experiments.report import write_report
from fcritic.experiments.spec import Claim, Experiment, Run
from fcritic.experiments.verdicts import judge, judge_all
from fcritic.runs.directory import RunDirectory

RUNS = tuple(Run(recipe, "cheetah-run", seeds=4, steps=400_000) for recipe in ("sac", "td3", "sac+", "td3+"))
CLAIM = Claim("td3 is better than sac", "td3", "sac")


def trained(folder, run, ends, last=400_000):
    """A run whose seeds rise on a line to these ends."""
    with RunDirectory.create_or_open(folder / run.name, run.config().to_json(), run.command()) as directory:
        rows = [
            {"seed": seed, "env_steps": frame, "kind": "evaluation", "mean_actor": end * frame / last}
            for seed, end in enumerate(ends)
            for frame in range(last // 4, last + 1, last // 4)
        ]
        directory.metrics_path.write_text("".join(json.dumps(row | {"best_actor": 0.0}) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("sac", "td3", "outcome"),
    [
        ((10, 11, 12, 13), (20, 21, 22, 23), "holds"),
        ((20, 21, 22, 23), (10, 11, 12, 13), "does not hold"),
        ((10, 20, 10, 20), (10, 20, 10, 20), "not yet decided"),
        ((10,), (20,), "not yet decided"),  # one seed decides nothing
    ],
)
def test_a_claim_is_decided_where_seeds_lie_apart(tmp_path, sac, td3, outcome):
    experiment = Experiment("two", "", RUNS[:2], claims=(CLAIM,))
    trained(tmp_path, RUNS[0], sac)
    trained(tmp_path, RUNS[1], td3)
    (verdict,) = judge_all(experiment, gather(experiment, tmp_path))
    assert verdict.outcome == outcome
    if len(sac) > 1:
        means = [sum(ends) / len(ends) for ends in (td3, sac)]
        assert f"{means[0]:.0f} against {means[1]:.0f} at 400,000 frames" in verdict.why


def test_what_was_not_run_or_not_to_the_end_is_said(tmp_path):
    experiment = Experiment("two", "", RUNS[:3], claims=(CLAIM,))
    trained(tmp_path, RUNS[0], (10, 11, 12, 13))
    (panel,) = gather(experiment, tmp_path)
    assert judge(CLAIM, panel)[2:] == ("not yet decided", "td3 not run")
    trained(tmp_path, RUNS[1], (20, 21, 22, 23), last=200_000)
    (panel,) = gather(experiment, tmp_path)
    verdict = judge(CLAIM, panel)
    # sac is compared where td3 ends: halfway, where it has half of its end
    assert verdict.outcome == "holds" and verdict.why.startswith("22 against 6 at 200,000 frames")
    assert verdict.why.endswith(", not finished")


def test_a_report_shows_its_verdicts(tmp_path):
    experiment = Experiment("two", "", RUNS[:2], claims=(CLAIM,))
    trained(tmp_path, RUNS[0], (10, 11, 12, 13))
    trained(tmp_path, RUNS[1], (20, 21, 22, 23))
    numbers = write_report(experiment, tmp_path, tmp_path / "report")
    assert [verdict["outcome"] for verdict in numbers["verdicts"]] == ["holds"]
    text = (tmp_path / "report" / "index.html").read_text()
    assert "td3 is better than sac, cheetah-run, 4 environments: <strong>holds</strong> (22 against 12" in text


def test_claims_are_about_methods_that_their_experiment_runs():
    for experiment in EXPERIMENTS.values():
        methods = [{run.method for run in runs} for runs in experiment.panels.values()]
        for claim in experiment.claims:
            assert any({claim.better, claim.worse} <= each for each in methods), (experiment.name, claim)
