"""SAC: every formula against a value worked out by hand or by numerical integration."""

import dataclasses

import equinox as eqx
from fixed_critics import KEY, SMALL, Fixed
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from fcritic import ensembles
from fcritic.agents.sac import SAC, temperature_loss
from fcritic.errors import UsageError
from fcritic.networks.policies import GaussianPolicy


def policy_with(mean: float, log_std: float) -> GaussianPolicy:
    """A policy of one dimension with the same mean and spread everywhere."""
    policy = GaussianPolicy(1, (), 1, key=KEY, log_std_range=(-20.0, 2.0))
    where = lambda p: (p.network.layers[0].weight, p.network.layers[0].bias)
    return eqx.tree_at(where, policy, (jnp.zeros((1, 2)), jnp.array([mean, log_std])))


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-2.0, 0.5)])
def test_the_density_of_squashed_actions_integrates_to_one_and_to_its_mean(mean, log_std):
    """The claimed density over (-1, 1) against what sampling gives."""
    policy = policy_with(mean, log_std)

    def density(action: float) -> float:
        noise = (np.arctanh(action) - mean) / np.exp(log_std)
        got, log_prob = policy.sample(jnp.zeros(1), jnp.array([noise], jnp.float32))
        assert abs(float(got[0]) - action) < 1e-5
        return float(jnp.exp(log_prob))

    grid = np.tanh(np.linspace(-9, 9, 1201))
    heights = [density(action) if abs(action) < 1 - 1e-6 else 0.0 for action in grid]
    assert abs(integrate.trapezoid(heights, grid) - 1) < 2e-3
    drawn = np.tanh(mean + np.exp(log_std) * np.random.default_rng(0).normal(size=200_000))
    assert abs(integrate.trapezoid(heights * grid, grid) - drawn.mean()) < 5e-3


def test_log_densities_add_over_dimensions_and_stay_finite_far_out():
    policy = GaussianPolicy(3, (8,), 2, key=KEY, log_std_range=(-20.0, 2.0))
    _, log_prob = policy.sample(jnp.ones(3), jnp.array([40.0, -40.0]))
    assert np.isfinite(float(log_prob))
    slope = jax.grad(lambda p: p.sample(jnp.ones(3), jnp.array([40.0, -40.0]))[1])(policy)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


def test_the_spread_is_cut_at_its_bounds():
    action, _ = policy_with(0.0, 50.0).sample(jnp.zeros(1), jnp.array([0.01]))
    np.testing.assert_allclose(action[0], np.tanh(0.01 * np.exp(2.0)), rtol=1e-5)


def test_the_soft_target_by_hand(spec, batch, monkeypatch):
    """y = r + 0.9 d (min(2, 5) - alpha log pi) with alpha = 0.5 and a log-density that is known."""
    agent = SAC(discount=0.9, initial_temperature=0.5, **SMALL)
    Fixed(monkeypatch, [2.0, 5.0])
    state = agent.init(spec, KEY)
    state = dataclasses.replace(state, targets=Fixed.number(state.targets))
    known = lambda self, obs, noise: (jnp.tanh(noise), jnp.full(len(obs), -0.3))
    monkeypatch.setattr(GaussianPolicy, "sample", known)
    found = agent.critic_target(state, batch, KEY)
    expected = np.asarray(batch.reward) + 0.9 * np.asarray(batch.discount) * (2.0 + 0.5 * 0.3)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("log_prob", [-2.0, 0.5])
def test_the_temperature_loss_by_hand(log_prob):
    """log alpha (-log pi - H): slope -log pi - H, so alpha falls where there is more entropy than H."""
    log_alpha = jnp.float32(np.log(0.2))
    loss, slope = jax.value_and_grad(temperature_loss)(log_alpha, jnp.float32(log_prob), -1.0)
    np.testing.assert_allclose(loss, np.log(0.2) * (-log_prob + 1.0), rtol=1e-5)
    np.testing.assert_allclose(slope, -log_prob + 1.0, rtol=1e-5)


def test_the_temperature_moves_toward_the_target_entropy(spec, batch):
    for per_dimension, rises in ((-50.0, False), (50.0, True)):
        agent = SAC(entropy_per_dimension=per_dimension, learning_rate=0.01, **SMALL)
        state = agent.init(spec, KEY)
        after, metrics = agent.actor_step(state, batch, KEY)
        assert (float(after.log_temperature.params) > 0) == rises
        assert float(metrics["temperature"]) == 1.0
    fixed = SAC(learn_temperature=False, **SMALL)
    assert float(fixed.actor_step(fixed.init(spec, KEY), batch, KEY)[0].log_temperature.params) == 0.0


def test_the_actor_of_sac_descends_alpha_log_pi_minus_the_value(spec, batch):
    """Its gradient against finite differences of the formula written anew."""
    agent = SAC(critics=3, actor_value="mean", initial_temperature=0.3, **SMALL)
    state = agent.init(spec, KEY)

    def objective(bias):
        policy = eqx.tree_at(lambda p: p.network.layers[-1].bias, state.actor.params, bias)
        noise = jax.random.normal(KEY, (5, 2))
        total = 0.0
        for obs, draw in zip(batch.obs, noise, strict=True):
            act, log_prob = policy.sample(obs, draw)
            values = [ensembles.member(state.critics.params, i)(obs, act) for i in range(3)]
            total += 0.3 * log_prob - sum(values) / 3
        return float(total) / 5

    bias = np.asarray(state.actor.params.network.layers[-1].bias, np.float64)
    bumps = 1e-2 * np.eye(4)
    slopes = [(objective(jnp.asarray(bias + b)) - objective(jnp.asarray(bias - b))) / 2e-2 for b in bumps]
    after, _ = agent.actor_step(state, batch, KEY)
    step = np.asarray(after.actor.params.network.layers[-1].bias) - bias
    np.testing.assert_array_equal(np.sign(step), -np.sign(slopes))  # Adam's first step is a sign


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"subset": 3}, "--subset must be `all` or 1 to 2"),
        ({"critics": 0}, "critics"),
        ({"tau": 2.0}, "--tau"),
        ({"initial_temperature": 0.0}, "--initial-temperature"),
        ({"log_std_range": (2.0, -5.0)}, "--log-std-range"),
    ],
)
def test_impossible_numbers_are_refused(change, words):
    with pytest.raises(UsageError, match=words):
        SAC(**change)
