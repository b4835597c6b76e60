"""Prior functions: what they add and what never moves. `test_behaviour` resumes such a run."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import actor_step, critic_step, quick_jit
from test_fac import same
from test_losses import BATCH, CODES, NEXT_ACT, HandHead, start

from fcritic import ensembles, kernels
from fcritic.agents.fac import FAC
from fcritic.agents.losses import actor_loss, critic_loss, own_values, td_target
from fcritic.agents.recipes import find_recipe
from fcritic.api import valuation
from fcritic.errors import UsageError
from fcritic.kernels import heads
from fcritic.networks.critics import PrimedHead, Prior, ValueHead
from fcritic.networks.precision import lower
from fcritic.types import EnvSpec

KEY = jax.random.key(3)


class HandPrior(Prior):
    """P = 100 s + 1000 a."""

    def __init__(self):
        self.network, self.scale = None, 1.0

    def __call__(self, obs, act):
        return 100.0 * obs[0] + 1000.0 * act[0]


PRIMED = PrimedHead(HandHead(jnp.array(1.0)), HandPrior())


def test_target_and_loss_with_a_prior_by_hand():
    """P(s', a') is 600, 525 for the one policy and -400, 500 for the other; P(s, a) is 100, 300."""
    target = td_target(PRIMED, CODES, NEXT_ACT, BATCH, 0.9)
    np.testing.assert_allclose(target, [[1 + 0.9 * 611.5, 2.0], [1 + 0.9 * -388.5, 2.0]], rtol=1e-6)
    loss, metrics = critic_loss(PRIMED, CODES, BATCH, target)
    value = np.array([[101.1, 311.2], [102.1, 312.2]])
    np.testing.assert_allclose(loss, np.mean((np.asarray(target) - value) ** 2), rtol=1e-6)
    np.testing.assert_allclose(metrics["critic_value"], value.mean(), rtol=1e-6)


def priors_of(count, scale=1.0):
    agent = FAC(state_action_hidden=(32, 32), joint_hidden=(32, 32), state_action_code=16, prior_scale=scale)
    return ensembles.stack(lambda key: agent._prior(EnvSpec(6, 2), key), count, KEY)


def test_a_prior_has_the_units_of_values_and_differs_by_state_action_and_draw():
    obs, act = jax.random.normal(KEY, (64, 6)), jax.random.uniform(KEY, (64, 2), minval=-1.0)
    over = quick_jit(
        jax.vmap(lambda prior, both: jax.vmap(jax.vmap(prior), (None, 0))(obs, both), in_axes=(0, None))
    )
    both = np.asarray(over(priors_of(40), jnp.stack([act, -act])))
    found = both[:, 0]
    assert 0.7 < found.std(axis=0).mean() < 1.4  # over draws, at a state
    assert found.std(axis=1).mean() > 0.2  # over states, in a draw
    assert np.abs(found - both[:, 1]).mean() > 0.1  # between two actions
    np.testing.assert_allclose(over(priors_of(40, 3.0), jnp.stack([act, -act])), 3 * both, rtol=1e-4, atol=1e-5)


def test_updates_leave_priors_alone_and_a_prior_reaches_its_own_critic_and_actor_only(tiny, spec, batch):
    tiny = dataclasses.replace(tiny, functional=False)  # encoders have no part in it
    agent = dataclasses.replace(tiny, prior_scale=2.0)
    state, plain = start(agent, spec), start(tiny, spec)
    assert same(state.critics, plain.critics) and same(state.actors, plain.actors)  # the same streams
    assert plain.priors is None and not same(*(ensembles.member(state.priors, index) for index in (0, 1)))
    shaken = dataclasses.replace(state, priors=jax.tree.map(lambda leaf: leaf.at[1].add(0.3), state.priors))
    learned, other = (critic_step(agent, each, batch, KEY)[0] for each in (state, shaken))
    moved = [not same(*(ensembles.member(e.critics.params, i) for e in (learned, other))) for i in range(3)]
    assert moved == [False, True, False]
    assert same(learned.priors, state.priors)
    assert jax.tree.structure(learned.targets) == jax.tree.structure(learned.critics.params.head)  # no prior there
    better, other = (actor_step(agent, each, batch, KEY)[0] for each in (state, shaken))
    moved = [not same(*(ensembles.member(e.actors.params, i) for e in (better, other))) for i in range(3)]
    assert moved == [False, True, False]
    assert same(better.priors, state.priors)


def test_actors_climb_critic_and_prior_together(tiny, spec, batch):
    """Reported is the mean of Q + beta P over the pairs of this update, computed here one by one."""
    agent = dataclasses.replace(tiny, prior_scale=2.0)
    state = start(agent, spec)
    reported = float(actor_step(agent, state, batch, KEY)[1]["actor_value"])

    @quick_jit
    def value(actor, critic):
        pick = lambda tree, index: ensembles.member(tree, index)
        policy, found = pick(state.actors.params, actor), pick(state.critics.params, critic)
        head = PrimedHead(found.head, pick(state.priors, critic))
        return -actor_loss(policy, found.encode(policy), head, batch.obs)

    assert reported == pytest.approx(np.mean([float(value(i, i)) for i in range(3)]), rel=1e-4)


@pytest.mark.parametrize("functional", [True, False], ids=["functional", "plain"])
def test_what_critics_expect_of_every_policy(tiny, spec, batch, functional):
    agent = dataclasses.replace(tiny, prior_scale=2.0, functional=functional)
    state, (i, j, b) = start(agent, spec), (2, 1, 3)

    @quick_jit
    def both(state):
        found = own_values(state.valued_by, state.actors.params, batch.obs)
        policy, prior, s = (
            *(ensembles.member(t, k) for t, k in ((state.actors.params, j), (state.priors, i))),
            batch.obs[b],
        )
        head = ensembles.member(state.critics.params.head, i)
        code = ensembles.member(state.critics.params.encoder, i)(policy) if functional else jnp.zeros(0)
        return found, agent.disagreement(state, batch.obs), head(code, s, policy(s)) + prior(s, policy(s))

    found, told, expected = both(state)
    np.testing.assert_allclose(found[i, j, b], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(told, np.asarray(found).std(axis=0).mean(axis=-1), rtol=1e-4)


def test_the_prior_is_added_outside_of_the_kernels(monkeypatch):
    """The head alone fits a kernel, which gets targets without P(s, a); the sum is that of plain code."""
    kind = jnp.dtype("bfloat16")
    sizes = {"state_action_hidden": (32,), "joint_hidden": (32, 32), "layer_norm": True}
    head = lower(ValueHead(1, 1, 1, 32, key=KEY, **sizes), kind)
    primed, goals = PrimedHead(head, HandPrior()), []
    batch = jax.tree.map(lambda leaf: jnp.tile(leaf, (heads.ROWS // 2, *[1] * (leaf.ndim - 1))), BATCH)
    next_act = jnp.tile(NEXT_ACT, (1, heads.ROWS // 2, 1))
    target = td_target(primed, CODES, next_act, batch, 0.9)
    loss, plain = critic_loss(primed, CODES, batch, target)
    monkeypatch.setattr(kernels, "INTERPRET", True)
    kernel = heads.error.squared_error
    monkeypatch.setattr(heads.error, "squared_error", lambda *given: (goals.append(given[-1]), kernel(*given))[1])
    np.testing.assert_allclose(td_target(primed, CODES, next_act, batch, 0.9), target, rtol=0.01, atol=0.1)
    fast_loss, fast = critic_loss(primed, CODES, batch, target)
    np.testing.assert_allclose(fast_loss, loss, rtol=0.01)
    np.testing.assert_allclose(fast["critic_value"], plain["critic_value"], rtol=0.01)
    rest = target - jnp.tile(jnp.array([[100.0, 300.0]]), (1, heads.ROWS // 2))
    np.testing.assert_allclose(goals, [rest], rtol=1e-4, atol=0.01)


def test_impossible_numbers_are_refused(tiny):
    assert find_recipe("fac").prior_scale == 0
    with pytest.raises(UsageError, match="--prior-scale must be at least 0"):
        dataclasses.replace(tiny, prior_scale=-1.0)


def test_a_loaded_critic_is_valued_with_its_prior(tiny, spec, batch):
    agent = dataclasses.replace(tiny, prior_scale=5.0)
    state = agent.init(spec, KEY)
    policy = ensembles.member(state.actors.params, 1)
    found = valuation.values(valuation.critics_of(state), valuation.Sight(None), policy, batch.obs)
    critics, policies = state.critics.params, state.actors.params
    shown = quick_jit(lambda critics: own_values(critics, policies, batch.obs)[:, 1])
    np.testing.assert_allclose(found, shown(state.valued_by), rtol=1e-5)
    assert np.abs(found - shown(critics)).mean() > 1
