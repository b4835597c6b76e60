"""Prior functions and bootstrap masks: what they add and what never moves. `test_behaviour` resumes such a run."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import actor_step, critic_step, quick_jit
from test_fac import same
from test_losses import BATCH, CODES, NEXT_ACT, HandHead, start

from fcritic import ensembles
from fcritic.agents.losses import actor_loss, critic_loss, own_values, squared_error, td_target, values
from fcritic.agents.masks import mask_weights
from fcritic.agents.recipes import find_recipe
from fcritic.api import valuation
from fcritic.errors import UsageError
from fcritic.kernels import product
from fcritic.networks.priors import Prior
from fcritic.training import replay
from fcritic.training.cost import flops_per_iteration
from fcritic.types import EnvSpec

KEY = jax.random.key(3)


class HandPrior(Prior):
    """P = 100 s + 1000 a."""

    def __init__(self):
        self.network, self.scale = None, 1.0

    def __call__(self, obs, act):
        return 100.0 * obs[0] + 1000.0 * act[0]


def test_target_and_loss_with_a_prior_by_hand():
    """P(s', a') is 600, 525 for the one policy and -400, 500 for the other; P(s, a) is 100, 300."""
    head, prior = HandHead(jnp.array(1.0)), HandPrior()
    target = td_target(head, CODES, NEXT_ACT, BATCH, 0.9, prior)
    np.testing.assert_allclose(target, [[1 + 0.9 * 611.5, 2.0], [1 + 0.9 * -388.5, 2.0]], rtol=1e-6)
    loss, metrics = critic_loss(head, CODES, BATCH, target, prior)
    value = np.array([[101.1, 311.2], [102.1, 312.2]])
    np.testing.assert_allclose(loss, np.mean((np.asarray(target) - value) ** 2), rtol=1e-6)
    np.testing.assert_allclose(metrics["critic_value"], value.mean(), rtol=1e-6)


def test_masked_transitions_do_not_count_and_the_others_count_more():
    """Errors 10.25, 9.25 in the first transition, 9.2, 10.2 in the second, which the mask leaves out; p = 1/2."""
    head = HandHead(jnp.array(1.0))
    target = td_target(head, CODES, NEXT_ACT, BATCH, 0.9)
    loss, _ = critic_loss(head, CODES, BATCH, target, None, jnp.array([2.0, 0.0]))
    np.testing.assert_allclose(loss, 2 * (10.25**2 + 9.25**2) / 4, rtol=1e-6)


def priors_of(count, scale=1.0):
    sizes = {"state_action_hidden": (32, 32), "joint_hidden": (32, 32), "layer_norm": True}
    return ensembles.stack(lambda key: Prior(6, 2, 16, scale=scale, key=key, **sizes), count, KEY)


def test_a_prior_has_the_units_of_values_and_differs_by_state_action_and_draw():
    obs, act = jax.random.normal(KEY, (64, 6)), jax.random.uniform(KEY, (64, 2), minval=-1.0)
    over = quick_jit(jax.vmap(lambda prior, both: prior.over(obs, both), in_axes=(0, None)))
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
    agent = dataclasses.replace(tiny, prior_scale=2.0, pairing="permuted")
    state = start(agent, spec)
    reported = float(actor_step(agent, state, batch, KEY)[1]["actor_value"])

    @quick_jit
    def value(actor, critic):
        pick = lambda tree, index: ensembles.member(tree, index)
        pair = pick(state.actors.params, actor), pick(state.critics.params, critic), pick(state.priors, critic)
        return -actor_loss(pair[0], pair[1].encode(pair[0]), pair[1].head, batch.obs, pair[2])

    pairs = enumerate(jax.random.permutation(KEY, 3).tolist())
    assert reported == pytest.approx(np.mean([float(value(*pair)) for pair in pairs]), rel=1e-4)


@pytest.mark.parametrize("functional", [True, False], ids=["functional", "plain"])
def test_what_critics_expect_of_every_policy(tiny, spec, batch, functional):
    agent = dataclasses.replace(tiny, prior_scale=2.0, functional=functional)
    state, (i, j, b) = start(agent, spec), (2, 1, 3)

    @quick_jit
    def both(state):
        found = own_values(state.critics.params, state.actors.params, batch.obs, False, state.priors)
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


def test_masks_are_fixed_fair_and_different_for_each_critic():
    key, numbers = jax.random.key_data(KEY), jnp.arange(20_000, dtype=jnp.uint32)
    weights = np.asarray(mask_weights(key, numbers, 3, 0.25))
    assert set(np.unique(weights)) == {0.0, 4.0}
    np.testing.assert_allclose(weights.mean(axis=1), 1.0, atol=0.05)
    np.testing.assert_allclose(np.corrcoef(weights), np.eye(3), atol=0.03)
    some = numbers[jnp.array([17, 5, 17])]
    np.testing.assert_array_equal(mask_weights(key, some, 3, 0.25), weights[:, [17, 5, 17]])
    assert (np.asarray(mask_weights(key + 1, numbers, 3, 0.25)) != weights).any()


def test_the_replay_numbers_transitions_also_after_it_wrapped_around():
    spec = EnvSpec(1, 1)
    ring = replay.empty(spec, envs=3, capacity=4)
    add, sample = quick_jit(replay.add), quick_jit(lambda r: replay.sample(r, spec, (40,), KEY, numbered=True))
    for step in range(11):  # each row holds its own number as its reward
        numbers = 3.0 * step + np.arange(3.0, dtype=np.float32)
        ring = add(ring, np.stack([numbers * 0, numbers * 0, numbers, numbers, numbers], axis=1))
        batch = sample(ring)
        np.testing.assert_array_equal(batch.number, np.asarray(batch.reward, np.uint32))
    assert replay.sample(ring, spec, (4,), KEY).number is None


def test_a_critic_learns_only_from_its_transitions(tiny, spec, batch):
    agent = dataclasses.replace(tiny, mask_probability=0.5)
    state, plain = start(agent, spec), start(tiny, spec)
    assert same(state.critics, plain.critics) and same(state.actors, plain.actors)
    batch = batch._replace(number=jnp.arange(5, dtype=jnp.uint32))
    weights = np.asarray(mask_weights(state.mask_key, batch.number, 3, 0.5))
    row = np.argwhere(weights == 0)[0, 1]
    other = batch._replace(reward=batch.reward.at[row].add(5.0))
    one, two = (critic_step(agent, state, each, KEY)[0] for each in (batch, other))
    learned = [not same(*(ensembles.member(after.critics.params, i) for after in (one, two))) for i in range(3)]
    assert learned == (weights[:, row] > 0).tolist()
    assert (one.mask_key == state.mask_key).all()


def test_the_prior_is_added_outside_of_the_kernels(monkeypatch):
    """Kernels get targets from which P(s, a) = 100, 300 was taken; loss and values are those of plain code."""
    head, prior, goals = HandHead(jnp.array(1.0)), HandPrior(), []
    target = td_target(head, CODES, NEXT_ACT, BATCH, 0.9, prior)
    arguments = head, CODES, BATCH, target, prior
    plain_loss, plain = critic_loss(*arguments)

    def kernel(head, codes, obs, act, goal):
        goals.append(goal)
        return squared_error(head, codes, obs, act, goal)

    monkeypatch.setattr(product, "fits", lambda head, obs: isinstance(head, HandHead))
    monkeypatch.setattr(product, "target_values", values)
    monkeypatch.setattr(product, "squared_error", kernel)
    loss, found = critic_loss(*arguments)
    assert float(loss) == float(plain_loss) and found == plain
    assert (td_target(head, CODES, NEXT_ACT, BATCH, 0.9, prior) == target).all()
    np.testing.assert_allclose(goals, [target - jnp.array([[100.0, 300.0]])], rtol=1e-6)
    critic_loss(*arguments, jnp.array([2.0, 0.0]))
    assert len(goals) == 1  # with masks there is no kernel


def test_the_cost_is_counted_and_impossible_numbers_are_refused(tiny, spec):
    masked = dataclasses.replace(tiny, mask_probability=0.5)
    assert flops_per_iteration(masked, spec) == flops_per_iteration(tiny, spec)
    assert find_recipe("fac").prior_scale == 0 and find_recipe("fac").mask_probability == 1
    with pytest.raises(UsageError, match="--prior-scale must be at least 0"):
        dataclasses.replace(tiny, prior_scale=-1.0)
    for probability in (0.0, 1.5):
        with pytest.raises(UsageError, match=r"--mask-probability must be in \(0, 1\]"):
            dataclasses.replace(tiny, mask_probability=probability)


def test_a_loaded_critic_is_valued_with_its_prior(tiny, spec, batch):
    agent = dataclasses.replace(tiny, prior_scale=5.0)
    state = agent.init(spec, KEY)
    policy = ensembles.member(state.actors.params, 1)
    found = valuation.values(valuation.critics_of(state), valuation.Sight(None), policy, batch.obs)
    critics, policies = state.critics.params, state.actors.params
    shown = quick_jit(lambda priors: own_values(critics, policies, batch.obs, agent.shared_encoder, priors)[:, 1])
    expected = shown(state.priors)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    bare = shown(None)
    assert np.abs(found - bare).mean() > 1
