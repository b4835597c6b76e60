"""Critics that are not as many as the actors, targets that all critics share, and policies with noise."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import actor_step, critic_step, quick_jit
from test_losses import start

from fcritic import ensembles
from fcritic.agents.action_noise import draw_noise, with_noise
from fcritic.agents.losses import encode_all, functional_critic_loss, td_target
from fcritic.errors import UsageError

KEY = jax.random.key(3)


@pytest.fixture
def crowd(tiny):
    """More critics than actors."""
    return dataclasses.replace(tiny, members=2, critics=5, pairing="mean")


def test_more_critics_than_actors_learn_and_improve_them(crowd, spec, batch):
    state = start(crowd, spec)
    assert ensembles.size(state.actors.params) == 2 and ensembles.size(state.critics.params.head) == 5
    learned, _ = critic_step(crowd, state, batch, KEY)
    moved, _ = actor_step(crowd, learned, batch, KEY)
    for i in range(5):
        pair = (ensembles.member(each.critics.params.head, i) for each in (state, learned))
        assert all(bool((x != y).any()) for x, y in zip(*map(jax.tree.leaves, pair), strict=True))
    assert ensembles.size(moved.actors.params) == 2
    assert quick_jit(crowd.disagreement)(moved, batch.obs).shape == (2,)
    assert crowd.describe(spec)["critics"] == 5 and crowd.describe(spec)["actors"] == 2


def test_without_pairs_critics_must_be_asked_for_their_mean(tiny):
    with pytest.raises(UsageError, match="--pairing mean"):
        dataclasses.replace(tiny, critics=tiny.members + 1)
    assert dataclasses.replace(tiny, critics=tiny.members).critic_count == tiny.members
    with pytest.raises(UsageError, match="--targets"):
        dataclasses.replace(tiny, functional=False, targets="mean")


def test_a_common_target_is_the_mean_of_all_targets(tiny, spec, batch):
    """The reported target keeps its mean; the loss is that of every critic to the same numbers."""
    state = start(tiny, spec)
    critics, policies, shared = state.critics.params, state.actors.params, tiny.encoder.shared
    codes = quick_jit(encode_all, static_argnums=2)(critics, policies, shared)
    next_act = jax.vmap(lambda policy: jax.vmap(policy)(batch.next_obs))(policies)
    heads = [ensembles.member(state.targets, i) for i in range(tiny.members)]
    target = quick_jit(lambda head, code: td_target(head, code, next_act, batch, 0.9))
    common = np.mean([target(head, code) for head, code in zip(heads, codes, strict=True)], axis=0)
    each = lambda head, code, obs, act: jax.vmap(lambda c: jax.vmap(lambda o, a: head(c, o, a))(obs, act))(code)
    value_of = quick_jit(each)
    wanted = 0.0
    for i in range(tiny.members):
        value = value_of(ensembles.member(critics.head, i), codes[i], batch.obs, batch.act)
        wanted += float(np.mean((common - np.asarray(value)) ** 2))
    given = critics, state.targets, policies, batch, 0.9, shared
    ensemble_loss = quick_jit(functional_critic_loss, static_argnums=(4, 5), static_argnames="common_target")
    loss, metrics = ensemble_loss(*given, common_target=True)
    np.testing.assert_allclose(loss, wanted, rtol=1e-4)
    np.testing.assert_allclose(metrics["target_value"], common.mean(), rtol=1e-4)
    own, _ = ensemble_loss(*given)
    assert abs(float(own) - wanted) > 1e-4 * wanted


def test_noise_has_its_deviation_and_stays_within_bounds():
    noise = draw_noise(0.3, (2000, 4), KEY)
    assert float(noise.std()) == pytest.approx(0.3, rel=0.03)
    assert draw_noise(0.0, (2000, 4), KEY) is None
    found = with_noise(jnp.full((2000, 4), 0.9), noise)
    np.testing.assert_array_equal(found, np.clip(np.asarray(noise) + np.float32(0.9), -1, 1))


def test_a_noisy_agent_acts_with_noise_and_is_valued_with_it(tiny, spec, batch):
    agent = dataclasses.replace(tiny, action_noise=0.2)
    state, memory = start(agent, spec), jnp.array(1)
    policy = agent.rollout_policy(state)
    still = tiny.act(policy, memory, batch.obs[0], KEY)[0]
    acts = jax.vmap(lambda key: agent.act(policy, memory, batch.obs[0], key)[0])(jax.random.split(KEY, 500))
    assert float((acts - still[None]).std()) == pytest.approx(0.2, rel=0.1)
    found, _ = critic_step(agent, state, batch, KEY)
    quiet, _ = critic_step(tiny, state, batch, KEY)
    next_act = quick_jit(agent.foresee)(state, jax.tree.map(lambda leaf: leaf[None], batch), KEY[None]).next_act[0]
    foreseen, _ = critic_step(agent, state, batch._replace(next_act=next_act), KEY)
    flat = lambda tree: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
    moments = [flat(each.critics.opt_state[0].mu) for each in (found, quiet, foreseen)]
    assert np.abs(moments[0] - moments[1]).max() > 1e-4  # another target
    np.testing.assert_allclose(
        moments[0], moments[2], rtol=2e-6, atol=1e-7
    )  # the same, drawn for all updates at once
