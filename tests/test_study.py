"""Studies: reports spare committed evidence, a stop loses nothing, a user's own file is a study too."""

import dataclasses
import json
from pathlib import Path
import shutil
import signal
import time

import numpy as np
import pytest
from toy_study import Toy
from trained_here import trained_here

from fcritic.cli.dispatch import run as cli
from fcritic.errors import UsageError
from fcritic.logs.metrics import read_rows
from fcritic.runs.directory import RunDirectory
from fcritic.study import catalog, execute
from fcritic.study.catalog import load
from fcritic.study.execute import progress
from fcritic.study.report import conduct, report_text
from fcritic.study.spec import Run, Trainings, overall, plain

__all__ = ["trained_here"]
NOWHERE = Trainings(Path("nowhere"))
TOY = Path(__file__).with_name("toy_study.py")


# Reports


def test_a_report_holds_what_was_found(tmp_path: Path):
    report = conduct(Toy(), NOWHERE, False, "a command", tmp_path / "new")
    assert report == json.loads((tmp_path / "new" / "toy.json").read_text())
    assert [(claim["verdict"], claim["kind"]) for claim in report["claims"]] == [
        ("holds", "paper"),
        ("fails", "ours"),
    ]
    assert report["claims"][0]["figures"] == {"low": 2.0, "high": "inf"}
    assert report["conditions"]["command"] == "a command" and report["conditions"]["seeds"] == 1
    assert report["conditions"]["versions"]["jax"] and report["conditions"]["device"]
    assert (tmp_path / "new" / "toy.csv").read_text() == "seed,low,high\n0,2.0,inf\n"
    for name in ("toy.png", "toy.svg", "toy.md", "toy.html"):
        assert (tmp_path / "new" / name).stat().st_size > 300
    text = report_text(report, tmp_path)
    assert "verdict: holds [paper]  low < high (a label)" in text and "verdict: fails [ours]  high < low" in text
    assert "gap: 2, inf" in text and "note: seen by hand" in text and "1 hold, 1 fail, 0 are open" in text
    page = (tmp_path / "new" / "toy.html").read_text()
    assert "<td>low &lt; high</td><td>holds</td><td>paper</td>" in page and "<svg" in page


def test_only_the_papers_claims_make_a_study_fail():
    assert overall([("paper", "holds"), ("ours", "fails"), ("control", "fails")]) == "holds"
    assert overall([("paper", "open"), ("paper", "fails")]) == "fails"
    assert overall([("paper", "open"), ("ours", "fails")]) == "open"
    assert overall([("ours", "fails"), ("control", "holds")]) == "fails"
    assert overall([("control", "holds")]) == "open"


