"""Tasks that are a user's own code: by name, by file, as a callable, as a vector."""

import dataclasses
import os
import signal
import sys
import threading

import gymnasium
import numpy as np
from own_code import CODE, code, own_home
import pytest

import fcritic
from fcritic import envs
from fcritic.cli.dispatch import run
from fcritic.errors import UsageError
from fcritic.logs.metrics import read_rows
from fcritic.training.loop import train

__all__ = ["code", "own_home"]

SIZES = {"steps": 60, "warmup": 20, "replay": 60, "eval_every": 30, "batch_size": 5} | {
    "actor_hidden": (8,),
    "critic_hidden": (9,),
}


def pendulum():
    return gymnasium.make("Pendulum-v1", max_episode_steps=10)


def many(num_envs, mode=gymnasium.vector.AutoresetMode.NEXT_STEP):
    make = lambda: gymnasium.make("Pendulum-v1", max_episode_steps=10)
    return gymnasium.vector.SyncVectorEnv([make] * num_envs, autoreset_mode=mode)


class Counting(envs.ProbeEnv):
    """An environment by fcritic's own interface."""

    def __init__(self):
        super().__init__("delay", seed=0)


def episode_length(env: envs.AbstractEnv) -> int:
    env.reset()
    return next(length for length in range(1, 100) if env.step(np.zeros(env.spec.act_dim)).last)


def test_a_function_in_a_module_or_a_file_is_a_task(code, monkeypatch):
    by_file = f"{code}/my_robots.py:Robots.pendulum"
    assert episode_length(envs.make(by_file, seed=0)) == 7
    monkeypatch.syspath_prepend(str(code))
    env = envs.make("my_robots:Robots.pendulum", seed=3, action_repeat=2)
    assert env.name == "my_robots:Robots.pendulum" and episode_length(env) == 4
    reference = envs.make("Pendulum-v1", seed=3)
    np.testing.assert_array_equal(envs.make(by_file, seed=3).reset(), reference.reset())
    assert (
        envs.make("benchmarks.attacks.sick:Walk-v0", seed=0).spec.obs_dim == 3
    )  # Gymnasium's own form still works


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my_robots.py:Robots.pendulm", "has no Robots.pendulm"),
        ("my_robots.py:mny", "did you mean many?"),
        ("my_robots.py:number", "is a int; name a function or class"),
        ("my_robots.py:broken", "ZeroDivisionError: division by zero (my_robots.py, line 14)"),
        ("absent.py:make", "there is no file"),
    ],
)
def test_a_mistake_in_the_name_is_one_line(code, name, words):
    with pytest.raises(UsageError) as error:
        envs.make(f"{code}/{name}", seed=0)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_was_changed_is_run_again_and_its_functions_keep_their_name(code, monkeypatch):
    monkeypatch.chdir(code)
    task = "my_robots.py:Robots.pendulum"
    assert envs.name_of(envs.own.find_factory(task)) == task
    (code / "my_robots.py").write_text(CODE.replace("max_episode_steps=LENGTH", "max_episode_steps=5"))
    os.utime(code / "my_robots.py", ns=(1, 1))
    assert episode_length(envs.make(task, seed=0)) == 5


def test_modules_that_are_absent_or_fail_are_told(code, monkeypatch):
    monkeypatch.syspath_prepend(str(code))
    (code / "fails.py").write_text("import beside\n\nbeside.missing\n")
    (code / "needs.py").write_text("import not_installed_anywhere\n")
    with pytest.raises(UsageError, match="there is no module nowhere"):
        envs.make("nowhere:make", seed=0)
    with pytest.raises(UsageError, match=r"importing fails failed: AttributeError.*\(fails.py, line 3\)"):
        envs.make("fails:make", seed=0)
    with pytest.raises(UsageError, match=r"importing needs failed: .*not_installed_anywhere"):
        envs.make("needs:make", seed=0)


def test_a_callable_is_recorded_by_its_name_where_it_has_one():
    assert envs.name_of(pendulum) == f"{__name__}:pendulum"
    assert envs.name_of(Counting) == f"{__name__}:Counting"
    nameless = lambda: pendulum()
    name = envs.name_of(nameless)
    assert name.startswith("given:") and episode_length(envs.make(name, seed=0)) == 10
    with pytest.raises(UsageError, match="a task is a name or a callable"):
        envs.name_of(7)
    env = envs.make(envs.name_of(Counting), seed=5)
    assert isinstance(env, Counting) and env.state()["place"][0] == 5
    with pytest.raises(UsageError, match="leave --action-repeat at 1"):
        envs.make(envs.name_of(Counting), seed=5, action_repeat=2)
    with pytest.raises(UsageError, match="which is not an environment"):
        envs.make(envs.name_of(lambda: "robot"), seed=0)
    with pytest.raises(UsageError, match="cannot be sent to worker processes"):
        envs.make_vector(name, seeds=[0], envs=1, processes=1)


