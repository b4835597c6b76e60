"""Configurations on disk: those of earlier versions, and those that somebody made up."""

import dataclasses
import json
import math
import subprocess
import sys

import jax
import pytest

from benchmarks import own_environment
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
from fcritic.training.saving import learning_of, shapes_of
from fcritic.types import EnvSpec


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


# Numbers and names that nobody means

HOSTILE = [
    *(10**400, -(10**400), 2**31, -1, 1e308, -1e308, math.nan, math.inf),
    *("nan", "x\0", "\ud800", "\x1b[2J", "9" * 5000, None, True, [], {}, {"a": {}}),
    *([1] * 70, [10**400], [10**6], [True], ["x"], [1e308, 1e308], [math.nan, math.nan]),
]


def places(data, before=()):
    for name, value in data.items():
        yield (*before, name)
        if isinstance(value, dict):
            yield from places(value, (*before, name))


@pytest.mark.parametrize("recipe", ["fac-small", "fsac-small", "sac", "td3"])
def test_whatever_a_file_holds_there_is_a_config_or_one_line(recipe):
    text = json.dumps(TrainConfig.of(recipe).to_json())
    refused = 0
    for *groups, name in places(json.loads(text)):
        for value in HOSTILE:
            data = owner = json.loads(text)
            for group in groups:
                owner = owner[group]
            owner[name] = value
            try:
                assert math.isfinite(TrainConfig.from_json(data).iterations), (name, value)
            except UsageError as error:
                refused += 1
                assert str(error).isprintable() and len(str(error)) < 1000, (name, value)
    assert refused > 600


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"seeds": 10_000}, "--seeds must be at most 1,000, not 10000"),
        ({"seeds": 1000, "envs": 100}, "--envs times --seeds must be at most 10,000, not 100,000"),
        ({"env_timeout": 1e308}, "--env-timeout must be at most 1,000,000.0, not 1e+308"),
        ({"steps": 10**15}, "--steps must be at most 2,147,483,647 here"),
        ({"steps": 10**400}, "steps cannot be 2^1328"),
        ({"task": "x\0"}, r"task cannot be 'x\x00'"),
        ({"agent": {"actor_last_scale": 1e308}}, "--actor-last-scale must be at most"),
        ({"agent": {"actor_hidden": [10**9]}}, "--actor-hidden must be at most 16,384, not 1e+09"),
        ({"agent": {"actor_hidden": [8] * 65}}, "--actor-hidden must be at most 64 numbers, not 65"),
        ({"agent": {"auto_on_gpu": "float32"}}, "unknown field agent.auto_on_gpu"),
        ({"agent": {"encoder": {"probes": 10**6}}}, "--encoder.probes must be at most 16,384"),
    ],
)
def test_sizes_that_no_run_has_are_refused_by_name(fields, words):
    data = stored(**fields.pop("agent", {}))
    with pytest.raises(UsageError) as error:
        TrainConfig.from_json(data | fields)
    assert words in str(error.value)


def test_numbers_of_python_are_held_to_the_same_limits():
    for options in ({"steps": -(10**400)}, {"batch_size": 10**400}, {"actor_hidden": (10**400,)}):
        with pytest.raises(UsageError, match=r"must be at (least|most)"):
            fcritic.configure("fac-small", "probe-both", **options)


BIG = [
    {"actor_hidden": [10**9]},
    {"actor_hidden": [16384] * 64},
    {"members": 40, "actor_hidden": [8192, 8192]},
    {"batch_size": 2**20, "critic_steps": 1000, "cycles": 1000},
    {"encoder": {"probes": 16384, "tokens": "probes", "heads": 32, "width": 4096}},
]

MEASURED = """
import sys, time
from benchmarks.attacks.memory import peak_mb
from fcritic.cli.dispatch import run
before = time.monotonic()
codes = [run(["resume", path]) for path in sys.argv[1:]]
took = time.monotonic() - before
print(codes, took, peak_mb())
"""


def test_sizes_are_refused_before_memory_is_asked_for(tmp_path):
    """The largest numbers that pass one by one, together: what they need is compared with what is free."""
    for number, agent in enumerate([*BIG, {}]):
        (tmp_path / str(number)).mkdir()
        data = stored(**agent) | ({} if agent else {"seeds": 10_000})
        (tmp_path / str(number) / "config.json").write_text(json.dumps(data))
    paths = sorted(map(str, tmp_path.iterdir()))
    environment = own_environment() | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", MEASURED, *paths]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    codes, took, peak = done.stdout.rsplit(maxsplit=2)
    assert codes == str([2] * len(paths)) and done.stderr.count("\n") == len(paths), done.stderr
    assert float(took) < 20 * len(paths) and float(peak) < 2000


def test_shapes_of_many_seeds_are_those_of_one_with_an_axis(tiny):
    learning = learning_of(TrainConfig(tiny, task="probe-both", replay=7), EnvSpec(3, 2))
    known, whole = shapes_of(learning, 2), jax.eval_shape(learning.start, [4, 5])
    assert jax.tree.structure(known) == jax.tree.structure(whole)
    pairs = zip(jax.tree.leaves(known), jax.tree.leaves(whole), strict=True)
    assert all((one.shape, one.dtype) == (two.shape, two.dtype) for one, two in pairs)
