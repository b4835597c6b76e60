"""Agents, recipes and studies of one's own, by the name of their file: used as those of the package are."""

import dataclasses
import json
from pathlib import Path
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
from own_code import own_home
import pytest

import fcritic
from fcritic import code
from fcritic.agents import recipes
from fcritic.agents.critic_ensemble import values
from fcritic.agents.recipes import find_recipe
from fcritic.agents.td3 import TD3
from fcritic.api.trust import config_of
from fcritic.cli.dispatch import run
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.runs.directory import RunDirectory
from fcritic.runs.fingerprint import fingerprint
from fcritic.study import catalog
from fcritic.study.execute import begin, progress
from fcritic.types import EnvSpec, Transition

__all__ = ["own_home"]

EXAMPLE = Path(__file__).parents[1] / "examples" / "mean_target.py"
EVERY = ["--warmup", "20", "--eval-every", "30", "--log-every", "30", "--save-every", "30"]
SIZES = [*EVERY, "--batch-size", "5", "--actor-hidden", "8", "--critic-hidden", "9"]
SMALL = {"warmup": 20, "eval_every": 30, "batch_size": 5, "actor_hidden": (8,), "critic_hidden": (9,)}
MINE = "mean_target.py:MeanTarget"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with the example, and this program's own list of algorithms."""
    monkeypatch.setattr(recipes, "ALGORITHMS", dict(recipes.ALGORITHMS))
    monkeypatch.setattr("fcritic.config.ALGORITHMS", recipes.ALGORITHMS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "place"
    folder.mkdir()
    shutil.copy(EXAMPLE, folder)
    monkeypatch.chdir(folder)
    return folder


def forget():
    """As in another program."""
    for name in [name for name in recipes.ALGORITHMS if ":" in name]:
        del recipes.ALGORITHMS[name]
    code._run_file.cache_clear()


def test_the_changed_target_is_the_mixture_by_hand(place):
    agent = dataclasses.replace(find_recipe("mean_target.py:HALF"), actor_hidden=(4,), critic_hidden=(4,))
    state = agent.init(EnvSpec(2, 1), jax.random.key(0))
    obs = jnp.array([[0.3, -1.0], [2.0, 0.5]])
    batch = Transition(obs, jnp.zeros((2, 1)), jnp.zeros(2), jnp.ones(2), obs)
    each = np.asarray(values(state.targets, obs, jax.vmap(state.target_actor)(obs)))
    assert np.abs(each[0] - each[1]).min() > 1e-4
    expected = 0.5 * each.mean(axis=0) + 0.5 * each.min(axis=0)
    np.testing.assert_allclose(agent.next_value(state, batch, jax.random.key(1)), expected, rtol=1e-5)


def test_an_own_agent_is_trained_continued_evaluated_exported_and_loaded(place, capsys):
    """By command, each command as in a program of its own; a stop and a resume change no bit."""
    train = ["train", "--recipe", MINE, "--pessimism", "0.25", "--task", "probe-both", *SIZES]
    assert run([*train, "--steps", "60", "--out", "whole", "--quiet"]) == 0
    assert run([*train, "--steps", "30", "--out", "parts", "--quiet"]) == 0
    forget()
    assert run(["resume", "parts", "--steps", "60", "--quiet"]) == 0
    assert fingerprint(place / "parts") == fingerprint(place / "whole")
    stored = json.loads((place / "parts" / "config.json").read_text())
    assert (stored["recipe"], stored["algorithm"], stored["agent"]["pessimism"]) == (MINE, MINE, 0.25)
    capsys.readouterr()
    for words in (
        ["evaluate", "parts", "--episodes", "1", "--json"],
        ["export", "parts", "--out", "given", "--json"],
    ):
        forget()
        assert run(words) == 0 and json.loads(capsys.readouterr().out)
    forget()
    given, own = fcritic.load("given"), fcritic.load("parts")
    assert type(given.config.agent).__name__ == "MeanTarget" and given.config.agent.pessimism == 0.25
    assert given.act(np.ones(1)) == own.act(np.ones(1))


def test_a_stranger_cannot_have_an_agent_run_that_its_user_has_not_named(place, tmp_path, capsys):
    config = fcritic.configure(MINE, "probe-both").to_json()
    RunDirectory.create_or_open("run", config, "test").close()
    folder = RunDirectory.open_existing("run")
    forget()
    mark = "from pathlib import Path\nPath('executed').touch()\n"
    (place / "mean_target.py").write_text(mark + EXAMPLE.read_text())
    for words in (["resume", "run"], ["evaluate", "run"], ["export", "run", "--out", "x"], ["replay", "run"]):
        assert run(words) == 2
        said = capsys.readouterr().err
        file = place / "mean_target.py"
        assert said.count("\n") == 1 and f"run wants to run {MINE} of {file}; if you know and trust" in said
        assert said.endswith(f"fcritic describe --recipe {MINE}\n") and not (place / "executed").exists()
    with pytest.raises(UsageError, match="wants to run"):
        fcritic.load("run")
    assert run(["describe", "--recipe", MINE, "--task", "probe-both", "--json"]) == 0
    assert config_of(folder).agent == find_recipe(MINE) and (place / "executed").exists()
    with (place / "mean_target.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(UsageError, match=r"mean_target\.py has changed since you trusted it; .* describe --recipe"):
        config_of(folder)
    shutil.copy(place / "mean_target.py", place / "run" / "mine.py")
    (place / "run" / "config.json").write_text(json.dumps(config | {"algorithm": "run/mine.py:MeanTarget"}))
    assert run(["describe", "--recipe", "run/mine.py:MeanTarget", "--task", "probe-both", "--json"]) == 0
    with pytest.raises(UsageError, match=r"run contains the code of its own recipe, .*mine\.py"):
        config_of(folder)


def test_the_name_of_a_recipe_is_a_label_that_is_never_run(place):
    """A run can call itself what it likes; training on with its configuration trusts nothing new."""
    stored = fcritic.configure("td3", "probe-both", **SMALL, steps=30).to_json() | {"recipe": "pytest:main"}
    RunDirectory.create_or_open("run", stored, "test").close()
    config = config_of(RunDirectory.open_existing("run"))
    assert config.recipe == "pytest:main" and type(config.agent) is TD3
    fcritic.train_agent(config, out="again", quiet=True)
    assert not (place.parent / "config").exists()


def test_a_class_an_agent_and_a_function_are_recipes_in_python(place):
    found = code.find(MINE)
    config = fcritic.configure(found, "probe-both", pessimism=0.75, **SMALL, steps=30)
    assert (config.recipe, config.algorithm, config.agent.pessimism) == (MINE, MINE, 0.75)
    assert fcritic.configure(found(pessimism=0.1), "probe-both").agent.pessimism == 0.1
    assert fcritic.configure("mean_target.py:HALF").algorithm == "mean_target.py:HALF"
    assert TrainConfig.of(TD3).recipe == "td3"
    agent = fcritic.train_agent(config, out="run", quiet=True)
    assert agent.frame == 30
    forget()
    assert fcritic.load("run").config == dataclasses.replace(config, agent=fcritic.load("run").config.agent)
    (place / "elsewhere").mkdir()
    (place / "mean_target.py").rename(place / "elsewhere" / "target.py")
    forget()
    with pytest.raises(UsageError, match=r"run names the recipe mean_target\.py:MeanTarget, but there is no file"):
        fcritic.load("run")
    moved = fcritic.load("run", recipe="elsewhere/target.py:MeanTarget")
    assert moved.act(np.ones(1)) == agent.act(np.ones(1))

    @dataclasses.dataclass(frozen=True)
    class Nameless(TD3):
        """No other program can find it."""

    assert fcritic.configure(Nameless, "probe-both").algorithm == "Nameless" and "Nameless" in recipes.ALGORITHMS


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mean_target.py:MeanTraget", "mean_target.py has no MeanTraget; did you mean MeanTarget?"),
        ("mean_target.py:HAFL", "mean_target.py has no HAFL; did you mean HALF?"),
        ("absent.py:Mine", "there is no file"),
        ("mean_target.py:STUDY", "mean_target.py:STUDY is a Comparison; name an agent, its class or a function"),
        ("odd.py:Plain", "Plain is not a dataclass; put @dataclasses.dataclass(frozen=True) above it"),
        (
            "odd.py:broken",
            "odd.py:broken cannot make its agent: ZeroDivisionError: division by zero (odd.py, line 6)",
        ),
    ],
)
def test_a_mistake_in_the_name_is_one_line(place, name, words, capsys):
    odd = "from fcritic.agents.td3 import TD3\nclass Plain(TD3):\n    pass\n\ndef broken():\n    1 / 0\n"
    (place / "odd.py").write_text(odd)
    assert run(["train", "--recipe", name]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_a_study_has_a_name_in_its_file_and_trusts_what_it_names(place):
    study, file = catalog.load("mean_target.py")
    assert catalog.load("mean_target.py:STUDY")[0] is study and file == place / "mean_target.py"
    with pytest.raises(UsageError, match=r"mean_target\.py has no STUDIES; end it with STUDIES = Comparison"):
        catalog.load("mean_target.py:STUDIES")
    (todo,) = progress(study.runs, place / "runs", ("half",))
    assert todo.run.config().agent.pessimism == 0.5
    begin(todo)
    forget()
    assert config_of(RunDirectory.open_existing(todo.path)).agent.pessimism == 0.5
