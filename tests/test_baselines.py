"""SAC and TD3: every formula against a value worked out by hand or by numerical integration."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from fcritic import ensembles
from fcritic.agents import critic_ensemble
from fcritic.agents.base import update
from fcritic.agents.recipes import RECIPES, changed_fields, find_recipe
from fcritic.agents.sac import SAC, temperature_loss
from fcritic.agents.td3 import TD3, smoothing_noise
from fcritic.errors import UsageError
from fcritic.networks.policies import GaussianPolicy
from fcritic.types import Transition

KEY = jax.random.key(11)
SMALL = {"actor_hidden": (8,), "critic_hidden": (9,), "batch_size": 5}


class Fixed:
    """Critics whose values do not depend on the input: what they say is known."""

    def __init__(self, monkeypatch, numbers):
        table = jnp.array(numbers, jnp.float32)

        def values(critics, obs, act):
            chosen = table[critics.network.layers[-1].bias[:, 0].astype(int)]
            return jnp.broadcast_to(chosen[:, None], (chosen.shape[0], obs.shape[0]))

        monkeypatch.setattr(critic_ensemble, "values", values)

    @staticmethod
    def number(critics):
        """Writes each critic's index where `values` looks for it."""
        count = ensembles.size(critics)
        where = lambda c: c.network.layers[-1].bias
        return eqx.tree_at(where, critics, jnp.arange(count, dtype=jnp.float32)[:, None])


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
    monkeypatch.setattr(GaussianPolicy, "sample_rows", known)
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


def test_smoothing_noise_is_normal_and_clipped():
    noise = np.asarray(smoothing_noise((20_000, 2), 0.2, 0.5, KEY))
    assert abs(noise).max() == pytest.approx(0.5)
    assert (abs(noise) == 0.5).mean() == pytest.approx(0.0124, abs=0.003)  # P(|N| > 2.5)
    assert noise.std() == pytest.approx(0.2, abs=0.005)
    tight = np.asarray(smoothing_noise((1000, 2), 0.2, 0.01, KEY))
    assert abs(tight).max() == pytest.approx(0.01)


def test_the_target_of_td3_by_hand(spec, batch, monkeypatch):
    """The minimum of both targets at the target actor's noisy action, which stays within bounds."""
    agent = TD3(discount=0.9, smoothing_scale=100.0, smoothing_clip=0.25, **SMALL)
    seen = []

    def values(critics, obs, act):
        seen.append(act)
        return jnp.stack([act.sum(axis=1), 1.0 + act.sum(axis=1)])

    monkeypatch.setattr(critic_ensemble, "values", values)
    state = agent.init(spec, KEY)
    found = agent.critic_target(state, batch, KEY)
    plain = np.asarray(jax.vmap(state.target_actor)(batch.next_obs))
    np.testing.assert_allclose(abs(np.asarray(seen[0]) - plain), np.full((5, 2), 0.25), rtol=1e-4)
    expected = np.asarray(batch.reward) + 0.9 * np.asarray(batch.discount) * np.asarray(seen[0]).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    full = dataclasses.replace(agent, smoothing_clip=5.0)
    full.critic_target(state, batch, KEY)
    assert abs(np.asarray(seen[1])).max() == 1.0


@pytest.mark.parametrize(("subset", "possible"), [(1, {1.0, 2.0, 3.0}), (2, {1.0, 2.0}), ("all", {1.0})])
def test_the_subset_target_is_the_minimum_of_different_critics(spec, batch, monkeypatch, subset, possible):
    """Of critics that say 1, 2 and 3 a pair has the minimum 1 in two of three cases, and never 3."""
    Fixed(monkeypatch, [1.0, 2.0, 3.0])
    agent = TD3(critics=3, subset=subset, **SMALL)
    targets = Fixed.number(agent.init(spec, KEY).targets)
    smallest = jax.jit(jax.vmap(lambda key: agent.smallest(targets, batch.obs, batch.act, key)))
    found = np.asarray(smallest(jax.random.split(KEY, 600)))
    assert (found == found[:, :1]).all()  # one draw for the whole batch
    seen, counts = np.unique(found[:, 0], return_counts=True)
    assert set(seen.tolist()) == possible
    if subset == 1:
        assert abs(counts / 600 - 1 / 3).max() < 0.08
    if subset == 2:
        assert counts[0] / 600 == pytest.approx(2 / 3, abs=0.08)


