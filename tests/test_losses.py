"""The formulas against numbers worked out by hand, and the gradient against finite differences."""

import dataclasses

import equinox as eqx
import jax
from jax import vmap
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import quick_jit

from fcritic import ensembles
from fcritic.agents.losses import (
    actor_loss,
    critic_loss,
    encode_all,
    functional_critic_loss,
    td_target,
    weigh_gradient,
)
from fcritic.kernels import actions
from fcritic.networks.actor_encoder import EncoderConfig
from fcritic.networks.critics import FunctionalCritic, values
from fcritic.networks.policies import DeterministicPolicy
from fcritic.types import Transition


class HandHead(eqx.Module):
    """Q = code + 10 s + a, so that every number below can be checked on paper."""

    scale: jax.Array

    def __call__(self, code, obs, act):
        return self.scale * (code[0] + 10.0 * obs[0] + act[0])


CODES = jnp.array([[1.0], [2.0]])
NEXT_ACT = jnp.array([[[0.5], [0.25]], [[-0.5], [0.0]]])  # two policies, two transitions
BATCH = Transition(
    obs=jnp.array([[0.0], [1.0]]),
    act=jnp.array([[0.1], [0.2]]),
    reward=jnp.array([1.0, 2.0]),
    discount=jnp.array([1.0, 0.0]),  # the second transition ends its task
    next_obs=jnp.array([[1.0], [5.0]]),
)


def test_the_value_on_the_product_of_policies_and_states():
    head = HandHead(jnp.array(1.0))
    np.testing.assert_allclose(values(head, CODES, BATCH.obs, BATCH.act), [[1.1, 11.2], [2.1, 12.2]], rtol=1e-6)
    np.testing.assert_allclose(
        values(head, CODES, BATCH.next_obs, NEXT_ACT), [[11.5, 51.25], [11.5, 52.0]], rtol=1e-6
    )


def test_the_td_target_by_hand():
    """y = r + 0.9 * discount * Q_tar: 1 + 0.9 * 11.5 for both policies; the ended transition is its reward."""
    target = td_target(HandHead(jnp.array(1.0)), CODES, NEXT_ACT, BATCH, 0.9)
    np.testing.assert_allclose(target, [[11.35, 2.0], [11.35, 2.0]], rtol=1e-6)


def test_the_critic_loss_by_hand():
    """Errors 11.35 - 1.1, 2 - 11.2, 11.35 - 2.1, 2 - 12.2; the loss is the mean of their squares."""
    head = HandHead(jnp.array(1.0))
    loss, metrics = critic_loss(head, CODES, BATCH, td_target(head, CODES, NEXT_ACT, BATCH, 0.9))
    expected = np.mean(np.square([10.25, -9.2, 9.25, -10.2]))
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    np.testing.assert_allclose(metrics["critic_value"], np.mean([1.1, 11.2, 2.1, 12.2]), rtol=1e-6)


def test_the_gradient_of_the_critic_loss_treats_the_target_as_a_constant():
    target = lambda head: td_target(head, CODES, NEXT_ACT, BATCH, 0.9)
    loss = lambda head: critic_loss(head, CODES, BATCH, target(head))[0]
    gradient = jax.grad(loss)(HandHead(jnp.array(1.0))).scale
    value = np.array([1.1, 11.2, 2.1, 12.2])
    error = np.array([10.25, -9.2, 9.25, -10.2])
    np.testing.assert_allclose(gradient, np.mean(-2 * error * value), rtol=1e-5)


@pytest.fixture(params=[False, True], ids=["own encoders", "shared encoder"])
def agent(request, tiny):
    return dataclasses.replace(tiny, encoder=dataclasses.replace(tiny.encoder, shared=request.param))


def start(agent, spec, seed=0):
    """A state whose output layers are not near zero, so that differences show."""
    state = agent.init(spec, jax.random.key(seed))
    wake = lambda tree, key: tree.at[...].set(jax.random.normal(key, tree.shape, tree.dtype))
    return eqx.tree_at(
        lambda s: (
            s.critics.params.head.joint.layers[-1].weight,
            s.targets.joint.layers[-1].weight,
            s.actors.params.network.layers[-1].weight,
        ),
        state,
        replace_fn=lambda leaf: wake(leaf, jax.random.key(leaf.size)),
    )


def test_the_ensemble_loss_is_the_loop_over_critics_and_policies(agent, spec, batch):
    """Line 12 to 15 written as Python loops over critics, actors and transitions."""
    state, gamma = start(agent, spec), 0.97

    @quick_jit
    def squared_error(online, delayed, policy, row):
        y = row.reward + gamma * row.discount * delayed(policy, row.next_obs, policy(row.next_obs))
        return (y - online(policy, row.obs, row.act)) ** 2

    critics, policies = state.critics.params, state.actors.params
    total = 0.0
    for i in range(agent.members):
        encoder = critics.encoder if agent.encoder.shared else ensembles.member(critics.encoder, i)
        online = FunctionalCritic(encoder, ensembles.member(critics.head, i))
        delayed = FunctionalCritic(encoder, ensembles.member(state.targets, i))
        errors = []
        for j in range(agent.members):
            policy = ensembles.member(policies, j)
            for b in range(5):
                row = jax.tree.map(lambda leaf, b=b: leaf[b], batch)
                errors.append(float(squared_error(online, delayed, policy, row)))
        total += np.mean(errors)
    next_act = actions(policies, batch.next_obs)
    ensemble_loss = quick_jit(functional_critic_loss, static_argnums=5)
    loss, _ = ensemble_loss(critics, state.targets, policies, next_act, batch, gamma)
    np.testing.assert_allclose(loss, total, rtol=1e-4)


