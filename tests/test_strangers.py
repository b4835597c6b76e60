"""A run from a stranger and real commands on it: one of each kind; `fcritic bench reliability` has them all."""

import random

import pytest

from benchmarks.attacks import fork_server, strangers
from benchmarks.attacks.stranger_cases import Case, cases


@pytest.fixture(scope="module")
def stage():
    with strangers.stage() as ready:
        yield ready


@pytest.mark.parametrize(
    ("culprit", "fault"),
    [
        ("behaves", ""),
        ("writes_in_the_home", "changed home/diary"),
        ("touches_and_restores", "changed home/.profile"),
        ("leaves_a_file_beside", "changed home/work"),
        ("removes", "changed home/step-000000000001.tmp-7"),
        ("runs_foreign_code", "ran foreign code"),
        ("imports_what_it_should_not", "ran foreign code this"),
        ("shows", "showed what only the user knows"),
        ("copies", "showed what only the user knows"),
        ("hangs", "too many seconds"),
        ("allocates", "too many megabytes"),
        ("starts_many", "too many processes"),
        ("leaves_a_process", "left 1 processes behind"),
        ("raises", "printed a traceback"),
        ("exits_with_one", "exit code 1"),
        ("says_nothing", "was refused without a word"),
        ("says_much", "printed 50 lines"),
        ("moves_the_cursor", "printed control characters"),
        ("is_killed", "exit code -11"),
    ],
)
def test_what_no_command_may_do_is_noticed(stage, monkeypatch, culprit, fault):
    if culprit == "hangs":  # the others take what a busy machine takes to let them do it
        monkeypatch.setitem(fork_server.LIMITS, "seconds", 3.0)
    nothing = Case("none", "nothing", lambda scene: None, ("evaluate",), watched=("this",))
    wrong, _ = stage.trial(nothing, "evaluate", f"culprits:{culprit}")
    assert fault in wrong and bool(wrong) == bool(fault), wrong


def test_every_kind_of_attack_is_withstood(stage):
    """The first of each kind in an order by chance; which one that is, moves as cases are added."""
    kinds = {case.kind for case in cases()}
    trials = strangers.chosen(len(kinds), random.Random(0))
    assert {case.kind for case, _ in trials} == kinds
    report = strangers.tried(stage, trials, lambda line: None)
    assert report["passed"] == report["of"] >= len(kinds) - 1, report["bad"]  # devices need root


def test_a_stopped_check_goes_on_behind_what_was_withstood(tmp_path):
    attacks = [Case("none", name, lambda scene: None, ("evaluate",)) for name in ("one", "two", "three")]
    trials = [(case, "evaluate") for case in attacks]
    ended = fork_server.Ended(0, "", 0.5, 0.4, 100.0, 0, (), "", "")

    class Staged:
        def __init__(self, wrong: str):
            self.wrong, self.seen = wrong, []

        def trial(self, case, command):
            self.seen.append(case.name)
            if case.name == "three" and self.wrong == "stops":
                raise KeyboardInterrupt
            return self.wrong if case.name == "two" else "", ended

    file, silent = tmp_path / "finished", lambda line: None
    with pytest.raises(KeyboardInterrupt):
        strangers.tried(Staged("stops"), trials, silent, file)
    again = Staged("")
    report = strangers.tried(again, trials, silent, file)
    assert again.seen == ["two", "three"]  # the second one had gone wrong
    assert (report["passed"], report["of"], report["bad"]) == (3, 3, [])
    assert report["kinds"]["none"] == {"passed": 3, "of": 3, "seconds": 0.5, "megabytes": 100.0}
    assert sum(report["commits"].values()) == 3
    assert strangers.tried(Staged("wrong"), trials, silent, file)["passed"] == 3
