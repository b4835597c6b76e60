"""Code of the user's own after each evaluation: it sees what there is, and changes nothing but the end."""

import json

import numpy as np
from own_code import own_home
import pytest

import fcritic
from fcritic.cli.dispatch import run
from fcritic.errors import UsageError
from fcritic.logs.metrics import read_rows
from fcritic.runs.fingerprint import fingerprint

__all__ = ["own_home"]

OFTEN = {"steps": 90, "warmup": 20, "replay": 60, "eval_every": 30, "log_every": 30, "seeds": 2, "seed": 3}
SIZES = OFTEN | {"batch_size": 5, "actor_hidden": (8,), "critic_hidden": (9,)}


def trained(out, callback=None, **options):
    return fcritic.train_agent("td3", "probe-both", out, quiet=True, callback=callback, **SIZES | options)


def test_a_callback_sees_each_evaluation_and_the_agent_and_changes_nothing(tmp_path):
    moments, obs = [], np.ones(1)
    seen = lambda moment: moments.append((moment, moment.agent(4), moment.agent(4).value(0, obs)))
    trained(tmp_path / "plain")
    last = fcritic.load(trained(tmp_path / "watched", seen).directory, seed=4)
    assert fingerprint(tmp_path / "plain") == fingerprint(tmp_path / "watched")
    assert [moment.frame for moment, _, _ in moments] == [30, 60, 90]
    rows = [row for row in read_rows(tmp_path / "watched" / "metrics.jsonl") if row["kind"] == "evaluation"]
    told = [moment.evaluations[seed].mean_actor for moment, _, _ in moments for seed in (3, 4)]
    assert told == [row["mean_actor"] for row in rows]
    _, agent, value = moments[-1]
    assert agent.frame == 90 and agent.seed == 4 and agent.act(obs) == last.act(obs)
    np.testing.assert_array_equal(value, last.value(0, obs))
    earlier = moments[0][1]  # it stays as it was, although training has taken its arrays over
    assert earlier.act(obs) != last.act(obs)
    with pytest.raises(UsageError, match="there is no seed 5"):
        moments[0][0].agent(5)


def test_a_callback_ends_a_training_which_can_go_on(tmp_path):
    trained(tmp_path / "plain")
    assert trained(tmp_path / "run", lambda moment: moment.frame == 60 and moment.stop()).frame == 60
    assert trained(tmp_path / "run").frame == 90
    assert fingerprint(tmp_path / "plain") == fingerprint(tmp_path / "run")


CODE = """
def tell(moment):
    with open("told", "a") as file:
        file.write(f"{moment.frame} {moment.directory}\\n")

def broken(moment):
    return 1 / 0

number = 3
"""


def test_by_command_and_what_goes_wrong_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(CODE)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in OFTEN.items()]
    words += ["--task=probe-both", "--recipe=td3", "--batch-size=5", "--actor-hidden", "8", "--critic-hidden", "9"]
    train = ["train", *words, "--out", "run", "--quiet"]
    assert run([*train, "--callback", "mine.py:broken"]) == 2
    said = capsys.readouterr().err
    assert "the callback failed: ZeroDivisionError: division by zero (mine.py, line 7); all up to frame 30" in said
    assert said.count("\n") == 1
    assert run(["resume", "run", "--quiet", "--callback", "mine.py:tell"]) == 0
    assert (tmp_path / "told").read_text() == "60 run\n90 run\n"
    assert "callback" not in json.loads((tmp_path / "run" / "config.json").read_text())
    for name, line in [
        ("mine.py:tel", "mine.py has no tel; did you mean tell?"),
        ("mine.py:number", "mine.py:number is a int; name a function that takes a moment"),
        ("mine", "mine is not a callback; name your function as path/to/file.py:function"),
    ]:
        assert run([*train, "--callback", name]) == 2
        assert line in capsys.readouterr().err
