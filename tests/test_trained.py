"""A loaded agent: its actions in the task's units, and what it refuses to load."""

import dataclasses
import json
import shutil

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from pendulum_agents import TASK, agent_of, obs
import pytest

import fcritic
from fcritic import ensembles, envs
from fcritic.config import TrainConfig
from fcritic.envs.base import ActionRange
from fcritic.errors import CheckpointError, UsageError
from fcritic.runs.directory import RunDirectory
from fcritic.training.loop import Training
from fcritic.training.replay import Normalizer

__all__ = ["obs"]

SEEN = Normalizer(jnp.array([[0.1, -0.2, 0.5]] * 2), jnp.array([[0.3, 0.5, 9.0]] * 2), jnp.array([7, 7]))
EARLIER = Normalizer(jnp.array([[0.3, -0.1, 0.7]] * 2), jnp.array([[0.5, 0.4, 4.0]] * 2), jnp.array([5, 5]))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Seeds 3 and 4 on the pendulum: nothing learned, but all saved as a training does, with an earlier best."""
    out = tmp_path_factory.mktemp("trained") / "run"
    numbers = {"seeds": 2, "seed": 3, "steps": 60, "warmup": 60, "replay": 60}
    config = TrainConfig(agent_of("fac"), task=TASK, **numbers)
    with RunDirectory.create_or_open(out, config.to_json(), "test") as directory:
        training = Training.begin(config, directory, quiet=True)
        training.advance(20)
        training.device.flush()
        state = eqx.tree_at(lambda s: s.normalizer, training.device.state, SEEN)
        training.device.put(state, training.device.memory)
        halved = jax.tree.map(lambda leaf: 0.5 * leaf, jax.vmap(config.agent.evaluation_policies)(state.agent))
        training.best = training.best.improved(halved, EARLIER, np.array([1.0, 1.0]), 10)
        training.save()
        training.close()
    return out


def test_a_loaded_agent_acts_as_its_policy_does_in_the_loop(run, obs):
    agent = fcritic.load(run, seed=4, actor=1)
    assert (agent.seed, agent.frame, agent.actors, agent.spec.obs_dim) == (4, 20, 3, 3)
    policies, normalizer, _ = fcritic.training.saving.load_policies(agent.config, next(run.glob("checkpoints/*")))
    seen = ensembles.member(normalizer, 1)
    for number in (0, 2):
        by_hand = 2 * jax.jit(jax.vmap(lambda p, s: p(seen(s)), (None, 0)))(
            ensembles.member(policies, (1, number)), obs
        )
        np.testing.assert_allclose(agent.act(obs, number), by_hand, rtol=1e-5)
    np.testing.assert_allclose(agent.act(obs), agent.act(obs, 1))
    np.testing.assert_allclose(agent.act(obs[2]), agent.act(obs)[2], rtol=1e-6)
    assert not np.allclose(agent.act(obs), fcritic.load(run, seed=3, actor=1).act(obs))
    environment = gymnasium.make(TASK)
    assert environment.action_space.contains(agent.act(environment.reset(seed=0)[0]))


def test_actions_reach_the_simulator_in_its_units(run):
    """The loop's environment with the policy's action goes where the bare one goes with the agent's."""
    agent = fcritic.load(run)
    inner, bare = envs.make(TASK, seed=11), gymnasium.make(TASK)
    seen, raw = inner.reset(), bare.reset(seed=11)[0]
    np.testing.assert_array_equal(seen, raw)
    for _ in range(5):
        step = inner.step(np.asarray(agent.policy()(agent.normalizer(jnp.asarray(seen)))))
        raw, reward, *_ = bare.step(agent.act(raw))
        np.testing.assert_allclose(step.obs, raw, rtol=1e-5)
        assert step.reward == pytest.approx(reward, rel=1e-5)
        seen = step.obs


