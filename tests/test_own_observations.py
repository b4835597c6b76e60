"""Observations of several parts from Python: one, a list of them, stacked ones; controllers get them as such."""

from pathlib import Path
import warnings

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from pendulum_agents import agent_of, obs, untrained
import pytest

from fcritic import envs
from fcritic.api.load import TrainedAgent
from fcritic.api.valuation import critics_of, trust
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.training.replay import Normalizer

__all__ = ["obs"]

box = lambda *shape: gym.spaces.Box(-9, 9, shape)
DICT = gym.spaces.Dict({"arm": box(2, 2), "goal": gym.spaces.Dict({"at": box(3)})})
TUPLE = gym.spaces.Tuple((box(4), box(3)))


class Parts(gym.Env):
    action_space = gym.spaces.Box(-2, 2, (2,))

    def __init__(self, kind="dict"):
        self.observation_space = DICT if kind == "dict" else TUPLE

    def reset(self, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def agent_on(space: str, kind: str = "shared") -> TrainedAgent:
    task = envs.name_of(lambda: Parts(space))
    config = TrainConfig(agent_of(kind), task=task)
    spec, units = envs.task_units(task)
    state = config.agent.init(spec, jax.random.key(1))
    seen = Normalizer(jnp.arange(7.0) / 7, 1 + jnp.arange(7.0), jnp.int32(7))
    policies = config.agent.evaluation_policies(state)
    return TrainedAgent(policies, critics_of(state), seen, seen, config, spec, units, 0, 0, Path())


def samples(space, count):
    space.seed(0)
    return [space.sample() for _ in range(count)]


@pytest.mark.parametrize("count", [1, 3])
def test_several_dicts_are_a_list_or_stacked(count):
    agent, several = agent_on("dict"), samples(DICT, count)
    each = np.stack([agent.act(one) for one in several])
    assert each.shape == (count, 2) and agent.act(several[0]).shape == (2,)
    stacked = {"arm": np.stack([one["arm"] for one in several])}
    stacked["goal"] = {"at": np.stack([one["goal"]["at"] for one in several])}
    flat = np.stack([np.concatenate([one["arm"].ravel(), one["goal"]["at"]]) for one in several])
    for form in (several, tuple(several), stacked, flat, list(flat)):
        np.testing.assert_allclose(agent.act(form), each, rtol=1e-5, atol=1e-6)
        assert agent.value(0, form).shape == (3, count)


def test_several_tuples_too():
    agent, several = agent_on("tuple"), samples(TUPLE, 3)
    each = np.stack([agent.act(one) for one in several])
    for form in (several, tuple(np.stack(part) for part in zip(*several, strict=True))):
        np.testing.assert_allclose(agent.act(form), each, rtol=1e-5, atol=1e-6)


def test_what_is_none_is_named_by_its_part():
    agent, one = agent_on("dict"), samples(DICT, 1)[0]
    for wrong, message in (
        ({"arm": one["arm"]}, "does not fit its space"),
        (one | {"arm": np.zeros((3, 2))}, r"observation\['arm'\] has shape \(3, 2\)"),
        ([one, one | {"goal": {"at": np.zeros(2)}}], r"\['at'\] has shape \(2,\)"),
        ({"arm": np.zeros((5, 2, 2)), "goal": {"at": np.zeros((4, 3))}}, "has shape"),
    ):
        with pytest.raises(UsageError, match=message):
            agent.act(wrong)


def test_an_array_of_another_size_is_answered_with_the_parts():
    agent = agent_on("dict")
    with pytest.raises(UsageError, match=r"has shape \(7,\), or one more axis, not \(5,\): arm\[0, 0\], .*goal"):
        agent.act(np.zeros(5))


def test_the_suites_dicts_are_the_same_again():
    _, units = envs.task_units("cartpole-swingup")
    assert units.unflatten is not None
    found = units.unflatten(np.arange(5.0))
    assert {name: part.tolist() for name, part in found.items()} == {"position": [0, 1, 2], "velocity": [3, 4]}
    assert units.flatten(found).tolist() == [0, 1, 2, 3, 4]


def test_numbers_are_called_by_the_tasks_own_parts():
    names = lambda task, count: envs.task_units(task)[1].obs_names(count)
    assert names("cartpole-swingup", 5) == [
        "position[0]",
        "position[1]",
        "position[2]",
        "velocity[0]",
        "velocity[1]",
    ]
    assert names("hopper-hop", 15)[-2:] == ["touch[0]", "touch[1]"] and names("walker-walk", 24)[14] == "height"
    assert names("Pendulum-v1", 3) == ["observation[0]", "observation[1]", "observation[2]"]
    arm = ["arm[0, 0]", "arm[0, 1]", "arm[1, 0]", "arm[1, 1]"]
    assert names(envs.name_of(lambda: Parts()), 7) == [*arm, "goal.at[0]", "goal.at[1]", "goal.at[2]"]
    of_tuple = envs.task_units(envs.name_of(lambda: Parts("tuple")))[1]
    assert of_tuple.obs_names(7)[3:5] == ["observation[0][3]", "observation[1][0]"]
    assert of_tuple.action_names == ["action[0]", "action[1]"]


def reach(params, seen):
    return params["gain"] * (seen["goal"]["at"][:2] - seen["arm"][0])


def test_a_controller_gets_the_dict_and_may_return_its_action_alone():
    agent, several = agent_on("dict"), samples(DICT, 4)
    policy = agent.adapt(reach, {"gain": jnp.float32(0.05)})
    expected = [0.05 * (one["goal"]["at"][:2] - one["arm"][0]) for one in several]
    np.testing.assert_allclose(agent.act(several, policy), expected, rtol=1e-3, atol=1e-4)
    assert agent.value(policy, several).shape == (3, 4)
    assert np.isfinite(agent.gradient(policy, several).params["gain"])
    of_tuple = agent_on("tuple").adapt(lambda _, seen: seen[1][:2] * 0.1)
    one = samples(TUPLE, 1)[0]
    np.testing.assert_allclose(agent_on("tuple").act(one, of_tuple), one[1][:2] * 0.1, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("controller", "message"),
    [
        (lambda _, seen: jnp.zeros(3), r"returns an action of shape \(3,\); given:.* takes \(2,\)"),
        (lambda _, seen: (jnp.zeros((2, 2)), jnp.zeros(2)), r"are vectors, not of shape \(2, 2\)"),
        (lambda _, seen: (jnp.zeros(2),), "reads layers .* of a policy that has 1"),
        (lambda _, seen: seen["hand"], "this controller does not fit .*KeyError: 'hand'"),
        (lambda _, seen: seen["arm"] @ jnp.zeros(5), "this controller does not fit .*TypeError"),
    ],
)
def test_shapes_are_checked_at_once(controller, message):
    with pytest.raises(UsageError, match=message) as refused:
        agent_on("dict").adapt(controller)
    assert "\n" not in str(refused.value)


def test_how_far_a_policy_acts_by_hand():
    actors = np.array([[[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]])
    near = trust(np.full((2, 2), 0.8), actors)  # 0.2 from the second
    assert near.mark and near.distance == pytest.approx(0.2)
    far = trust(np.array([[0.0, 1.0], [0.5, 0.5]]), actors)  # sqrt(1/2) and 1/2 from either
    assert not far.mark and far.distance == pytest.approx((np.sqrt(0.5) + 0.5) / 2)


def test_a_value_far_from_the_training_says_so(obs):
    agent = untrained("shared")
    near = eqx.tree_at(lambda p: p.network.layers[0].bias, agent.policy(0), replace_fn=lambda bias: bias + 1e-3)
    far = agent.adapt(lambda _, seen: jnp.full(1, 2.0))  # as hard as it can
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.value(0, obs), agent.value(near, obs)
    assert agent.trust(near, obs).mark and agent.trust(1, obs).distance == 0
    with pytest.warns(
        UserWarning, match="this value is unreliable: it acts far from all actors of the training: 1.00"
    ):
        agent.value(far, obs)
    with pytest.warns(UserWarning, match="is unreliable"):
        agent.compare(0, far, obs)
    assert not agent.trust(far, obs).mark
    hard = agent.adapt(lambda torque, seen: torque[None], jnp.float32(2.0))
    worth = lambda torque: agent.value(eqx.tree_at(lambda p: p.params, hard, torque), obs).mean()
    assert np.isfinite(jax.grad(worth)(jnp.float32(1.9)))  # in a transformation nothing is said