def test_a_folder_that_cannot_be_written_is_said_in_one_line(tmp_path: Path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(UsageError, match=r"cannot write the picture to .* choose another --out"):
        conduct(Toy(), NOWHERE, True, "", tmp_path / "taken")


def test_plain_values():
    found = plain({"a": np.float64(1 / 3), 2: (np.int64(1), np.bool_(True)), "n": [np.nan, -np.inf], "t": "x"})
    assert found == {"a": 0.333333, "2": [1, True], "n": ["nan", "-inf"], "t": "x"}


# Evidence


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose only study has committed results, as the current folder."""
    folder = tmp_path / "studies" / "theory"
    folder.mkdir(parents=True)
    shutil.copy(TOY, folder / "toy.py")
    for ending in ("json", "csv", "png"):
        (folder / f"toy.{ending}").write_text("evidence")
    monkeypatch.setattr(catalog, "BESIDE", tmp_path / "studies")
    monkeypatch.chdir(tmp_path)
    return folder


def evidence(folder: Path) -> list[str]:
    return [(folder / f"toy.{ending}").read_text(errors="replace") for ending in ("json", "csv", "png")]


def test_no_command_writes_over_evidence_without_record(checkout: Path, capsys):
    for line in (
        ["theory", "toy"],
        ["theory", "toy", "--quick"],
        ["theory", "all", "--quick"],
        ["experiment", "run", "toy"],
        ["experiment", "run", "studies/theory/toy.py", "--quick"],
    ):
        assert cli(line) == 0
    Path("link").symlink_to(checkout)
    for line in (
        ["theory", "toy", "--quick", "--out", "studies/theory"],
        ["experiment", "run", "toy", "--out", "studies/new"],
        ["theory", "toy", "--quick", "--record"],
        ["experiment", "run", "toy", "--record", "--out", "elsewhere"],
        ["experiment", "run", "toy", "--quick", "--out", "link"],
    ):
        capsys.readouterr()
        assert cli(line) == 2 and "--record" in capsys.readouterr().err
    assert evidence(checkout) == ["evidence"] * 3
    assert {path.name for path in checkout.glob("*.*")} == {"toy.py", "toy.json", "toy.csv", "toy.png"}
    assert (checkout.parents[1] / "reports" / "toy" / "toy.json").is_file()


def test_record_keeps_the_full_findings_with_their_conditions(checkout: Path, monkeypatch, capsys):
    assert cli(["theory", "toy", "--record", "--dir", "/somewhere/of/mine/runs"]) == 0
    found = json.loads(evidence(checkout)[0])
    assert not found["quick"] and found["claims"][0]["figures"]["high"] == "inf"
    conditions = found["conditions"]
    assert conditions["command"] == "fcritic theory toy --record --dir runs" and conditions["seeds"] == 1
    assert (
        len(conditions["commit"].removesuffix("-dirty")) == 40 and conditions["device"] and conditions["versions"]
    )
    assert evidence(checkout)[1].startswith("seed,low,high") and (checkout / "toy.png").stat().st_size < 150_000
    assert not (checkout / "toy.html").exists() and not (checkout.parents[1] / "reports").exists()
    before = evidence(checkout)
    monkeypatch.setattr("fcritic.study.report.versions", lambda: {"git": None, "device": "cpu", "jax": "0"})
    assert cli(["theory", "toy", "--record"]) == 2 and "notes the commit" in capsys.readouterr().err
    assert evidence(checkout) == before


# Finding


def test_the_list_states_what_became_of_the_papers_claims(checkout: Path, capsys):
    assert cli(["theory", "toy", "--record"]) == 0
    capsys.readouterr()
    assert cli(["experiment", "list"]) == 0
    listed = capsys.readouterr().out
    assert (
        "A study for tests: two claims" in listed and "holds  low < high" in listed and "high < low" not in listed
    )
    for line in (["theory"], ["theory", "--help"]):
        assert cli(line) == 0
        assert "holds  low < high" in capsys.readouterr().out
    assert cli(["experiment", "list", "--json"]) == 0
    (fact,) = json.loads(capsys.readouterr().out)
    assert fact["name"] == "toy" and fact["group"] == "theory"
    assert fact["recorded"] == [{"statement": "low < high", "verdict": "holds"}]


def test_the_current_folder_is_never_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    """Whoever unpacks a stranger's folder and goes there runs none of its code."""
    (tmp_path / "studies" / "theory").mkdir(parents=True)
    (tmp_path / "studies" / "theory" / "evil.py").write_text("STUDY = open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    assert cli(["experiment", "list"]) == 0 and "evil" not in capsys.readouterr().out
    assert cli(["theory", "evil"]) == 2 and "unknown experiment 'evil'" in capsys.readouterr().err
    assert cli(["experiment", "status", "second-term"]) == 0
    assert not (tmp_path / "ran").exists()


def test_without_a_checkout_one_line_says_where_studies_are(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(catalog, "BESIDE", tmp_path / "no" / "studies")
    for line in (["experiment", "list"], ["experiment", "run", "quick"], ["theory"]):
        assert cli(line) == 2
        error = capsys.readouterr().err
        assert "not installed with the package" in error and "--studies" in error and error.count("\n") == 1
    (tmp_path / "theory").mkdir()
    shutil.copy(TOY, tmp_path / "theory" / "toy.py")
    assert cli(["experiment", "list", "--studies", str(tmp_path)]) == 0 and "toy" in capsys.readouterr().out
    assert cli(["theory", "toy", "--quick", "--studies", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert cli(["experiment", "list", "--studies", str(tmp_path / "none")]) == 2


ROBOT = """
import gymnasium as gym
import numpy as np

class Robot(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Box(-1, 1, (1,))
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.time += 1
        return np.zeros(2, np.float32), float(action[0]), False, self.time == 10, {}
"""
OWN = """
from fcritic.study.comparison import Better, Comparison
from fcritic.study.spec import Run
import its_sizes

STUDY = Comparison("mine", "Is it better?", tuple(
    Run("td3", "probe-both", envs=1, seeds=2, steps=300, label=label, options=(
        ("warmup", 100), ("eval_every", 150), ("agent.batch_size", size), ("agent.actor_hidden", (8,)),
        ("agent.critic_hidden", (8,)))) for label, size in its_sizes.SIZES.items()),
    claims=(Better("more data per update helps", "large", "small"),))
"""


def test_a_file_of_ones_own_is_a_study(trained_here, tmp_path: Path, monkeypatch, capsys):
    """It trains, continues, judges and reports as the studies of the package do; its task is trusted as typed."""
    (tmp_path / "its_sizes.py").write_text("SIZES = {'small': 4, 'large': 8}")
    (tmp_path / "robot.py").write_text(ROBOT)
    file = tmp_path / "mine.py"
    file.write_text(OWN.replace("probe-both", f"{tmp_path}/robot.py:Robot"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))  # where the list of trusted tasks is
    rest = ["--dir", str(tmp_path / "runs"), "--out", str(tmp_path / "report"), "--json"]
    assert cli(["experiment", "run", str(file), "--only", "small", *rest]) == 0
    assert [each["state"] for each in json.loads(capsys.readouterr().out)] == ["finished"]
    assert cli(["experiment", "run", str(file), *rest]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [claim["statement"] for claim in report["claims"]] == [
        f"more data per update helps, {tmp_path}/robot.py:Robot, 1 environment"
    ]
    assert len((tmp_path / "report" / "mine.csv").read_text().splitlines()) == 1 + 2 * 2 * 2
    assert cli(["experiment", "report", str(file), *rest[:2], "--out", str(tmp_path)]) == 2  # beside it: --record


def test_the_time_of_the_trainings_is_told_apart_from_that_of_the_report(tmp_path: Path):
    lines = [(0, "begin"), (60, None), (100, "end"), (5000, "begin"), (5140, "end")]
    runs = Trainings(tmp_path)
    (tmp_path / SMALL.name).mkdir()
    text = "".join(json.dumps({"time": time, "env_steps": 0, "event": event}) + "\n" for time, event in lines)
    (tmp_path / SMALL.name / "journal.jsonl").write_text(text)
    trains = type("Trains", (Toy,), {"runs": (SMALL,)})()
    report = conduct(trains, runs, False, "", tmp_path / "report")
    assert report["training_seconds"] == 240.0
    report["seconds"] = 2.7
    assert "judged in 2.7 s after 4 min of training; see" in report_text(report, tmp_path)
    assert "after 4 min of training" in (tmp_path / "report" / "toy.md").read_text()
    untold = conduct(Toy(), runs, False, "", tmp_path / "report") | {"seconds": 2.7}
    assert "; 2.7 s; see" in report_text(untold, tmp_path)


def test_a_report_of_another_study_with_the_same_name_is_not_written_over(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(TOY, "one.py")
    shutil.copy(TOY, "two.py")
    for _ in range(2):
        assert cli(["experiment", "run", "one.py"]) == 0
    capsys.readouterr()
    assert cli(["experiment", "run", "two.py"]) == 2
    error = capsys.readouterr().err
    assert "reports/toy holds the report of one.py; choose another --out" in error and error.count("\n") == 1
    assert cli(["experiment", "run", "two.py", "--out", "other"]) == 0
    Path("one.py").rename("three.py")  # the same study under another name of its file
    assert cli(["experiment", "run", "three.py"]) == 0


def test_a_study_of_ones_own_has_a_quick_version(trained_here, tmp_path: Path, capsys):
    """The same claims of shorter runs with the same labels."""
    (tmp_path / "its_sizes.py").write_text("SIZES = {'small': 4, 'large': 8}")
    file = tmp_path / "mine.py"
    text = (
        OWN.replace("STUDY = ", "FULL = ") + "\nimport dataclasses\nSTUDY = dataclasses.replace(FULL, quick_runs="
    )
    file.write_text(text + "FULL.runs, runs=tuple(dataclasses.replace(run, steps=10**6) for run in FULL.runs))")
    assert cli(["experiment", "run", str(file), "--quick", "--json", "--out", str(tmp_path / "report")]) == 0
    (claim,) = json.loads(capsys.readouterr().out)["claims"]
    assert claim["figures"]["frames"] == 300 and "not finished" not in claim["figures"]


def test_a_record_of_trainings_keeps_what_was_recorded_before(trained_here, checkout: Path, capsys):
    """Rows of methods that have no folder here stay to the letter, those trained here are written anew."""
    (checkout / "its_sizes.py").write_text("SIZES = {'small': 4, 'large': 8}")
    (checkout / "mine.py").write_text(OWN.replace("import its_sizes", "from studies.theory import its_sizes"))
    head = "task,envs,method,seed,frames,mean_actor,actors\n"
    kept = "probe-both,1,large,0,150,0.50,1 0\nprobe-both,1,large,1,150,0.25,0 1\nelsewhere,1,other,0,150,7.10,7\n"
    (checkout / "mine.csv").write_text(head + "probe-both,1,small,0,150,9.99,9\n" + kept)
    assert cli(["experiment", "run", "mine", "--only", "small"]) == 0
    assert cli(["experiment", "report", "mine", "--add", str(checkout / "mine.csv"), "--record"]) == 0
    text = (checkout / "mine.csv").read_text()
    assert text.startswith(head + kept) and "9.99" not in text
    assert [line.split(",")[2] for line in text.splitlines()[4:]] == ["small"] * 4
    assert json.loads((checkout / "mine.json").read_text())["claims"][0]["figures"]["large"] == 0.375


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "has no STUDY; end it with STUDY = Comparison(...)"),
        ("STUDY = 1", "has no STUDY"),
        ("1 / 0", "failed: ZeroDivisionError: division by zero (mine.py, line 1)"),
        ("STUDY = (", "failed: SyntaxError"),
    ],
)
def test_a_file_that_is_not_a_study_is_one_line(tmp_path: Path, capsys, text: str, message: str):
    (tmp_path / "mine.py").write_text(text)
    assert cli(["experiment", "run", str(tmp_path / "mine.py")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


SMALL_STUDY = """
from fcritic.study.comparison import Better, Comparison
from fcritic.study.spec import Run

STUDY = Comparison("mine", "Is it better?", (
    Run("fac-small", "probe-both", label="fac", seeds=2, steps=300, options=OPTIONS),
    Run("td3", "probe-both", seeds=2, steps=300), Run("td3", "probe-far", seeds=2, steps=300, label="far")),
    reference="td3", claims=(Better("it is better", "fac", "td3"),))
"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"fac", "td3"', '"fac", "tdx"', "no run is labelled tdx (claim 'it is better'); it has fac, far, td3; d"),
        ('"fac", "td3"', '"fax", "td4"', "no run is labelled fax or td4"),
        ('"fac", "td3"', '"fac", "far"', "fac and far (claim 'it is better') are never run on the same task"),
        ('reference="td3"', 'reference="td4"', "no run is labelled td4 (reference); it has fac, far, td3; d"),
        ("OPTIONS", '(("membrs", 2),)', "the run probe-both-4-fac of mine: fac-small has no option membrs; d"),
        ("OPTIONS", '(("lr", 1e-3),)', "fac-small has no option lr; did you mean learning_rate?"),
        ("OPTIONS", '(("agent.trust.mesure", True),)', "no option agent.trust.mesure; did you mean trust.measure?"),
        ("OPTIONS", '(("members", "two"),)', "probe-both-4-fac of mine: the option members cannot be 'two'"),
        ("steps=300)", "steps=0)", "--steps must be at least 1"),
    ],
)  # fmt: skip
def test_a_study_that_could_not_be_trained_or_judged_is_refused_at_once(
    tmp_path: Path, capsys, before: str, after: str, message: str
):
    file = tmp_path / "mine.py"
    file.write_text(SMALL_STUDY.replace(before, after).replace("OPTIONS", "()"))
    for action in ("status", "run", "report"):
        assert cli(["experiment", action, str(file), "--dir", str(tmp_path / "runs")]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_options_have_the_names_of_the_command_line_and_of_the_fields():
    options = {"learning-rate": 2e-3, "encoder.train-probes": False, "agent.members": 3, "eval_every": 1000}
    options |= {"explore.noise": 0.3, "from": "elsewhere", "no_such": 1}
    run = Run("fac-small", "probe-both", options=tuple(options.items())[:-1])
    config = run.config()
    agent = config.agent
    assert (agent.learning_rate, agent.members, agent.encoder.train_probes) == (2e-3, 3, False)
    assert (config.eval_every, agent.explore.noise, config.begin_from) == (1000, 0.3, "elsewhere")
    words = run.command()
    for word in ("--learning-rate 0.002", "--encoder.no-train-probes", "--members 3", "--eval-every 1000"):
        assert word in words
    assert "--explore.noise 0.3 --from elsewhere" in words
    with pytest.raises(UsageError, match="fac-small has no option no_such"):
        dataclasses.replace(run, options=tuple(options.items())).config()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["theory", "theorem1"], "unknown experiment 'theorem1'; did you mean theorem-1?"),
        (["theory", "riverswim"], "unknown experiment 'riverswim'"),
        (["experiment", "run", "figure2"], "did you mean figure-2"),
        (["experiment", "rum", "quick"], "did you mean run"),
        (["experiment", "run", "none.py"], "there is no file none.py"),
        (["theory", "all", "--quik"], "unknown option --quik; did you mean --quick?"),
        (["theory", "--quick"], "is missing"),
        (["theory", "theorem-1", "--add", "x.csv"], "theorem-1 trains nothing"),
        (["experiment", "report", "theorem-1"], "fcritic experiment run theorem-1 computes"),
        (["experiment", "run", "figure-2", "--quick"], "figure-2 has no quick version"),
        (["experiment", "run", "quick", "--only", "nobody"], "fits --only nobody"),
        (["experiment", "report", "figure-2"], "begin with fcritic experiment run figure-2"),
    ],
)
def test_mistakes_are_one_line_and_exit_with_two(line: list[str], message: str, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli(line) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


# Training

SMALL = load("quick")[0].runs[0]


def small(steps, **changes):
    return (dataclasses.replace(SMALL, steps=steps, **changes),)


def test_a_budget_is_a_time():
    assert [execute.parse_budget(text) for text in ("25m", "1.5h", "90s", "90", None)] == [1500, 5400, 90, 90, None]
    for text in ("", "m", "-5m", "nan", "5x", "inf"):
        with pytest.raises(UsageError, match="--budget must be a time"):
            execute.parse_budget(text)


PATIENT = """#!/bin/sh
trap 'echo saved > "$3/saved"; exit 143' TERM
while true; do sleep 0.05; done
"""
"""A training in its place: it goes on until it is asked to stop, and then saves."""


def test_a_budget_asks_the_run_to_stop_and_leaves_the_rest(tmp_path, monkeypatch):
    (tmp_path / "patient").write_text(PATIENT)
    (tmp_path / "patient").chmod(0o755)
    monkeypatch.setattr(execute.sys, "executable", str(tmp_path / "patient"))
    said = []
    (todo,) = progress(small(200_000), tmp_path)
    assert todo.state == "waiting" and todo.frames_left == 200_000
    assert execute.run_all([todo], execute.Budget(1.0), said.append) == []
    assert (tmp_path / SMALL.name / "saved").exists()
    assert execute.run_all([todo], execute.Budget(0.0), said.append) == []
    assert said[-1] == "the budget is spent; 1 runs are left, the same command continues"


BUSY = """#!/bin/sh
for frame in 1500 1600 1700 1800; do
  echo '{"time": 1.0, "env_steps": '$frame'}' >> "$3/journal.jsonl"; sleep 0.3
done
"""
"""A training in its place that goes on after its warm-up."""


def test_how_far_a_training_is_is_said_while_it_runs(tmp_path, monkeypatch):
    (tmp_path / "busy").write_text(BUSY)
    (tmp_path / "busy").chmod(0o755)
    monkeypatch.setattr(execute.sys, "executable", str(tmp_path / "busy"))
    monkeypatch.setattr(execute, "SILENCE", 0.1)
    said = []
    assert execute.run_all(progress(small(2000), tmp_path), execute.Budget(None), said.append) == []
    assert any(line.startswith("  1,500 of 2,000 frames after 0 s") for line in said)
    assert any(line.startswith("  1,700 of 2,000 frames after ") and line.endswith(" s left") for line in said)


def test_what_is_left_is_said_where_something_is(tmp_path, monkeypatch):
    frames, said = iter((100, 200)), []

    def play(each, *_):
        (each.path / "checkpoints" / f"step-{next(frames):012d}").mkdir(parents=True)
        return ""

    monkeypatch.setattr(execute, "run_one", play)
    for _ in range(2):
        execute.run_all(progress(small(200), tmp_path), execute.Budget(None), said.append)
    assert said[1].startswith("  at frame 100 after ") and said[1].endswith(" left at this pace")
    assert said[3].startswith("  at frame 200 after ") and "left" not in said[3]


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path, monkeypatch):
    todo = progress(small(1500), tmp_path)
    monkeypatch.setattr(execute.sys, "executable", "false")
    said = []
    assert execute.run_all(todo, execute.Budget(None), said.append) == [f"{SMALL.name}: exit code 1"]
    assert "failed" in said[-1]


def test_status_of_some_runs(tmp_path, capsys):
    assert cli(["experiment", "status", "quick", "--dir", str(tmp_path), "--only", "td3", "--json"]) == 0
    (state,) = json.loads(capsys.readouterr().out)
    assert state["state"] == "waiting" and state["frame"] == 0


def test_ctrl_c_lets_the_run_save(tmp_path, monkeypatch):
    """The executor passes the wish to stop on, and waits for the checkpoint."""
    (todo,) = progress(small(200_000, options=(*SMALL.options, ("eval_every", 10**6))), tmp_path)

    def interrupted(process, budget, look):
        while not RunDirectory(todo.path).newest_frame():
            assert process.poll() is None
            time.sleep(0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute.run_one(todo, execute.Budget(None), print)
    frame = RunDirectory(todo.path).newest_frame()
    assert frame >= read_rows(todo.path / "metrics.jsonl")[-1]["env_steps"] > 0  # saved to its very end
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