@pytest.mark.parametrize(("kind", "expected"), [("min", [1.0, 2.0]), ("mean", [2.0, 3.0]), ("first", [3.0, 2.0])])
def test_what_the_actor_climbs(kind, expected):
    table = jnp.array([[3.0, 2.0], [1.0, 4.0]])
    np.testing.assert_array_equal(critic_ensemble.for_actor(table, kind), expected)


def test_the_critic_loss_sums_over_critics(spec, batch):
    agent = TD3(critics=3, **SMALL)
    critics, goal = agent.init(spec, KEY).critics.params, jnp.arange(5.0)
    loss, metrics = critic_ensemble.critic_loss(critics, goal, batch)
    errors = [
        np.mean((np.asarray(jax.vmap(ensembles.member(critics, i))(batch.obs, batch.act)) - np.arange(5)) ** 2)
        for i in range(3)
    ]
    np.testing.assert_allclose(loss, sum(errors), rtol=1e-5)
    np.testing.assert_allclose(metrics["critic_loss"], sum(errors) / 3, rtol=1e-5)


def test_exploration_noise_remembers_itself(spec):
    agent = TD3(noise_scale=0.2, noise_memory=0.85, **SMALL)
    policy, memory = agent.init(spec, KEY).actor.params, agent.begin_episode(spec, KEY)
    assert memory.tolist() == [0.0, 0.0]
    act = jax.jit(lambda memory, key: agent.act(policy, memory, jnp.zeros(3), key)[1])
    track = []
    for key in jax.random.split(KEY, 4000):
        memory = act(memory, key)
        track.append(np.asarray(memory))
    track = np.array(track)[100:]
    assert track.std() == pytest.approx(0.2 / np.sqrt(1 - 0.85**2), abs=0.03)  # 0.38, the stationary deviation
    assert np.corrcoef(track[1:, 0], track[:-1, 0])[0, 1] == pytest.approx(0.85, abs=0.03)


def batches(agent, batch: Transition) -> Transition:
    count = agent.batches_per_iteration
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), batch)


def test_the_delayed_actor_and_its_targets_move_every_second_iteration(spec, batch):
    agent = TD3(**SMALL)
    state = agent.init(spec, KEY)
    step = lambda state, i: update(agent, state, batches(agent, batch), KEY, agent.actor_due(i))
    same = lambda a, b: all(
        bool((x == y).all()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )
    first, (_, skipped) = step(state, 0)
    assert not same(first.critics.params, state.critics.params)
    assert (
        same(first.actor, state.actor) and same(first.targets, state.targets) and float(skipped["actor_value"]) == 0
    )
    second, _ = step(first, 1)
    assert not same(second.actor.params, state.actor.params)
    assert not same(second.targets, state.targets) and not same(second.target_actor, state.target_actor)
    assert [agent.actor_updates_before(i) for i in range(5)] == [0, 0, 1, 1, 2]
    mixed = TD3(cycles=3, **SMALL)
    assert [mixed.actor_due(i) for i in range(2)] == [(False, True, False), (True, False, True)]
    _, (critic, actor) = update(mixed, state, batches(mixed, batch), KEY, mixed.actor_due(1))
    assert float(critic["critic_loss"]) > 0 and float(actor["actor_value"]) != 0


def test_a_plus_recipe_is_ten_critic_updates_and_one_of_the_actor(spec):
    for name in ("sac+", "td3+"):
        agent = find_recipe(name)
        assert (agent.critics, agent.critic_steps, agent.subset, agent.actor_value) == (10, 10, 1, "mean")
        assert agent.layer_norm and agent.batches_per_iteration == 10
        assert agent.actor_updates_before(7) == 7


@pytest.mark.parametrize("name", ["sac", "sac+", "td3", "td3+"])
def test_a_recipe_is_a_handful_of_changed_fields(name):
    assert len(changed_fields(RECIPES[name][0])) <= 7


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
