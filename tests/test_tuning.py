"""A search for options: what it draws, when it ends a trial, how it continues. Trials are played, not trained."""

from functools import partial
import json
import os
import subprocess
import sys

import pytest
from trained_here import trained_here

from fcritic.cli import tune
from fcritic.cli.dispatch import run as command
from fcritic.errors import UsageError
from fcritic.study.execute import Budget
from fcritic.study.tuning import UNTRIED, Search, Space, curve, score, table

pytest.importorskip("optuna")
__all__ = ["trained_here"]

CONFIGURE = partial(tune._config, "space.toml")
SPACE = """
[train]
recipe = "td3"
task = "Pendulum-v1"
steps = 400
seeds = 2

[search]
learning_rate = { low = 1e-5, high = 1e-2, log = true }
critic-steps = { low = 1, high = 3 }
actor-hidden = [[8], [8, 8]]
normalize = [true, false]
"""


@pytest.fixture
def space(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    return Space.read(str(tmp_path / "space.toml"))


def play(returns, seen=None):
    """A trial that is done at once, with these returns at frames 100, 200, ...: two seeds, one above, one below."""

    def work(path, watch):
        if seen is not None:
            seen.append((path.name, json.loads((path / "config.json").read_text())))
        with open(path / "metrics.jsonl", "w") as file:
            for number, value in enumerate(returns(int(path.name[-4:])), start=1):
                for seed, offset in ((0, -1), (1, 1)):
                    row = {"seed": seed, "env_steps": 100 * number, "kind": "evaluation"}
                    file.write(json.dumps(row | {"mean_actor": value + offset}) + "\n")
                file.flush()
                watch._looked = -1e9
                if watch.left <= 0:
                    return ""
        (path / "checkpoints" / "step-000000000400").mkdir(parents=True)
        return ""

    return work


def searched(folder, space, returns, trials, prune=True, seen=None):
    search = Search(folder, space, CONFIGURE, prune)
    said = []
    search.run(trials, 1, play(returns, seen), Budget(None), said.append)
    search._lock.close()
    return search.outcome(), said


def test_trials_are_runs_with_the_options_that_were_drawn(space, tmp_path):
    seen = []
    outcome, said = searched(tmp_path / "out", space, lambda number: [0, 0, number, number + 2], 3, False, seen)
    assert [row["trial"] for row in outcome["trials"]] == [2, 1, 0]
    assert [row["score"] for row in outcome["trials"]] == [4, 3, 2]  # of both seeds, in the last quarter
    assert [line.split(" with ")[0] for line in said] == [
        *("trial 0 trains", "trial 0: 2.0", "trial 1 trains", "trial 1: 3.0", "trial 2 trains", "trial 2: 4.0")
    ]
    drawn = {row["trial"]: row["options"] for row in outcome["trials"]}
    assert len({options["learning-rate"] for options in drawn.values()}) == 3
    for number, (name, config) in enumerate(seen):
        assert name == f"trial-{number:04d}" and config["seeds"] == 2 and config["steps"] == 400
        assert config["agent"]["learning_rate"] == drawn[number]["learning-rate"]
        assert config["agent"]["critic_steps"] == drawn[number]["critic-steps"] in (1, 2, 3)
        assert config["agent"]["actor_hidden"] == drawn[number]["actor-hidden"] in ([8], [8, 8])
        assert config["normalize"] is drawn[number]["normalize"]
    assert f"--learning-rate {drawn[2]['learning-rate']}" in outcome["command"]
    lines = table(outcome).splitlines()
    assert lines[0].split() == ["trial", "score", "frames", "state", *drawn[0]]
    assert lines[1].split()[:4] == ["2", "4.0", "400", "finished"]


def test_a_trial_below_the_median_is_ended_once_there_are_others(space, tmp_path):
    poor = lambda number: [10, 10, 10, 10] if number < UNTRIED else [10, 0, 0, 0]
    outcome, _ = searched(tmp_path / "out", space, lambda n: [-5, -5, -5, -5] if n == 0 else poor(n), 6)
    states = {row["trial"]: (row["state"], row["frames"]) for row in outcome["trials"]}
    assert states[0] == ("finished", 400)  # the worst of all, but nothing was known yet
    assert states[4] == ("finished", 400)  # its best evaluation is as good as the median
    worse, _ = searched(tmp_path / "worse", space, lambda n: [10] * 4 if n < UNTRIED else [0, 1, 2, 3], 5)
    ended = worse["trials"][-1]
    assert (ended["trial"], ended["state"], ended["frames"], ended["score"]) == (4, "ended early", 100, None)
    assert "(0.0)" in table(worse)
    without, _ = searched(tmp_path / "plain", space, lambda n: [10] * 4 if n < UNTRIED else [0, 1, 2, 3], 5, False)
    assert {row["state"] for row in without["trials"]} == {"finished"}


def test_a_search_that_was_killed_goes_on_with_the_same_trial(space, tmp_path):
    seen = []

    def killed(number):
        if number == 1:
            raise RuntimeError("killed")
        return [number] * 4

    search = Search(tmp_path / "out", space, CONFIGURE)
    with pytest.raises(RuntimeError, match="killed"):
        search.run(3, 1, play(killed, seen), Budget(None), lambda line: None)
    search._lock.close()
    assert [row["state"] for row in search.outcome()["trials"]] == ["finished", "begun"]
    outcome, _ = searched(tmp_path / "out", space, lambda number: [number] * 4, 3, seen=seen)
    assert [name for name, _ in seen] == ["trial-0000", "trial-0001", "trial-0001", "trial-0002"]
    assert seen[1][1] == seen[2][1]
    assert [row["score"] for row in outcome["trials"]] == [2, 1, 0]
    other = Space(space.train | {"seeds": 3}, space.search)
    with pytest.raises(UsageError, match="holds a search in another space; choose another --out"):
        Search(tmp_path / "out", other, CONFIGURE)


def test_two_searches_in_one_folder_are_refused(space, tmp_path):
    first = Search(tmp_path / "out", space, CONFIGURE)
    with pytest.raises(UsageError, match="another process searches in"):
        Search(tmp_path / "out", space, CONFIGURE)
    first._lock.close()


def test_a_trial_that_was_asked_to_stop_is_gone_on_with(space, tmp_path):
    search, calls = Search(tmp_path / "out", space, CONFIGURE), []

    def stopped(path, watch):
        watch._stopping.set()  # as Ctrl-C does
        return "ended by a signal"

    search.run(1, 1, stopped, Budget(None), calls.append)
    search._lock.close()
    outcome, _ = searched(tmp_path / "out", space, lambda number: [1, 2, 3, 4], 1)
    assert [(row["trial"], row["state"]) for row in outcome["trials"]] == [(0, "finished")]
    assert [line.split(" with ")[0] for line in calls] == ["trial 0 trains"]


def test_arguments_of_the_task_reach_the_trials(tmp_path):
    config = CONFIGURE(["--recipe", "td3", "--task", "Pendulum-v1", "--task-args", "g=5.0"])
    assert config.task == "Pendulum-v1?g=5.0"


def test_code_that_a_space_names_runs_once_it_is_trusted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('ran', 'w')\n")
    for line in ("task = './evil.py:make'", "recipe = './evil.py:Agent'"):
        (tmp_path / "space.toml").write_text(f"[train]\n{line}\n[search]\nlearning-rate = [1e-4, 1e-3]\n")
        assert command(["tune", "space.toml"]) == 2
        said = capsys.readouterr().err
        assert "if you know and trust that code" in said and said.count("\n") == 1
    assert not (tmp_path / "ran").exists() and not (tmp_path / "runs").exists()


CREATED = {"op_code": 0, "worker_id": "x", "study_name": "fcritic", "directions": [2]}
BEGUN = {"op_code": 4, "worker_id": "y", "study_id": 0, "datetime_start": "2026-01-01T00:00:00"}
CHOICE = json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": ["1"]}})
DRAWN = {"op_code": 5, "worker_id": "y", "trial_id": 0, "param_name": "normalize", "distribution": CHOICE}
TOLD = {"op_code": 7, "worker_id": "y", "trial_id": 0, "step": 100, "intermediate_value": 1.0}


@pytest.mark.parametrize(
    "rows",
    [
        ["[" * 100_000],
        [CREATED, {"op_code": 99}],
        [CREATED | {"directions": [1, 2]}],
        [CREATED | {"directions": [1]}],
        [CREATED, BEGUN, DRAWN | {"param_value_internal": 99}],
        [CREATED, BEGUN, TOLD | {"step": "x"}],
        [CREATED, BEGUN, TOLD | {"step": -1}],
        [CREATED, BEGUN, TOLD | {"intermediate_value": [1]}],
        [CREATED, *[BEGUN] * 10_001],
        [None],
    ],
    ids=lambda rows: f"{rows[-1]!s:.60}",
)
def test_a_journal_that_no_search_has_written_is_one_line(space, tmp_path, rows):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (tmp_path / "optuna.journal").write_text("\n".join([*lines, ""]))
    with pytest.raises(UsageError, match=r"optuna.journal is damaged \(.+\); choose another --out") as told:
        Search(tmp_path, space, CONFIGURE)
    assert "\n" not in str(told.value)


def test_a_journal_of_holes_is_not_read(space, tmp_path):
    (tmp_path / "optuna.journal").touch()
    os.truncate(tmp_path / "optuna.journal", 2**40)
    with pytest.raises(UsageError, match=r"optuna.journal has 1,099,511,627,776 bytes, more than"):
        Search(tmp_path, space, CONFIGURE)


def test_no_more_is_trained_than_was_asked_for(space, tmp_path):
    """Whoever has written the journal may have begun many trials."""
    (tmp_path / "optuna.journal").write_text("".join(f"{json.dumps(row)}\n" for row in (CREATED, *[BEGUN] * 5)))
    search, tried = Search(tmp_path, space, CONFIGURE), []
    search.run(2, 1, lambda path, watch: tried.append(path.name) or "failed", Budget(None), lambda line: None)
    search._lock.close()
    assert tried == ["trial-0000", "trial-0001"]


def test_a_trial_does_not_lie_behind_a_link(space, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trial-0000").symlink_to("../elsewhere")
    _, said = searched(tmp_path / "out", space, lambda number: [1, 2, 3, 4], 1)
    assert said == [f"trial 0 failed: {tmp_path / 'out' / 'trial-0000'} is in the way of a folder"]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_curve_waits_for_all_seeds(tmp_path):
    rows = [(100, 0, 1.0), (100, 1, 3.0), (200, 0, 9.0)]
    lines = [
        json.dumps({"kind": "evaluation", "env_steps": frame, "seed": seed, "mean_actor": value})
        for frame, seed, value in rows
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert curve(tmp_path) == {100: 2.0}
    assert score({100: 0.0, 300: 5.0, 350: 1.0, 400: 3.0}) == 2.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[search]\nlearning-ratee = [1.0]", "unknown option --learning-ratee; did you mean --learning-rate?"),
        ("[serch]\na = [1]", "unknown table serch; did you mean search?"),
        ("[train]\nseeds = 1", "has nothing to search; give it a table [search]"),
        ("[search]\ntau = 1", "tau must be a list of choices or a range"),
        ("[search]\ntau = {low = 1, high = 0}", "tau has a range that does not rise"),
        ("[search]\ntau = {low = 0.0, high = 1.0, step = 1e-300}", "tau has a range that does not rise"),
        (f"[search]\nseed = {{low = 0, high = 1{'0' * 400}}}", "seed has a range that does not rise"),
        ("[search]\ntau = {low = 0, high = 1, log = true}", "tau is logarithmic; its range must begin above 0"),
        ("[train]\ntau = 1\n[search]\ntau = [1]", "tau is both fixed and searched"),
        ("[search]\nout = ['a']", "a search sets --out itself"),
        ("[search", "cannot be read"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys, text, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.toml").write_text(text)
    assert command(["tune", "space.toml"]) == 2
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["space.toml"]


def test_the_command_trains_and_writes_a_table_and_a_picture(trained_here, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = (
        'recipe = "td3"\ntask = "probe-policy"\nsteps = 40\nwarmup = 20\nactor-hidden = [8]\ncritic-hidden = [9]'
    )
    (tmp_path / "space.toml").write_text(f"[train]\n{small}\neval-every = 20\n[search]\nbatch-size = [5]\n")
    assert command(["tune", "space.toml", "--trials", "1", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome == json.loads((tmp_path / "runs/tune-space/tune.json").read_text())
    (row,) = outcome["trials"]
    assert (row["state"], row["frames"], row["curve"]["frames"]) == ("finished", 40, [20, 40])
    assert (tmp_path / "runs/tune-space/tune.png").stat().st_size > 1000
    assert command(["evaluate", "runs/tune-space/trial-0000", "--episodes", "1"]) == 0


def test_trials_on_a_cluster_are_those_of_this_machine(tmp_path):
    """In processes of their own, as Ray wants it, and to the same end."""
    pytest.importorskip("ray")
    options = "recipe = 'td3'\ntask = 'probe-policy'\nsteps = 40\nwarmup = 20\nactor-hidden = [4]"
    (tmp_path / "space.toml").write_text(f"[train]\n{options}\neval-every = 20\n[search]\ntau = [0.1, 0.2]\n")
    found = []
    for where in ("here", "ray"):
        words = ["tune", "space.toml", "--trials", "2", "--jobs", "1", "--on", where, "--out", where, "--json"]
        started = [sys.executable, "-m", "fcritic", *words]
        told = subprocess.run(started, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=True)
        found.append(json.loads(told.stdout))
    assert found[0] == found[1]
    assert [row["state"] for row in found[1]["trials"]] == ["finished"] * 2
