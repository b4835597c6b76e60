"""Arguments of a task: typed, recorded with its name, used again by every command, refused where hostile."""

import json
import math

import gymnasium as gym
import numpy as np
import pytest

from fcritic import envs
from fcritic.api.train import configure
from fcritic.api.trust import require_trusted, trust_task
from fcritic.cli.dispatch import run as fcritic
from fcritic.envs.arguments import of_words, split, with_arguments
from fcritic.errors import UsageError

REACH = """
import gymnasium as gym, numpy as np

class Reach(gym.Env):
    observation_space, action_space = gym.spaces.Box(-9, 9, (1,)), gym.spaces.Box(-1, 1, (1,))

    def __init__(self, goal: float = 1.0, steps: int = 5, note: str = ""):
        self.goal, self.steps = goal, steps

    def reset(self, seed=None, options=None):
        self.taken = 0
        return np.full(1, self.goal, np.float32), {}

    def step(self, action):
        self.taken += 1
        return np.full(1, self.goal, np.float32), self.goal, False, self.taken == self.steps, {}
"""


@pytest.fixture
def reach(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "reach.py").write_text(REACH)
    return "reach.py:Reach"


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["a=1", "b=0.5", "c=true", "d=fast"], {"a": 1, "b": 0.5, "c": True, "d": "fast"}),
        (["z=[0.2,1.0]", "n=null", "t=True"], {"z": [0.2, 1.0], "n": None, "t": True}),
        (['s="1"', "e=", "odd=a&b?c=d%20 ü"], {"s": "1", "e": "", "odd": "a&b?c=d%20 ü"}),
    ],
)
def test_what_is_typed_is_the_same_again_from_the_name(words, arguments):
    assert of_words(words) == arguments
    name = with_arguments("Ant-v5", arguments)
    assert split(name) == ("Ant-v5", arguments) and with_arguments(name, {}) == name
    assert with_arguments("Ant-v5", dict(reversed(arguments.items()))) == name


def test_names_without_arguments_are_left_alone():
    for name in ("cheetah-run", "a?b.py:make", "what?.py:make", "pkg:Name-v0"):
        assert split(name) == (name, {}) and with_arguments(name, {}) == name


def test_each_kind_of_task_gets_them():
    pendulum = envs.make("Pendulum-v1?g=0.0&max_episode_steps=3", seed=0)
    assert isinstance(pendulum, envs.GymEnv) and vars(pendulum._env.unwrapped)["g"] == 0.0
    pendulum.reset()
    assert [pendulum.step(np.zeros(1)).last for _ in range(3)] == [False, False, True]
    swing = envs.make("cartpole-swingup?time_limit=0.05", seed=0)
    swing.reset()
    assert [swing.step(np.zeros(1)).last for _ in range(5)] == [False] * 4 + [
        True
    ]  # of a hundredth of a second each
    with pytest.raises(UsageError, match="probe-both takes no arguments"):
        envs.make("probe-both?a=1", seed=0)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("Pendulum-v1?gg=1", "Pendulum-v1 takes no argument gg; did you mean g"),
        ("Ant-v5?ctrl_cost_wieght=1", "did you mean ctrl_cost_weight"),
        ("Pendulum-v1?render_mode=human", "render_mode' is set by fcritic itself"),
        ("cartpole-swingup?time_limt=2", "takes no argument time_limt; did you mean time_limit"),
        ("cartpole-swingup?random=2", "random' is set by fcritic itself"),
        ("cartpole-swingup?time_limit=long", "cartpole-swingup cannot be built with"),
        ("reach.py:Reach?gaol=2", "reach.py:Reach takes no argument gaol; did you mean goal"),
        ("HalfCheetah-v5?xml_file=../../secret.xml", "without '..'"),
        ("HalfCheetah-v5?frame_skip=1000000000", "at most 1e[+]06 in size"),
        ("Pendulum-v1?g=NaN", "finite number"),
        ("Pendulum-v1?g=1e999", "finite number"),
        ('Pendulum-v1?g={"a":1}', "give a number, a word or a list"),
        ("Pendulum-v1?g=1&g=2", "g twice"),
        ("Pendulum-v1?g=" + "[" * 9 + "]" * 9, "3 deep"),
        ("Pendulum-v1?g=" + "x" * 999, "at most 300 printable letters"),
        ("Pendulum-v1?g=" + "1" * 5000, "g|number"),
        ("Pendulum-v1?g=a%0Ab", "printable"),
        ("Pendulum-v1?g=" + "1&g=" * 9000, "arguments of .* letters"),
        ("Pendulum-v1?" + "&".join(f"a{n}=1" for n in range(99)), "at most 30 arguments"),
    ],
)
def test_what_cannot_be_used_is_one_line(reach, task, message):
    only_built = task.startswith(("reach", "cart", "Pendulum-v1?gg", "Ant-v5"))  # who builds it knows its names
    read = [] if only_built else [lambda: require_trusted(task, reach)]
    for use in (lambda: envs.make(task, seed=0), *read):
        with pytest.raises(UsageError, match=message) as refused:
            use()
        assert "\n" not in str(refused.value) and len(str(refused.value)) < 500


