"""Configurations on disk: those of earlier versions, and those that somebody made up."""

import dataclasses
import json

import pytest

from fcritic import config
from fcritic.agents.fac import Explore
from fcritic.agents.recipes import find_recipe
from fcritic.config import INERT, TrainConfig
from fcritic.errors import UsageError


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
