"""The critics of a loaded agent: their values, slopes and comparisons of any policy, also of one's own."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from pendulum_agents import obs, untrained
import pytest
from quick_programs import quick_jit

import fcritic
from fcritic import ensembles
from fcritic.errors import UsageError
from fcritic.networks.critics import FunctionalCritic
from fcritic.networks.policies import DeterministicPolicy

__all__ = ["obs"]


@pytest.mark.parametrize("kind", ["fac", "shared", "plain", "sac"])
def test_values_are_those_of_each_critic(kind, obs):
    agent = untrained(kind)
    policy = DeterministicPolicy(3, (5, 4), 1, key=jax.random.key(9), last_scale=0.5)  # none of the agent's
    found = agent.value(policy, obs)
    critics, torque, quarter = agent.critics, np.array([0.5], np.float32), jnp.array([0.25])
    seen = agent.normalizer(jnp.asarray(obs))
    number = found.shape[0] - 1
    if kind == "sac":
        judge = lambda p, s, a: ensembles.member(critics, number)(s, a)
    else:
        encoder = critics.encoder if kind in ("shared", "plain") else ensembles.member(critics.encoder, number)
        judge = FunctionalCritic(encoder, ensembles.member(critics.head, number))
    # The torque 0.5 is a quarter of the most.
    both = lambda s: (jax.vmap(lambda s: judge(policy, s, policy(s)))(s), judge(policy, s[0], quarter))
    expected, given = quick_jit(both)(seen)
    np.testing.assert_allclose(found[number], expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(agent.value(policy, obs[0], torque)[number], given, rtol=1e-4, atol=1e-6)
    assert not np.allclose(found[0], found[number], rtol=1e-3)


@pytest.mark.parametrize("kind", ["shared", "sac"])
def test_the_gradient_is_the_slope_of_the_value(kind, obs):
    agent = untrained(kind)
    policy = agent.policy(0)
    slope = agent.gradient(policy, obs)
    assert jax.tree.structure(slope) == jax.tree.structure(policy)
    move = lambda step: jax.tree.map(lambda leaf, way: leaf + step * way, policy, slope)
    size = sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(slope))
    step = 1e-2 / np.sqrt(size)
    rise = (agent.value(move(step), obs).mean() - agent.value(move(-step), obs).mean()) / (2 * step)
    assert float(rise) == pytest.approx(size, rel=0.02)


def test_the_second_term_is_the_part_through_the_policy_input(obs):
    agent = untrained("fac")
    policy, number = agent.policy(1), 2
    critic = ensembles.member(agent.critics, number)
    seen = agent.normalizer(jnp.asarray(obs))
    first = lambda p: jax.vmap(lambda s: critic(policy, s, p(s)))(seen).mean()
    second = lambda p: jax.vmap(lambda s: critic(p, s, policy(s)))(seen).mean()
    close = lambda a, b: jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-7), a, b)
    slopes = quick_jit(lambda p: (jax.grad(first)(p), jax.grad(second)(p)))(policy)
    close(agent.gradient(policy, obs, critic=number), jax.tree.map(jnp.add, *slopes))
    close(agent.gradient(policy, obs, critic=number, second_term=0.0), slopes[0])


def test_a_comparison_is_the_difference_of_values(obs):
    agent = untrained("fac")
    found, back = agent.compare(0, 2, obs), agent.compare(2, 0, obs)
    by_hand = np.asarray(agent.value(0, obs)) - np.asarray(agent.value(2, obs))
    np.testing.assert_allclose(found.differences, by_hand, rtol=1e-6)
    np.testing.assert_allclose(found.per_critic, by_hand.mean(axis=1), rtol=1e-6)
    assert found.mean == pytest.approx(-back.mean) and found.mean == pytest.approx(by_hand.mean(), rel=1e-5)
    assert found.spread == pytest.approx(by_hand.mean(axis=1).std(), rel=1e-5)


def linear(params, obs):
    """A controller in the pendulum's own units: a torque from its angle and its speed."""
    torque = -params["gain"] * obs[1] - params["damping"] * obs[2]
    return jax.nn.relu(jnp.stack([obs[1], -obs[1], obs[2], -obs[2]])), torque[None]


def test_a_controller_of_ones_own_is_valued_in_the_tasks_units(obs):
    agent = untrained("shared")
    params = {"gain": jnp.float32(0.5), "damping": jnp.float32(0.2)}
    policy = agent.adapt(linear, params)
    torques = -0.5 * obs[:, 1:2] - 0.2 * obs[:, 2:3]
    np.testing.assert_allclose(agent.act(obs, policy), torques, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(agent.value(policy, obs), agent.value(policy, obs, torques), rtol=1e-4, atol=1e-5)
    slope = agent.gradient(policy, obs).params
    with_gain = lambda gain: eqx.tree_at(lambda p: p.params["gain"], policy, jnp.float32(gain))
    mean = lambda gain: float(agent.value(with_gain(gain), obs).mean())
    assert float(slope["gain"]) == pytest.approx((mean(0.52) - mean(0.48)) / 0.04, rel=0.02, abs=1e-4)


def test_a_policy_without_parameters_or_hidden_layers(obs):
    agent = untrained("sac")
    still = agent.adapt(lambda params, seen: (jnp.zeros(1),))
    np.testing.assert_array_equal(agent.act(obs, still), np.zeros((4, 1)))
    assert agent.value(still, obs).shape == (2, 4)
    with pytest.raises(UsageError, match=r"reads layers .* of a policy that has 1"):
        untrained("shared").value(still, obs)
    with pytest.raises(UsageError, match="must return a tuple"):
        fcritic.FunctionPolicy(lambda params, seen: jnp.zeros(1))(jnp.zeros(3))