def test_an_agent_is_trained_continued_and_loaded_on_a_callable(tmp_path):
    """Also in a thread, where no signal can be handled; and without the callable there is one clear line."""
    robot = lambda: pendulum()
    out = tmp_path / "run"
    with pytest.warns(UserWarning, match="has no name to import it by"):
        agent = fcritic.train_agent("td3", robot, out, quiet=True, **SIZES)
    assert agent.frame == 60 and agent.directory == out and agent.act(np.zeros(3)).shape == (1,)
    later = []
    work = lambda: later.append(fcritic.train_agent("td3", robot, out, quiet=True, **SIZES | {"steps": 80}))
    thread = threading.Thread(target=work)
    with pytest.warns(UserWarning, match="has no name to import it by"):
        thread.start()
        thread.join()
    assert later[0].frame == 80
    assert {row["length"] for row in read_rows(out / "metrics.jsonl") if row["kind"] == "episode"} == {10}
    envs.own._given.clear()  # as in another program
    with pytest.raises(UsageError, match="was a callable of the program that trained"):
        fcritic.load(out)
    assert fcritic.load(out, task=pendulum).config.task == f"{__name__}:pendulum"


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode))
def test_a_vector_environment_trains_in_every_mode_alike(mode, tmp_path, monkeypatch):
    """Two seeds of two sub-environments, as a factory with `num_envs`: the same as single environments."""
    monkeypatch.setitem(sys.modules, "vectors", type(sys)("vectors"))
    sys.modules["vectors"].make = lambda num_envs: many(num_envs, mode)
    config = fcritic.configure(
        "td3", "vectors:make", seeds=2, envs=2, **{k: v for k, v in SIZES.items() if k != "quiet"}
    )
    run = train(config, tmp_path / "vector", quiet=True)
    single = train(dataclasses.replace(config, task=f"{__name__}:pendulum"), tmp_path / "single", quiet=True)
    told = [[row | {"seconds": 0} for row in read_rows(each.metrics.path)] for each in (run, single)]
    assert [row["kind"] for row in told[0]] == [row["kind"] for row in told[1]]
    episodes = [[row for row in rows if row["kind"] == "episode"] for rows in told]
    assert len(episodes[0]) >= 10 and episodes[0] == episodes[1]


def test_what_a_vector_environment_cannot_do_is_said():
    task = f"{__name__}:many"
    with pytest.raises(UsageError, match="leave out --action-repeat"):
        envs.make_vector(task, seeds=[0], envs=2, action_repeat=2)
    with pytest.raises(UsageError, match="a single one is asked for"):
        envs.make(task, seed=0)
    stubborn = lambda num_envs: many(3)
    with pytest.raises(UsageError, match="was asked for 2 sub-environments"):
        envs.make_vector(envs.name_of(stubborn), seeds=[0], envs=2)
    alone = lambda: many(1)
    with pytest.raises(UsageError, match="let it take num_envs"):
        envs.make(envs.name_of(alone), seed=0)


def test_options_are_those_of_the_command_line():
    config = fcritic.configure("fac-small", "Pendulum-v1", members=2, encoder={"probes": 8}, steps=100)
    assert (config.agent.members, config.agent.encoder.probes, config.steps) == (2, 8, 100)
    assert config.agent.encoder.depth == fcritic.find_recipe("fac-small").encoder.depth
    again = fcritic.configure(config, envs=3)
    assert again.envs == 3 and again.agent == config.agent
    for wrong, words in [
        ({"stps": 3}, "unknown option stps; did you mean steps"),
        ({"encoder": {"probe": 3}}, "unknown option probe; did you mean probes"),
        ({"steps": "many"}, "steps cannot be 'many'"),
        ({"members": 1.5}, "members cannot be 1.5"),
        ({"discount": 1.5}, "discount must be in"),
    ]:
        with pytest.raises(UsageError, match=words):
            fcritic.configure("fac-small", **wrong)


class Impatient(gymnasium.Wrapper):
    """Its user presses Ctrl-C at the 30th step."""

    pressed = 0

    def __init__(self):
        super().__init__(gymnasium.make("Pendulum-v1", max_episode_steps=10))

    def step(self, action):
        Impatient.pressed += 1
        if Impatient.pressed == 30:
            signal.raise_signal(signal.SIGINT)
        return super().step(action)


def test_an_interrupt_saves_and_the_same_call_goes_on(tmp_path):
    options = SIZES | {"eval_every": 1000, "quiet": True}
    with pytest.raises(KeyboardInterrupt, match="stopped at frame 30 and saved"):
        fcritic.train_agent("td3", Impatient, tmp_path / "run", **options)
    assert fcritic.load(tmp_path / "run").frame == 30
    assert fcritic.train_agent("td3", Impatient, tmp_path / "run", **options).frame == 60


@pytest.mark.parametrize("line", [["check"], ["train", "--task"], ["train", "--recipe"]])
def test_a_file_without_a_factory_is_answered_with_what_is_in_it(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cart.py").write_text("open('ran', 'w')\nclass Cart: pass\ndef make(): pass\ndef _own(): pass\n")
    (tmp_path / "torn.py").write_text("def make(:")
    what = "agent" if "--recipe" in line else "factory"
    for name, says in (
        ("cart.py", f"cart.py is a file; name the {what}: cart.py:make; it has Cart, make"),
        ("torn.py", f"torn.py is a file; name the {what}: torn.py:name"),
        ("none.py", "there is no file"),
    ):
        assert run([*line, name]) == 2
        assert says in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
