"""A policy as an ONNX file acts as the agent does, in the task's units, without JAX."""

import json
from pathlib import Path
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcritic
from fcritic import ensembles
from fcritic.api.load import TrainedAgent
from fcritic.api.to_onnx import difference, encode
from fcritic.cli.dispatch import run as command
from fcritic.config import TrainConfig
from fcritic.envs.base import ActionRange, Units
from fcritic.errors import UsageError
from fcritic.networks.policies import DeterministicPolicy, FunctionPolicy, GaussianPolicy
from fcritic.offline.onnx_files import of_onnx
from fcritic.training.replay import Normalizer
from fcritic.types import EnvSpec

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
ROOT = Path(__file__).parents[1]
LOW, HIGH = np.array([[-2, 0], [5, -1]], np.float32), np.array([[2, 100], [5, 1]], np.float32)
"""Four actions in a square; the third has but one value."""
MEAN, VARIANCE = np.array([3.0, -1.0, 0.0, 50.0]), np.array([4.0, 1e-4, 1.0, 900.0])


def agent_of(policies, normalize=True, obs_shape=(2, 2)):
    config = TrainConfig.of("td3", task="a robot", action_repeat=2, normalize=normalize)
    normalizer = Normalizer(jnp.float32(MEAN), jnp.float32(VARIANCE), jnp.int32(9))
    units = Units(ActionRange(LOW, HIGH), obs_shape, np.ravel)
    policies = ensembles.stack_all(policies)
    return TrainedAgent(policies, None, normalizer, normalizer, config, EnvSpec(4, 4), units, 7, 640, Path())


def plain(key, **options):
    return DeterministicPolicy(4, (9, 8), 4, key=jax.random.key(key), last_scale=1.0, **options)


def gaussian(key):
    return GaussianPolicy(4, (9,), 4, key=jax.random.key(key), log_std_range=(-5.0, 2.0))


def observations(count=200):
    return np.float32(MEAN + np.sqrt(VARIANCE) * np.random.default_rng(1).normal(size=(count, 4)) * 5)


def by_hand(policy, obs, normalize=True):
    """What the policy does, computed in double precision."""
    x = np.float64(obs)
    if normalize:
        x = np.clip((x - np.float32(MEAN)) / np.sqrt(np.float32(VARIANCE) + 1e-6), -10, 10)
    for number, layer in enumerate(policy.network.layers):
        x = x @ np.float64(layer.weight) + np.float64(layer.bias)
        x = np.maximum(x, 0) if number < len(policy.network.layers) - 1 else x
    x = x[:, :4]
    reach = getattr(policy, "reach", None)
    if reach is not None:
        x = x / np.maximum(1, np.abs(x).mean(axis=1, keepdims=True) / reach)
    return (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * np.tanh(x).reshape(-1, 2, 2)


def answers(content, obs):
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(None, {"observation": obs.reshape(len(obs), *session.get_inputs()[0].shape[1:])})[0]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    "kind",
    [plain, lambda key: plain(key, reach=0.05), gaussian],
    ids=["deterministic", "with reach", "gaussian"],
)
def test_it_acts_as_the_agent_does_and_as_arithmetic_says(kind, normalize):
    agent, obs = agent_of([kind(0), kind(1)], normalize), observations()
    if not normalize:
        obs = obs / 50
    half = np.where(HIGH > LOW, (HIGH - LOW) / 2, 1)
    for actor in (0, 1):
        found = answers(encode(agent, actor), obs)
        assert found.shape == (200, 2, 2) and found.dtype == np.float32
        np.testing.assert_allclose(found / half, agent.act(obs, actor) / half, rtol=0, atol=1e-6)
        np.testing.assert_allclose(found / half, by_hand(kind(actor), obs, normalize) / half, rtol=0, atol=2e-6)
    assert np.ptp(found, axis=0).max() > 1  # it does not always do the same
    assert (np.abs(answers(encode(agent, 0), obs) - found) > 0.1).any()
    assert ((found >= LOW) & (found <= HIGH)).all()


def test_trained_policies_differ_by_the_rounding_of_single_precision():
    """Their preactivations are in the hundreds, and so are the digits that tanh cannot give back."""
    for name in ("Pendulum-v1", "cheetah-run"):
        agent = fcritic.load(ROOT / "trained" / name)
        assert difference(agent, encode(agent, 1), 1) < 1e-5


