"""What SAC and TD3 share: critics that are summed, drawn and reduced to one value, and the recipes of both."""

from fixed_critics import KEY, SMALL, Fixed
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic import ensembles
from fcritic.agents import critic_ensemble
from fcritic.agents.base import options_of
from fcritic.agents.recipes import RECIPES, find_recipe
from fcritic.agents.td3 import TD3


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


def test_a_plus_recipe_is_ten_critic_updates_and_one_of_the_actor(spec):
    for name in ("sac+", "td3+"):
        agent = find_recipe(name)
        assert (agent.critics, agent.critic_steps, agent.subset, agent.actor_value) == (10, 10, 1, "mean")
        assert agent.layer_norm and agent.batches_per_iteration == 10
        assert agent.actor_updates_before(7) == 7


@pytest.mark.parametrize("name", ["sac", "sac+", "td3", "td3+"])
def test_a_recipe_is_a_handful_of_changed_fields(name):
    agent = RECIPES[name][0]
    assert len(options_of(agent).items() - options_of(type(agent)()).items()) <= 7
