"""Configurations on disk: those of earlier versions, and those that somebody made up."""

import dataclasses
import json

import pytest

import fcritic
from fcritic import config
from fcritic.agents import recipes
from fcritic.agents.fac import Explore
from fcritic.agents.recipes import find_recipe
from fcritic.agents.td3 import TD3
from fcritic.api.trust import config_of
from fcritic.config import INERT, TrainConfig
from fcritic.errors import UsageError
from fcritic.runs.directory import RunDirectory


def stored(**agent):
    """What `config.json` holds of a small agent, with changes of the agent's fields."""
    data = json.loads(json.dumps(TrainConfig.of("fac-small", task="probe-both").to_json()))
    encoder = data["agent"]["encoder"] | agent.pop("encoder", {})
    return data | {"agent": data["agent"] | agent | {"encoder": encoder}}


def test_an_old_config_loads_where_its_retired_options_meant_nothing(monkeypatch):
    monkeypatch.setitem(config.RETIRED, "FAC", {"halo": "none", "halo_size": INERT, "shape": (1, 2), "glow": 0.0})
    monkeypatch.setitem(config.RETIRED, "EncoderConfig", {"tilt": True})
    today = TrainConfig.from_json(stored())
    old = {"halo": "none", "halo_size": 7, "shape": [1, 2], "glow": 0, "encoder": {"tilt": True}}
    assert TrainConfig.from_json(stored(**old)) == today
    assert TrainConfig.from_json(stored(halo="none")) == today  # one that did not exist yet


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ({"halo": "wide"}, "agent.halo, here 'wide'"),
        ({"glow": True}, "agent.glow, here True"),
        ({"encoder": {"tilt": 1}}, "agent.encoder.tilt, here 1"),
    ],
)
def test_a_retired_option_that_mattered_is_named_with_the_version_that_has_it(monkeypatch, agent, name):
    monkeypatch.setitem(config.RETIRED, "FAC", {"halo": "none", "glow": 1.0})
    monkeypatch.setitem(config.RETIRED, "EncoderConfig", {"tilt": True})
    with pytest.raises(UsageError) as error:
        TrainConfig.from_json(stored(**agent))
    assert str(error.value) == (
        f"config.json: the option {name}, is retired; version 0.1.0 has it, "
        f"at its lab-notebook commit {config.NOTEBOOK}"
    )


def test_an_option_that_moved_to_a_group_is_found_there(monkeypatch):
    monkeypatch.setitem(config.MOVED, "FAC", {"probe_count": "encoder.probes", "rate": "learning_rate"})
    old = stored(probe_count=7, rate=0.5)
    del old["agent"]["encoder"]["probes"], old["agent"]["learning_rate"]
    read = TrainConfig.from_json(old).agent
    assert (read.encoder.probes, read.learning_rate) == (7, 0.5)
    assert "probes" not in old["agent"]["encoder"]  # what was given stays as it was
    with pytest.raises(UsageError, match=r"unknown field agent\.probe_count"):
        monkeypatch.setitem(config.MOVED, "FAC", {})
        TrainConfig.from_json(old)


def test_a_run_of_version_0_1_0_loads_with_what_it_explored_by():
    """All retired options at values that change nothing, and the options of exploring under their old names."""
    explored = {"exploration_noise": 0.2, "exploration_memory": 0.5, "rollout_actors": 2, "per_step_actor": True}
    gone = {"encoder_learning_rate": None, "adam_epsilon": 1e-8, "actor_states": "current", "targets": "own"}
    gone |= {"neighbours": "none", "neighbour_scale": 0.1, "neighbour_rate": 0.005, "action_noise": 0.0}
    encoder = {"places": "learned", "pooling": "summary", "activation": "relu", "norm_first": True}
    old = stored(mask_probability=1.0, **explored, **gone, encoder=encoder | {"probe_init": "normal"})
    del old["agent"]["explore"]
    expected = dataclasses.replace(find_recipe("fac-small"), explore=Explore(0.2, 0.5, 2, True))
    assert TrainConfig.from_json(old).agent == expected


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ({"neighbours": "path"}, "the option agent.neighbours, here 'path',"),
        ({"encoder": {"pooling": "mean"}}, "the option agent.encoder.pooling, here 'mean',"),
        ({"pairing": "permuted"}, "the value 'permuted' of agent.pairing"),
    ],
)
def test_a_run_of_version_0_1_0_that_used_a_retired_option_is_refused_by_its_name(agent, name):
    with pytest.raises(UsageError) as error:
        TrainConfig.from_json(stored(**agent))
    assert str(error.value).startswith(f"config.json: {name} is retired; version 0.1.0 has it")


# Algorithms of one's own


@pytest.fixture
def own(monkeypatch):
    """An algorithm that nobody has registered."""
    monkeypatch.setattr(recipes, "ALGORITHMS", recipes.ALGORITHMS)
    monkeypatch.setitem(recipes.ALGORITHMS, "Mine", None)
    del recipes.ALGORITHMS["Mine"]

    @dataclasses.dataclass(frozen=True)
    class Mine(TD3):
        boldness: float = 0.5

    return Mine


def test_an_own_algorithm_is_refused_before_training_with_the_line_that_registers_it(own, tmp_path):
    mine = TrainConfig(own(boldness=0.7), task="probe-both")
    with pytest.raises(UsageError, match=r"register it before training: fcritic\.register\(Mine\)"):
        fcritic.train_agent(mine, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    assert fcritic.register(own) is own
    RunDirectory.create_or_open(tmp_path / "run", mine.to_json(), "test").close()
    run = RunDirectory.open_existing(tmp_path / "run")
    assert config_of(run) == mine
    del recipes.ALGORITHMS["Mine"]  # as in another program
    with pytest.raises(UsageError, match=r"unknown algorithm 'Mine'; if it is yours, call fcritic\.register"):
        config_of(run)


def test_a_class_that_cannot_be_an_algorithm_is_not_registered(own):
    fcritic.register(own)
    fcritic.register(own)
    with pytest.raises(UsageError, match="FAC is not a dataclass"):
        fcritic.register(type("FAC", (TD3,), {}))
    with pytest.raises(UsageError, match=r"there is an algorithm FAC in .*; give yours another name"):
        fcritic.register(dataclasses.dataclass(frozen=True)(type("FAC", (TD3,), {})))


def test_an_option_that_json_cannot_hold_is_refused_before_training(own):
    @dataclasses.dataclass(frozen=True)
    class Odd(own):
        schedule: object = len

    Odd.__name__ = "Mine"
    recipes.ALGORITHMS["Mine"] = Odd
    with pytest.raises(UsageError, match=r"an option of Mine cannot be kept in config\.json: .*not JSON serial"):
        TrainConfig(Odd(), task="probe-both").to_json()