def test_the_best_policies_are_seen_through_their_own_normaliser(run, obs):
    """It is an affine map of the critics', so that the map can be put into the first layer instead."""
    agent, newest = fcritic.load(run, best=True), fcritic.load(run)
    policy, critics, earlier = agent.policy(0), ensembles.member(SEEN, 0), ensembles.member(EARLIER, 0)
    np.testing.assert_allclose(policy.network.layers[0].weight, 0.5 * newest.policy(0).network.layers[0].weight)
    deviation = lambda normalizer: np.sqrt(np.asarray(normalizer.variance) + 1e-6)
    scale = deviation(critics) / deviation(earlier)
    shift = (np.asarray(critics.mean) - np.asarray(earlier.mean)) / deviation(earlier)
    first = policy.network.layers[0]
    folded = eqx.tree_at(
        lambda p: (p.network.layers[0].weight, p.network.layers[0].bias),
        policy,
        (first.weight * scale[:, None], first.bias + shift @ first.weight),
    )
    np.testing.assert_allclose(agent.value(0, obs), newest.value(folded, obs), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(agent.act(obs, 0), newest.act(obs, folded), rtol=1e-4, atol=1e-6)


def test_action_ranges_go_both_ways():
    bounds = ActionRange(np.array([[-3.0, 0.0], [1.0, 5.0]]), np.array([[1.0, 10.0], [2.0, 5.0]]))
    own = np.array([[-1.0, 0.5, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    task = bounds.scale(own)
    np.testing.assert_allclose(task[0], [[-3.0, 7.5], [2.0, 5.0]])
    np.testing.assert_allclose(bounds.unscale(task), own)
    np.testing.assert_allclose(bounds.unscale(task[0]), own[0])
    np.testing.assert_allclose(bounds.scale(np.full(4, 9.0)), [[1.0, 10.0], [2.0, 5.0]])


def test_a_dict_of_observations_is_flattened_and_other_shapes_are_refused(run, obs):
    agent = fcritic.load(run)
    with pytest.raises(UsageError, match=r"has shape \(3,\), or one more axis, not \(4,\)"):
        agent.act(np.zeros(4))
    with pytest.raises(UsageError, match=r"here 4 of them, not \(2,\)"):
        agent.value(0, obs, np.zeros(2))
    cartpole = envs.task_units("cartpole-swingup")[1]
    assert cartpole.flatten({"position": np.arange(3.0), "velocity": np.arange(2.0)}).tolist() == [0, 1, 2, 0, 1]
    with pytest.raises(UsageError, match="this is not an observation of Pendulum-v1"):
        agent.act({"a": obs[0]})
    of_parts = dataclasses.replace(agent, units=dataclasses.replace(agent.units, obs_shape=None, flatten=list_of))
    np.testing.assert_allclose(of_parts.act({"a": obs[0]}), agent.act(obs[0]))


def list_of(parts: dict) -> np.ndarray:
    return np.concatenate(list(parts.values()))


def test_what_is_not_there_is_named(run, tmp_path):
    with pytest.raises(UsageError, match="has no seed 0; it has 3 to 4"):
        fcritic.load(run, seed=0)
    with pytest.raises(UsageError, match="no actor 3; this agent has actors 0 to 2"):
        fcritic.load(run, actor=3)
    with pytest.raises(UsageError, match="no critic -1; this agent has critics 0 to 2"):
        fcritic.load(run).gradient(0, np.zeros(3), critic=-1)
    with pytest.raises(UsageError, match="does not exist"):
        fcritic.load(tmp_path / "absent")
    shutil.copytree(run, tmp_path / "bare", ignore=shutil.ignore_patterns("checkpoints"))
    with pytest.raises(UsageError, match="has no checkpoint yet"):
        fcritic.load(tmp_path / "bare")


def test_a_checkpoint_of_another_shape_is_refused(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    config = json.loads((copy / "config.json").read_text())
    config["agent"]["joint_hidden"] = [99]
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="has shape"):
        fcritic.load(copy)


def test_a_run_that_brings_code_is_refused(run, tmp_path, monkeypatch):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"task": "brought_along:Task-v0"}))
    (copy / "brought_along.py").write_text("raise SystemExit('executed')")
    monkeypatch.chdir(copy)
    monkeypatch.syspath_prepend(str(copy))
    with pytest.raises(UsageError, match="brings the code of its own task"):
        fcritic.load(copy)