def test_a_difference_is_noticed():
    agent, other = agent_of([plain(0)]), agent_of([plain(1)])
    assert difference(agent, encode(agent)) < 1e-6 < 0.1 < difference(agent, encode(other))


def test_observations_of_several_parts_are_flat_and_the_file_says_what_it_is():
    content = encode(agent_of([plain(0), plain(1)], obs_shape=None), 1)
    session = onnxruntime.InferenceSession(content)
    assert session.get_inputs()[0].shape == ["batch", 4]
    facts = {"task": "a robot", "recipe": "td3", "seed": "7", "actor": "1", "frame": "640"}
    expected = facts | {"action_repeat": "2", "actions": "task"}
    assert session.get_modelmeta().custom_metadata_map == expected


def test_rank_reads_the_file_as_the_same_policy(tmp_path):
    agent, obs = agent_of([gaussian(3)]), observations()
    fcritic.to_onnx(agent, tmp_path / "policy.onnx")
    found = of_onnx(str(tmp_path / "policy.onnx"), agent.units).act(obs)
    wanted = agent.units.actions.unscale(agent.act(obs))
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_policy_of_ones_own_is_refused():
    own = FunctionPolicy(lambda params, obs: (params * obs,), jnp.ones(4))
    with pytest.raises(UsageError, match="of the kind FunctionPolicy cannot be written as ONNX"):
        encode(agent_of([own]))


def test_the_command_writes_a_file_that_the_example_uses_without_jax(tmp_path, capsys):
    file, trained = tmp_path / "policy.onnx", ROOT / "trained" / "Pendulum-v1"
    assert command(["export", str(trained), "--onnx", str(file), "--actor", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["actor"] == 2 and report["difference"] < 1e-5
    alone = (
        "import runpy, sys; sys.modules['jax'] = sys.modules['fcritic'] = None;"
        f"sys.argv = ['', {str(file)!r}]; runpy.run_path({str(ROOT / 'examples' / 'act_without_jax.py')!r})"
    )
    said = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, check=True).stdout
    torque = re.fullmatch(r"Pendulum-v1: \[(.*)\], to be held for 1 steps", said.splitlines()[-1])
    assert float(torque[1]) == pytest.approx(fcritic.load(trained).act(np.zeros(3), 2)[0], abs=1e-5)
    assert command(["export", str(trained), "--onnx", str(file)]) == 2
    assert "policy.onnx exists already; choose another --onnx" in capsys.readouterr().err


def test_the_best_actor_is_the_one_that_an_evaluation_of_now_numbers_as_the_highest(tmp_path, capsys):
    trained, rest = str(ROOT / "trained" / "Pendulum-v1"), ["--episodes", "2", "--json"]
    assert command(["evaluate", trained, *rest]) == 0
    (seed,) = json.loads(capsys.readouterr().out)["seeds"]
    highest = seed["actors"].index(max(seed["actors"]))
    assert highest > 0  # or this would show nothing
    assert command(["evaluate", trained, *rest[:2]]) == 0
    told = re.search(r"seed \d+ actors 0 to 3: (.*) \(highest: actor (\d)\)", capsys.readouterr().out)
    assert told[1] == ", ".join(f"{mean:.0f}" for mean in seed["actors"]) and int(told[2]) == highest
    file = tmp_path / "policy.onnx"
    assert command(["export", trained, "--onnx", str(file), "--actor", "best", *rest]) == 0
    assert json.loads(capsys.readouterr().out)["actor"] == highest
    assert difference(fcritic.load(trained), file.read_bytes(), highest) < 1e-5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "--out is missing: a folder for the agent, or --onnx with a file for one policy"),
        ("--out there --actor 2", "--seed, --actor and --best choose the policy of --onnx"),
        ("--onnx policy", "give --onnx a name that ends in .onnx"),
        ("--out there --actor best", "--seed, --actor and --best choose the policy of --onnx"),
        ("--onnx policy --actor best", "give --onnx a name that ends in .onnx"),
        ("--onnx a.onnx --actor bset", "--actor must be a whole number or best, not 'bset'"),
        ("--onnx a.onnx --actor 9", "there is no actor 9; this agent has actors 0 to 3"),
    ],
)
def test_a_mistake_is_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(["export", str(ROOT / "trained" / "Pendulum-v1"), *words.split()]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