def test_the_target_sees_a_changed_encoder_but_sends_it_no_gradient(agent, spec, batch):
    state = start(agent, spec)
    critics, policies = state.critics.params, state.actors.params
    head = ensembles.member(state.targets, 0)
    next_act = vmap(lambda policy: vmap(policy)(batch.next_obs))(policies)

    def target_of(encoder):
        codes = encode_all(FunctionalCritic(encoder, critics.head), policies)[0]
        return td_target(head, codes, next_act, batch, 0.99)

    moved = jax.tree.map(lambda leaf: leaf + 0.1, critics.encoder)
    compiled = quick_jit(target_of)
    assert float(jnp.abs(compiled(moved) - compiled(critics.encoder)).max()) > 1e-4
    gradient = quick_jit(jax.grad(lambda encoder: target_of(encoder).sum()))(critics.encoder)
    assert all(float(jnp.abs(leaf).max()) == 0.0 for leaf in jax.tree.leaves(gradient))


def one_pair(agent, spec):
    state = start(agent, spec)
    encoder = state.critics.params.encoder
    encoder = encoder if agent.encoder.shared else ensembles.member(encoder, 0)
    critic = FunctionalCritic(encoder, ensembles.member(state.critics.params.head, 0))
    return ensembles.member(state.actors.params, 0), critic


def test_the_actor_gradient_is_the_finite_difference(tiny, spec, batch):
    """In float64, along random directions in the space of all policy parameters."""
    with jax.enable_x64(True):
        policy, critic, obs = jax.tree.map(
            lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64), (*one_pair(tiny, spec), batch.obs)
        )
        formula = lambda p: actor_loss(p, critic.encode(p), critic.head, obs)
        loss, gradient = quick_jit(formula), quick_jit(jax.grad(formula))(policy)
        flat, restore = ravel_pytree(policy)
        slope, _ = ravel_pytree(gradient)
        for seed in range(3):
            direction = jax.random.normal(jax.random.key(seed), flat.shape, jnp.float64)
            difference = (loss(restore(flat + 1e-6 * direction)) - loss(restore(flat - 1e-6 * direction))) / 2e-6
            np.testing.assert_allclose(jnp.vdot(slope, direction), difference, rtol=1e-6)


def test_the_actor_gradient_is_the_sum_of_its_two_terms(tiny, spec, batch):
    policy, critic = one_pair(tiny, spec)

    def loss(acting, encoded):
        code = critic.encode(encoded)
        return -jnp.mean(vmap(lambda s: critic.value(code, s, acting(s)))(batch.obs))

    first, second = quick_jit(jax.grad(loss, argnums=(0, 1)))(policy, policy)
    size = lambda tree: float(sum(jnp.abs(leaf).sum() for leaf in jax.tree.leaves(tree)))
    assert size(first) > 1e-3 and size(second) > 1e-3
    for weight in (1.0, 0.0, 0.25):
        encoded = lambda policy, weight=weight: critic.encode(weigh_gradient(policy, weight))
        whole = lambda policy, encoded=encoded: actor_loss(policy, encoded(policy), critic.head, batch.obs)
        gradient = quick_jit(jax.grad(whole))(policy)
        expected = jax.tree.map(lambda a, b, weight=weight: a + weight * b, first, second)
        jax.tree.map(lambda g, e: np.testing.assert_allclose(g, e, rtol=1e-3, atol=1e-6), gradient, expected)


def test_actions_keep_all_digits_unless_told_otherwise(tiny, spec, batch):
    policies = start(tiny, spec).actors.params
    fine, coarse = (np.asarray(actions(policies, batch.obs, jnp.dtype(kind))) for kind in ("float32", "bfloat16"))
    assert fine.dtype == coarse.dtype == np.float32
    assert 0 < np.abs(fine - coarse).max() < 0.02
    with jax.enable_x64(True):
        double = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64), (policies, batch.obs))
        assert actions(*double).dtype == jnp.float64


def test_a_code_can_be_differentiated_forwards_too():
    encoder = EncoderConfig(probes=4, depth=1, width=8, code=3).build(2, (6, 1), jax.random.key(0))
    policy = DeterministicPolicy(2, (6,), 1, key=jax.random.key(0), last_scale=0.5)
    along = jax.tree.map(jnp.ones_like, policy)
    slope = quick_jit(lambda own: jax.jvp(encoder, (own,), (along,))[1])(policy)
    gradients = quick_jit(jax.jacrev(encoder))(policy)
    expected = sum(leaf.reshape(3, -1).sum(axis=1) for leaf in jax.tree.leaves(gradients))
    np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-6)
