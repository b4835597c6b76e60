"""`fcritic log` and `fcritic rank` as their users call them; what is wrong is one line and exit code 2."""

import json
from pathlib import Path
import shutil

from logged_data import episodes, save, without
import numpy as np
import pytest

from fcritic.cli.dispatch import run
from fcritic.offline.reading import read_logs

PENDULUM = str(Path(__file__).parents[1] / "trained" / "Pendulum-v1")
QUICK = ["--steps", "20", "--members", "2", "--probes", "8", "--hidden", "16", "16", "--encoder-hidden", "16"]
CODE = """
import numpy as np

def half(obs): return np.full((len(obs), 1), 1.0)
def brake(obs): return -0.5 * obs[:, 2:]
def drawn(obs): return np.random.normal(size=(len(obs), 1))
def nan(obs): return np.full((len(obs), 1), np.nan)
def counts(obs): return np.ones((len(obs), 1), int)
def pair(obs): return np.ones((len(obs), 2))
def one(obs): return np.ones((1, 1))
def text(obs): return np.full((len(obs), 1), "left")
def breaks(obs): raise RuntimeError("a valve\\nis stuck")
number = 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What four trained agents did with noise, and functions of all kinds."""
    folder = tmp_path_factory.mktemp("rank")
    (folder / "mine.py").write_text(CODE)
    assert run(["log", PENDULUM, "--steps", "240", "--noise", "0.4", "--out", str(folder / "log")]) == 0
    return folder


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def answer(capsys, *args):
    capsys.readouterr()
    assert run([*args, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def complaint(capsys, *args):
    capsys.readouterr()
    assert run([*args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fcritic: ")
    assert err.count("\n") == 1
    return err


def test_a_log_has_the_steps_and_policies_that_were_asked_for(folder, capsys):
    data = read_logs(folder / "log")
    assert len(data) == 240
    assert (data.task, data.action_repeat) == ("Pendulum-v1", 1)
    facts = json.loads((folder / "log/dataset.json").read_text())
    assert facts["sources"] == [f"{PENDULUM}@16000#{actor}" for actor in range(4)]
    assert facts["noise"] == 0.4
    found = answer(capsys, "log", "mine.py:half", "--task", "Pendulum-v1", "--episodes", "2", "--out", "two")
    assert (found["transitions"], found["complete_episodes"]) == (400, 2)
    np.testing.assert_allclose(read_logs("two").act, 0.5)


def test_every_kind_of_policy_is_ranked_and_the_page_is_written(folder, capsys):
    policies = [PENDULUM, "mine.py:half", "mine.py:brake", "mine.py:drawn"]
    found = answer(capsys, "rank", "--data", "log", "--policies", *policies, *QUICK, "--out", "page.html")
    rows = [*found["ranked"], *found["untrusted"]]
    assert found["policies"] == len(rows) == 7
    assert {row["name"] for row in rows} == {*(f"{PENDULUM}@16000#{actor}" for actor in range(4)), *policies[1:]}
    assert {row["name"] for row in rows if row["stochastic"]} == {"mine.py:drawn"}
    assert [row["rank"] for row in found["ranked"]] == [*range(1, len(found["ranked"]) + 1)]
    values = [row["value"] for row in found["ranked"]]
    assert values == sorted(values, reverse=True)
    assert all(row["low"] <= row["value"] <= row["high"] for row in found["ranked"])
    assert all(row["reason"] for row in rows)
    assert "discounted by 0.99 per action" in found["unit"]
    page = (folder / "page.html").read_text()
    assert all(row["name"] in page for row in rows)


def test_fqe_claims_no_certainty(capsys):
    policies = ["mine.py:half", "mine.py:brake"]
    found = answer(capsys, "rank", "--data", "log", "--policies", *policies, *QUICK, "--method", "fqe")
    rows = [*found["ranked"], *found["untrusted"]]
    assert {row["name"] for row in rows} == set(policies)
    assert all(row["low"] is row["high"] is row["chance_best"] is None for row in rows)


def test_a_table_says_first_what_cannot_be_judged(capsys):
    assert run(["rank", "--data", "log", "--policies", PENDULUM, "mine.py:half", *QUICK]) == 0
    out, err = capsys.readouterr()
    assert "discounted by 0.99 per action" in out
    if "cannot judge" in out and "Ranking" in out:
        assert out.index("cannot judge") < out.index("Ranking")
    assert "fitting 5 policies to 240 transitions" in err or err == ""


def test_a_saved_evaluator_values_policies_as_it_did_and_new_ones(folder, capsys):
    known = ["--policies", PENDULUM, "mine.py:brake"]
    found = answer(capsys, "rank", "--data", "log", *known, *QUICK, "--discount", "0.9", "--save", "judge")
    again = answer(capsys, "rank", "--with", "judge", *known)
    for name in ("ranked", "untrusted", "discount", "unit", "data_text"):
        assert again[name] == found[name], name
    new = answer(capsys, "rank", "--with", "judge", "--policies", "mine.py:half")
    assert [row["name"] for row in (*new["ranked"], *new["untrusted"])] == ["mine.py:half"]
    assert "exists already" in complaint(capsys, "rank", "--data", "log", *known, "--save", "judge")


def test_a_check_shows_what_is_reached(folder, capsys):
    """The torque of 1 with the discount 0: the reward of the first state alone."""
    options = ["--check", "2", "--check-episodes", "30", "--discount", "0"]
    found = answer(capsys, "rank", "--data", "log", "--policies", "mine.py:half", PENDULUM, *QUICK, *options)
    rows = [*found["ranked"], *found["untrusted"]]
    measured = [row["measured"] for row in rows]
    assert [each is not None for each in measured] == [True, True, False, False, False]
    # Starts are uniform in angle and in speeds up to 1: -E[angle^2] - 0.1 E[speed^2] is -pi^2 / 3 - 0.03.
    for each in measured[:2]:
        assert each["episodes"] == 30
        assert each["value"] == pytest.approx(-(np.pi**2) / 3, abs=5 * each["error"] + 0.05)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rank --data log", "--policies is missing; name runs"),
        ("rank --policies mine.py:half", "--data is missing; name runs"),
        ("rank --data log --with judge --policies mine.py:half", "leave out --data"),
        ("rank --with nowhere --policies mine.py:half", "nowhere"),
        ("rank --with log --policies mine.py:half", "log"),
        ("rank --with log --steps 9 --policies mine.py:half", "leave out options of the method"),
        ("rank --data nowhere --policies mine.py:half", "there is no file or folder nowhere"),
        ("rank --data nowhere.npz --policies mine.py:half", "nowhere.npz does not exist"),
        ("rank --data mine.py --policies mine.py:half", "mine.py is not an NPZ or HDF5 file"),
        (f"rank --data {PENDULUM} --policies mine.py:half", "is an exported agent without a replay"),
        ("rank --data log --policies nowhere", "nowhere is not a policy; name the directory of a run"),
        ("rank --data log --policies nowhere.onnx", "nowhere.onnx cannot be read: No such file"),
        ("rank --data log --policies mine.onnx", "mine.onnx cannot be read as ONNX"),
        ("rank --data log --policies .", "has no config.json"),
        ("rank --data log --policies mine.py:hal", "mine.py has no hal; did you mean half?"),
        ("rank --data log --policies mine.py:number", "mine.py:number is a int, not a function"),
        ("rank --data log --policies other.py:half", "there is no file"),
        ("rank --data log --policies no_such_module:half", "there is no module no_such_module"),
        (f"rank --data log --policies {PENDULUM}#9", "has no policy #9; its names are @16000"),
        ("rank --data log --policies mine.py:nan", "mine.py:nan returned an action that holds NaN"),
        ("rank --data log --policies mine.py:counts", "mine.py:counts returned discrete actions (int64)"),
        ("rank --data log --policies mine.py:pair", "mine.py:pair returned actions of shape (16, 2)"),
        ("rank --data log --policies mine.py:one", "mine.py:one returned actions of shape (1, 1)"),
        ("rank --data log --policies mine.py:text", "mine.py:text returned <U4, not numbers"),
        ("rank --data log --policies mine.py:breaks", "mine.py:breaks failed: RuntimeError: a valve is stuck"),
        ("rank --data log --policies mine.py:half --out page.txt", "ends in .html or .htm"),
        ("rank --data log --policies mine.py:half --save log", "log exists already"),
        ("rank --data log --policies mine.py:half --discount 1", "--discount must be in [0, 1)"),
        ("rank --data log --policies mine.py:half --method fqee", "--method must be one of"),
        ("rank --data log --policies mine.py:half --task cheetah-run", "cheetah-run has 17 and (6,)"),
        ("rank --data bare.npz --policies mine.py:half --check 1", "--check needs the environment"),
        ("rank --data bare.npz --policies mine.py:half --action-low -2", "belong together"),
        ("rank --data log --policies mine.py:half --action-low -1 --action-high 1", "has actions from -2 to 2"),
        ("rank --data log bare.npz --policies mine.py:half", "log has observations of size 3, bare.npz 2"),
        ("log --out new", "name the policies"),
        ("log mine.py:half --out new", "give --task"),
        (f"log {PENDULUM} --out log", "log exists already"),
        (f"log {PENDULUM} --out new --steps 0", "--steps must be at least 1"),
        (f"log {PENDULUM} --out new --steps 9 --episodes 9", "give --episodes or --steps, not both"),
        (f"log {PENDULUM} --out new --noise nan", "--noise must be at least 0"),
        (f"log {PENDULUM} mine.py:breaks --out new", "a valve is stuck"),
    ],
)
def test_a_mistake_is_one_line(folder, capsys, line, message):
    if not (folder / "bare.npz").exists():
        fields = without(episodes(), "timeouts")
        save(folder / "bare.npz", fields)
        (folder / "mine.onnx").write_bytes(b"no model")
    assert message in complaint(capsys, *line.split())
    assert not (folder / "new").exists()


def test_a_log_that_names_code_cannot_have_it_run(folder, capsys):
    """A log is data: the task that it names is only built where its user has trusted that code."""
    facts = json.loads((folder / "log/dataset.json").read_text())
    shutil.copytree(folder / "log", folder / "strange")
    (folder / "evil.py").write_text("raise SystemExit('executed')")
    (folder / "strange/dataset.json").write_text(json.dumps(facts | {"task": "evil.py:make"}))
    line = ["rank", "--data", "strange", "--policies", "mine.py:half"]
    assert "if you know and trust that code" in complaint(capsys, *line, "--check", "1")
    assert answer(capsys, *line, *QUICK)["policies"] == 1
