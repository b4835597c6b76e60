"""The studies of this repository: each can be loaded, its trainings are valid, its claims can be judged."""

import dataclasses
import shlex

import pytest

from fcritic.cli.commands import TrainOptions
from fcritic.cli.parsing import parse
from fcritic.config import TrainConfig
from fcritic.study.catalog import folder_of, load, studies
from fcritic.study.comparison import Comparison

STUDIES = {name: load(name)[0] for name in studies(folder_of())}
RUNS = {run.name: run for study in STUDIES.values() for run in (*study.runs, *study.quick_runs)}


def test_every_study_has_the_name_of_its_file_and_asks_something():
    assert len(STUDIES) > 20
    for name, study in STUDIES.items():
        assert study.name == name and study.question.endswith((".", "?")), name


def test_the_command_of_a_run_makes_the_same_run():
    """Parsing takes long, so only as many runs as have every option that is changed in any."""
    seen: set[str] = set()
    for run in RUNS.values():
        new = {name for name, _ in run.options} | {run.recipe}
        if new - seen:
            seen |= new
            args = shlex.split(run.command())[2:]
            parsed = parse(TrainOptions, args, "train", TrainOptions(TrainConfig.of(run.recipe))).config
            assert parsed == run.config(), run.name
    assert len(seen) > 40


def test_runs_of_one_name_are_one_run_up_to_its_length():
    """Studies share folders: a run that one has trained the other continues."""
    seen = {}
    for study in STUDIES.values():
        for run in study.runs:
            config = dataclasses.replace(run.config(), steps=1)
            assert seen.setdefault(run.name, config) == config, run.name


@pytest.mark.parametrize("name", ["ablations", "ablations-full", "laptop"])
def test_every_ablation_that_the_paper_lacks_is_there(name: str):
    labels = {
        run.method.split(", ", 1)[-1] if name != "ablations-full" else run.method for run in STUDIES[name].runs
    }
    assert labels >= {"plain critics", "without the second term", "mean of critics"}
    assert labels >= {"own encoders", "probe tokens", "frozen probes", "n = 1", "n = 2", "G = 1", "G = 5"}


def test_claims_are_about_methods_that_their_study_runs():
    for study in STUDIES.values():
        for claim in study.claims if isinstance(study, Comparison) else ():
            assert any(
                {claim.better, claim.worse} <= {run.method for run in runs} for runs in study.panels.values()
            ), f"{study.name}: {claim.text}"
