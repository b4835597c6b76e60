"""Whether episodes succeeded and how long they were: from the task to logs, reports and pictures."""

import json

import gymnasium as gym
import numpy as np
import pytest

from fcritic import envs
from fcritic.cli.dispatch import run as fcritic
from fcritic.envs.answers import success_in
from fcritic.logs.metrics import read_rows

GOAL = """
import gymnasium as gym, numpy as np

class Goal(gym.Env):
    observation_space, action_space = gym.spaces.Box(-9, 9, (1,)), gym.spaces.Box(-1, 1, (1,))
    episodes = 0

    def __init__(self, name: str = "is_success", steps: int = 3):
        self.name, self.steps = name, steps

    def reset(self, seed=None, options=None):
        self.taken, self.episodes = 0, self.episodes + 1
        return np.zeros(1, np.float32), {self.name: False}

    def step(self, action):
        self.taken += 1
        last = self.taken == self.steps
        return np.zeros(1, np.float32), 1.0, False, last, {self.name: last and self.episodes % 4 == 1}

def many(num_envs):
    mode = gym.vector.AutoresetMode.SAME_STEP
    return gym.vector.SyncVectorEnv([Goal] * num_envs, autoreset_mode=mode)

def later(num_envs):
    return gym.vector.SyncVectorEnv([Goal] * num_envs, autoreset_mode=gym.vector.AutoresetMode.DISABLED)
"""


@pytest.fixture
def goal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "goal.py").write_text(GOAL)
    return "goal.py:Goal"


@pytest.mark.parametrize(
    ("info", "success"),
    [
        ({"is_success": True}, 1.0),
        ({"is_success": np.float32(0)}, 0.0),
        ({"success": np.array(1)}, 1.0),
        ({"is_success": False, "success": True}, 0.0),
        ({}, None),
        ({"is_success": None}, None),
        ({"is_success": "yes"}, None),
        ({"is_success": 7}, None),
        ({"is_success": np.ones(2)}, None),
        ({"is_success": float("nan")}, None),
        ("no dict", None),
    ],
)
def test_what_infos_say(info, success):
    found = success_in(info)
    assert np.isnan(found) if success is None else found == success


@pytest.mark.parametrize("task", ["goal.py:Goal", "goal.py:Goal?name=success", "goal.py:many", "goal.py:later"])
def test_the_first_episode_of_each_environment_succeeds(goal, task):
    vector = envs.make_vector(task, seeds=[0], envs=2)
    ended = [vector.step(np.zeros((1, 2, 1)))[1] for _ in range(9)]
    vector.close()
    assert [len(each) for each in ended] == [0, 0, 2] * 3
    assert [each.success for step in ended for each in step] == [1, 1, 0, 0, 0, 0]
    assert {each.length_in_steps for step in ended for each in step} == {3}


def test_a_task_that_says_nothing_has_none():
    vector = envs.make_vector("Pendulum-v1?max_episode_steps=2", seeds=[0], envs=1)
    vector.step(np.zeros((1, 1, 1)))
    (episode,) = vector.step(np.zeros((1, 1, 1)))[1]
    assert episode.success is None and episode.length_in_steps == 2


TINY = ["--recipe", "td3", "--actor-hidden", "8", "--critic-hidden", "9", "--batch-size", "5", "--quiet"]
TINY += ["--steps", "60", "--warmup", "20", "--eval-every", "30"]


def test_from_training_to_the_picture(goal, tmp_path, capsys):
    assert fcritic(["train", *TINY, "--task", goal, "--out", "run", "--task-args", "steps=4"]) == 0
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    episodes = [row for row in rows if row["kind"] == "episode"]
    assert [row["success"] for row in episodes[:5]] == [1, 0, 0, 0, 1] and episodes[0]["length"] == 4
    evaluations = [row for row in rows if row["kind"] == "evaluation"]
    assert [row["success"] for row in evaluations] == [1, 0] and {row["length"] for row in evaluations} == {4}
    assert fcritic(["evaluate", "run", "--episodes", "4"]) == 0
    assert "success 50% · length 4.0" in capsys.readouterr().out
    assert fcritic(["evaluate", "run", "--episodes", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["success"], told["length"], told["seeds"][0]["successes"]) == (0.5, 4.0, [0.5])
    for what, values in (("success", [1, 0]), ("length", [4, 4])):
        assert fcritic(["plot", "run", "--what", what, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["runs"][0]["measures"][what]["0"] == [[30, 60], values]
        assert (tmp_path / "run" / f"{what}.png").stat().st_size > 5000


def test_without_it_the_picture_says_why(goal, tmp_path, capsys):
    assert fcritic(["train", *TINY, "--task", "Pendulum-v1", "--out", "run"]) == 0
    assert fcritic(["plot", "run", "--what", "success"]) == 2
    assert "its task does not report it (is_success in Gymnasium's info)" in capsys.readouterr().err
    assert fcritic(["evaluate", "run", "--episodes", "1"]) == 0
    assert "success" not in (text := capsys.readouterr().out) and "length 200.0" in text


def test_gymnasium_still_has_the_masks_that_are_read():
    """The infos of its vector environments: an array by name, and a mask beside it."""
    assert hasattr(gym.vector.VectorEnv, "_add_info")