TINY = ["--recipe", "td3", "--actor-hidden", "8", "--critic-hidden", "9", "--batch-size", "5"]
TINY += ["--steps", "60", "--warmup", "20", "--eval-every", "30"]


def test_a_run_keeps_them_for_every_command(reach, tmp_path, capsys):
    train = ["train", *TINY, "--task", reach, "--out", "run", "--quiet"]
    assert fcritic([*train, "--task-args", "goal=3", "steps=4"]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["task"] == "reach.py:Reach?goal=3&steps=4"
    assert fcritic(["evaluate", "run", "--episodes", "1", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["mean_actor"] == 12.0  # 4 steps with a reward of 3
    assert fcritic(["resume", "run", "--steps", "80", "--quiet"]) == 0
    assert fcritic([*train, "--task-args", "goal=2", "--steps", "80"]) == 2
    assert 'task was "reach.py:Reach?goal=3&steps=4", now "reach.py:Reach?goal=2"' in capsys.readouterr().err
    assert fcritic(["check", reach, "--task-args", "goal=2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == "reach.py:Reach?goal=2"
    assert fcritic(["replay", "run", "--out", "page.html"]) == 0


def test_in_python_they_are_a_dict(reach):
    assert configure("td3", reach, task_args={"goal": 2.5}).task == "reach.py:Reach?goal=2.5"
    with pytest.raises(UsageError, match="give a number, a word"):
        configure("td3", reach, task_args={"goal": math.sin})


def test_a_strangers_arguments_are_trusted_no_more_than_the_code_that_gets_them(reach, tmp_path):
    """The user trusts Reach(goal=3); a run of somebody else asks the same code for something else."""
    trust_task(f"{reach}?goal=3")
    require_trusted(f"{reach}?goal=3", tmp_path / "run")
    for theirs in (reach, f"{reach}?goal=4", f"{reach}?goal=3&note=x"):
        with pytest.raises(UsageError, match="if you know and trust that code"):
            require_trusted(theirs, tmp_path / "run")


def test_a_file_that_arguments_name_is_trusted_as_code_is(reach, tmp_path):
    """Also of Gymnasium's own tasks: a model may be anybody's."""
    (tmp_path / "ant.xml").write_text("<mujoco/>")
    task = "Ant-v5?xml_file=./ant.xml"
    with pytest.raises(UsageError, match=r"wants to run .* of .*ant.xml"):
        require_trusted(task, tmp_path / "run")
    with pytest.raises(UsageError, match="contains the code of its own"):
        require_trusted(task, tmp_path)
    trust_task(task)
    require_trusted(task, tmp_path / "run")
    (tmp_path / "ant.xml").write_text("<mujoco><!-- another --></mujoco>")
    with pytest.raises(UsageError, match="has changed since you trusted it"):
        require_trusted(task, tmp_path / "run")
    require_trusted("Ant-v5?ctrl_cost_weight=0.1", tmp_path / "run")  # numbers run nothing


def test_worker_processes_build_the_same(reach):
    def first(processes):
        vector = envs.make_vector(f"{reach}?goal=7", seeds=[0], envs=2, processes=processes)
        try:
            return vector.obs.tolist()
        finally:
            vector.close()

    assert first(0) == first(1) == [[[7.0], [7.0]]]


def test_gymnasium_knows_the_names_used_here():
    assert {"Pendulum-v1", "Ant-v5", "HalfCheetah-v5"} <= set(gym.registry)
