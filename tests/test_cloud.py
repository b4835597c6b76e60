"""Policies beside the actors: codes of behaviour, mixtures, the bank of past actors, what critics learn of them."""

import dataclasses

import jax
from jax import vmap
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import actor_step, critic_step, quick_jit
from test_losses import start

from fcritic import ensembles
from fcritic.agents.cloud import Cloud, next_actions
from fcritic.agents.losses import cloud_loss
from fcritic.errors import UsageError
from fcritic.networks.actor_encoder import EncoderConfig
from fcritic.networks.critics import FunctionalCritic
from fcritic.networks.policies import DeterministicPolicy, FunctionPolicy, GaussianPolicy, Mixture

KEY = jax.random.key(3)


def equal(a, b) -> bool:
    return all(bool((x == y).all()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.fixture
def clouded(tiny):
    encoder = dataclasses.replace(tiny.encoder, kind="behaviour", shared=True)
    return dataclasses.replace(tiny, encoder=encoder, cloud=Cloud(policies=4, rows=3, bank=5, every=2))


def test_behaviour_is_all_that_a_code_sees():
    """A policy whose hidden neurons are in another order, and a function without any, have the same code."""
    policy = DeterministicPolicy(3, (6,), 2, key=KEY, last_scale=0.5)
    encoder = EncoderConfig(kind="behaviour", probes=4, code=5, width=7).build(3, (6, 2), jax.random.key(0))
    first, last = policy.network.layers
    order = jnp.array([3, 1, 0, 5, 4, 2])

    def turned(_, obs):
        hidden = jax.nn.relu(obs @ first.weight[:, order] + first.bias[order])
        return (jnp.tanh(hidden @ last.weight[order] + last.bias),)

    np.testing.assert_allclose(encoder(policy), encoder(FunctionPolicy(turned)), rtol=1e-5, atol=1e-6)
    other = jax.tree.map(lambda leaf: leaf + 0.1, policy)
    assert float(jnp.abs(encoder(policy) - encoder(other)).max()) > 1e-3


def test_the_behaviour_of_a_soft_policy_tells_its_deviation():
    policy = GaussianPolicy(3, (6,), 2, key=KEY, log_std_range=(-20.0, 2.0))
    obs = jnp.array([0.3, -1.0, 2.0])
    heads = policy.network(obs)
    found = policy.behaviour(obs)
    np.testing.assert_allclose(found[:2], np.tanh(heads[:2]), rtol=1e-6)
    np.testing.assert_allclose(found[2:], np.clip(heads[2:], -5, 2) / 3, rtol=1e-6)


def test_a_mixture_lies_between_what_two_policies_do():
    one, two = (DeterministicPolicy(3, (6,), 2, key=jax.random.key(k), last_scale=0.5) for k in (1, 2))
    obs = jnp.array([0.3, -1.0, 2.0])
    at = lambda weight: Mixture(one, two, jnp.float32(weight))
    np.testing.assert_array_equal(at(0.0)(obs), one(obs))
    np.testing.assert_allclose(at(0.25)(obs), 0.75 * one(obs) + 0.25 * two(obs), rtol=1e-6)
    np.testing.assert_allclose(at(0.25).behaviour(obs), [*(0.75 * one(obs) + 0.25 * two(obs)), 0, 0], rtol=1e-6)


def test_a_mixture_of_soft_policies_draws_from_the_mean_of_their_outputs():
    one, two = (GaussianPolicy(3, (6,), 2, key=jax.random.key(k), log_std_range=(-20.0, 2.0)) for k in (1, 2))
    obs, noise = jnp.array([0.3, -1.0, 2.0]), jnp.array([0.5, -0.5])
    mean, log_std = np.split(np.asarray((one.network(obs) + two.network(obs)) / 2), 2)
    act, log_prob = Mixture(one, two, jnp.float32(0.5)).sample(obs, noise)
    np.testing.assert_allclose(act, np.tanh(mean + np.exp(log_std) * noise), rtol=1e-5)
    density = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.asarray(act) ** 2)
    np.testing.assert_allclose(log_prob, density.sum(), rtol=1e-4)


def test_the_bank_keeps_actors_in_turn_in_the_place_of_the_oldest():
    """Of 2 actors whose number at update u is 10 u + actor, every third update one enters a bank of 3."""
    cloud = Cloud(bank=3, every=3)
    actors = lambda update: {"number": jnp.array([10.0 * update, 10.0 * update + 1])}
    bank = cloud.begin(actors(0))
    held = []
    for update in range(1, 16):
        bank = cloud.keep(bank, actors(update))
        held.append((int(cloud.stored(bank)), bank.stored["number"].tolist()))
    assert held[1] == (0, [0, 1, 0])  # none yet: the first actors hold the places
    assert held[2] == (1, [30, 1, 0])
    assert held[8] == (3, [30, 61, 90])
    assert held[14] == (3, [121, 150, 90])


def test_only_past_actors_that_are_there_are_drawn(batch):
    cloud = Cloud(policies=200, rows=1, bank=4, every=1, mixed=0.0)
    actors = {"number": jnp.array([100.0, 101.0])}
    bank = cloud.keep(cloud.begin({"number": jnp.array([0.0, 1.0])}), {"number": jnp.array([50.0, 51.0])})
    drawn = cloud.draw(actors, bank, batch, KEY)
    assert set(drawn.policies["number"].tolist()) == {50.0, 100.0, 101.0}
    other = cloud.draw(actors, bank, batch, jax.random.key(4))
    assert not equal(drawn.policies, other.policies)
    assert set(cloud.draw(actors, None, batch, KEY).policies["number"].tolist()) == {100.0, 101.0}


def test_the_share_of_mixtures_is_as_asked(batch):
    cloud = Cloud(policies=400, rows=2, mixed=0.25)
    drawn = cloud.draw({"number": jnp.zeros(2)}, None, batch, KEY)
    assert np.mean(np.asarray(drawn.policies.weight) > 0) == pytest.approx(0.25, abs=0.06)
    assert drawn.rows.obs.shape == (400, 2, 3)


def test_the_loss_of_the_cloud_is_the_loop_over_critics_policies_and_rows(clouded, spec, batch):
    state, gamma = start(clouded, spec), 0.97
    drawn = clouded.cloud.draw(state.actors.params, state.bank, batch, KEY)
    critics = state.critics.params

    @quick_jit
    def squared_error(online, delayed, policy, row):
        y = row.reward + gamma * row.discount * delayed(policy, row.next_obs, policy(row.next_obs))
        return (y - online(policy, row.obs, row.act)) ** 2

    total = 0.0
    for i in range(clouded.members):
        online, delayed = (
            FunctionalCritic(critics.encoder, ensembles.member(heads, i)) for heads in (critics.head, state.targets)
        )
        errors = []
        for c in range(4):
            for r in range(3):
                row = jax.tree.map(lambda leaf, c=c, r=r: leaf[c, r], drawn.rows)
                errors.append(float(squared_error(online, delayed, ensembles.member(drawn.policies, c), row)))
        total += np.mean(errors)
    found = quick_jit(cloud_loss, static_argnums=5)(
        critics, state.targets, drawn.policies, next_actions(drawn), drawn.rows, gamma
    )
    np.testing.assert_allclose(found, total, rtol=1e-4)


def test_a_cloud_without_weight_teaches_nothing_and_one_with_weight_does(clouded, spec, batch):
    state = start(clouded, spec)
    weightless = dataclasses.replace(clouded, cloud=dataclasses.replace(clouded.cloud, weight=0.0))
    without = dataclasses.replace(clouded, cloud=dataclasses.replace(clouded.cloud, policies=0))
    after = [critic_step(agent, state, batch, KEY)[0].critics.params for agent in (clouded, weightless, without)]
    close = lambda a, b: all(
        np.allclose(x, y, atol=1e-6) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )
    assert close(after[1], after[2]) and not close(after[0], after[2])


def test_an_actor_step_fills_the_bank(clouded, spec, batch):
    state = start(clouded, spec)
    for _ in range(2):
        state, _ = actor_step(clouded, state, batch, KEY)
    assert equal(ensembles.member(state.bank.stored, 0), ensembles.member(state.actors.params, 0))


def test_probes_begin_at_states_of_the_replay_and_stay_or_learn(clouded, spec, batch):
    for trains in (True, False):
        encoder = dataclasses.replace(clouded.encoder, probe_states="replay", train_probes=trains)
        agent = dataclasses.replace(clouded, encoder=encoder)
        first, _ = critic_step(agent, start(agent, spec), batch, KEY)
        moved = np.abs(np.asarray(first.critics.params.encoder.probes) - np.asarray(batch.obs)).max()
        assert (1e-5 < moved < 1e-3) if trains else moved == 0  # a step of Adam is 3e-4 long
        again = batch._replace(obs=batch.obs + 1)
        second, _ = critic_step(agent, first, again, KEY)
        assert np.abs(np.asarray(second.critics.params.encoder.probes) - np.asarray(batch.obs)).max() < 1e-3


def test_what_cannot_be_is_refused(tiny):
    plain = dataclasses.replace(tiny, functional=False)
    for agent, changes, said in (
        (tiny, {"cloud": Cloud(policies=2)}, "--encoder.kind behaviour or --cloud.mixed 0"),
        (plain, {"cloud": Cloud(policies=2, mixed=0.0)}, "leave --cloud.policies at 0"),
    ):
        with pytest.raises(UsageError, match=said):
            dataclasses.replace(agent, **changes)
    for options, said in (
        ({"mixed": 1.5}, "--cloud.mixed must be in"),
        ({"rows": 0}, "--cloud.rows must be at least 1"),
        ({"bank": -1}, "--cloud.bank must be at least 0"),
    ):
        with pytest.raises(UsageError, match=said):
            Cloud(**options)
    with pytest.raises(UsageError, match=r"--encoder.kind behaviour"):
        EncoderConfig(probe_states="replay")


def test_actors_that_are_drawn_act_as_the_stack_does(clouded, spec, batch):
    state = start(clouded, spec)
    drawn = Cloud(policies=3, rows=2, mixed=0.0).draw(state.actors.params, None, batch, KEY)
    act = next_actions(drawn)
    alone = vmap(lambda policy, obs: policy(obs))(drawn.policies, drawn.rows.next_obs[:, 1])
    np.testing.assert_allclose(act[:, 1], alone, rtol=1e-5, atol=1e-6)
