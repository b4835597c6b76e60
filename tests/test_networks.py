"""Networks against NumPy and against the properties that the method rests on."""

import dataclasses

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import quick_jit

from fcritic import ensembles
from fcritic.errors import UsageError
from fcritic.networks.actor_encoder import Block, EncoderConfig
from fcritic.networks.critics import FunctionalCritic, ValueHead
from fcritic.networks.mlp import MLP, Linear, rows_times
from fcritic.networks.policies import DeterministicPolicy

KEY = jax.random.key(0)
code_of = quick_jit(lambda encoder, policy: encoder(policy))


def test_a_linear_layer_adds_up_its_parts():
    layer = Linear(5, 3, key=KEY)
    layer = eqx.tree_at(lambda y: y.bias, layer, jnp.array([1.0, 2.0, 3.0]))
    parts = jnp.array([1.0, -2.0]), jnp.array([0.5, 0.0, 4.0])
    expected = np.concatenate(parts) @ np.asarray(layer.weight) + np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(layer(*parts), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="hold 2 numbers, the layer takes 5"):
        layer(parts[0])


def test_an_mlp_with_layer_norm_is_what_numpy_computes():
    network = MLP(3, (4, 5), 2, key=KEY, layer_norm=True, last_scale=None)
    x = np.array([0.3, -1.0, 2.0], np.float32)
    value = x
    for layer in network.layers[:-1]:
        value = value @ np.asarray(layer.weight)
        value = (value - value.mean()) / np.sqrt(value.var() + 1e-5)
        value = np.maximum(value, 0)
    np.testing.assert_allclose(
        network(jnp.asarray(x)), value @ np.asarray(network.layers[-1].weight), rtol=1e-4, atol=1e-6
    )


def test_the_gradient_of_a_product_of_rows_is_that_of_the_formula():
    """d sum(S * XW): S W^T in X and X^T S in W, here by numpy."""
    rows, weight, slope = (
        jax.random.normal(key, shape)
        for key, shape in zip(jax.random.split(KEY, 3), ((5, 3), (3, 4), (5, 4)), strict=True)
    )
    in_rows, in_weight = jax.grad(lambda x, w: jnp.sum(slope * rows_times(x, w)), argnums=(0, 1))(rows, weight)
    np.testing.assert_allclose(in_rows, slope @ weight.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(in_weight, rows.T @ slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_many_rows_at_once_have_the_values_and_gradients_of_single_ones(layer_norm):
    """For a stack of networks too, where a member's gradient must not depend on the others."""
    members = ensembles.stack(lambda key: MLP(3, (8, 8), 2, key=key, layer_norm=layer_norm, last_scale=1.0), 2, KEY)
    inputs = jax.random.normal(KEY, (2, 7, 3))
    total = lambda outputs: jnp.sum(jnp.sin(outputs))
    slopes = lambda rows: quick_jit(jax.value_and_grad(lambda nets: total(vmap(rows)(nets, inputs))))(members)
    at_once, one_by_one = slopes(MLP.__call__), slopes(lambda net, x: vmap(net)(x))
    for found, expected in zip(jax.tree.leaves(at_once), jax.tree.leaves(one_by_one), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_hidden_activations_end_with_the_action():
    policy = DeterministicPolicy(3, (8, 6), 2, key=KEY, last_scale=1.0)
    obs = jnp.array([1.0, 2.0, -1.0])
    layers = policy.activations(obs)
    assert [layer.shape for layer in layers] == [(8,), (6,), (2,)]
    assert all((layer >= 0).all() for layer in layers[:-1])
    np.testing.assert_array_equal(layers[-1], policy(obs))
    assert (jnp.abs(policy(100 * obs)) <= 1).all()


def test_a_block_attends_as_written_out_in_numpy():
    block = Block(4, 1, key=KEY)
    tokens = np.asarray(jax.random.normal(KEY, (3, 4)))

    def normed(x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    weight = lambda layer: np.asarray(layer.weight)
    seen = normed(tokens)
    query, key, value = (seen @ weight(layer) for layer in (block.query, block.key, block.value))
    scores = np.exp(query @ key.T / 2.0)
    mixed = (scores / scores.sum(-1, keepdims=True)) @ value
    middle = tokens + mixed @ weight(block.output)
    expected = middle + np.maximum(normed(middle) @ weight(block.expand), 0) @ weight(block.contract)
    np.testing.assert_allclose(block(jnp.asarray(tokens)), expected, rtol=1e-4, atol=1e-5)


def test_keeping_the_first_token_gives_the_same_first_token():
    block = Block(8, 2, key=KEY)
    tokens = jax.random.normal(KEY, (5, 8))
    first = quick_jit(lambda own: own(tokens, keep=1))(block)
    np.testing.assert_allclose(first, quick_jit(lambda own: own(tokens))(block)[:1], rtol=1e-5, atol=1e-6)


def make_policy(last_scale=1.0, key=KEY):
    return DeterministicPolicy(3, (8, 6), 2, key=key, last_scale=last_scale)


def make_encoder(**changes):
    config = EncoderConfig(probes=5, depth=2, code=4, width=8, heads=2)
    return dataclasses.replace(config, **changes).build(3, (8, 6, 2), jax.random.key(1))


def permuted(policy, layer, order):
    """The same function with the neurons of one hidden layer in another order."""
    here, after = policy.network.layers[layer], policy.network.layers[layer + 1]
    return eqx.tree_at(
        lambda p: (
            p.network.layers[layer].weight,
            p.network.layers[layer].bias,
            p.network.layers[layer + 1].weight,
        ),
        policy,
        (here.weight[:, order], here.bias[order], after.weight[order]),
    )


def test_the_code_does_not_depend_on_the_order_of_hidden_neurons():
    policy, encoder = make_policy(), make_encoder()
    policy = eqx.tree_at(lambda p: p.network.layers[1].bias, policy, jnp.linspace(-1, 1, 6))
    swapped = permuted(policy, 1, jnp.array([3, 0, 5, 1, 4, 2]))
    obs = jnp.array([0.4, -0.2, 1.0])
    assert not jnp.allclose(policy.activations(obs)[1], swapped.activations(obs)[1])
    np.testing.assert_allclose(policy(obs), swapped(obs), rtol=1e-5)
    np.testing.assert_allclose(code_of(encoder, policy), code_of(encoder, swapped), rtol=1e-4, atol=1e-5)


def test_the_code_does_depend_on_the_order_of_actions():
    policy, encoder = make_policy(), make_encoder()
    last = policy.network.layers[-1]
    swapped = eqx.tree_at(lambda p: p.network.layers[-1].weight, policy, last.weight[:, ::-1])
    assert not jnp.allclose(code_of(encoder, policy), code_of(encoder, swapped), atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "shape"),
    [({}, (6 + 2, 8)), ({"tokens": "probes"}, (5, 8)), ({"layers": (-3, -2)}, (8 + 6, 8))],
)
def test_tokens_are_neurons_or_probes(changes, shape):
    encoder = make_encoder(**changes)
    assert encoder.sequence(make_policy()).shape == shape
    assert encoder.config.token_count((8, 6, 2)) == shape[0]
    assert code_of(encoder, make_policy()).shape == (4,)


def test_a_neuron_token_is_its_values_on_the_probes():
    encoder, policy = make_encoder(), make_policy()
    action = np.stack([np.asarray(policy(probe)) for probe in encoder.probes])
    token = action[:, 1] @ np.asarray(encoder.project.weight) + np.asarray(encoder.places[1][1])
    np.testing.assert_allclose(encoder.sequence(policy)[6 + 1], token, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trainable", [True, False])
def test_probes_learn_unless_frozen(trainable):
    encoder = make_encoder(train_probes=trainable)
    gradient = quick_jit(jax.grad(lambda e, policy: e(policy).sum()))(encoder, make_policy())
    assert bool(jnp.abs(gradient.probes).max() > 0) == trainable
    assert jnp.abs(gradient.project.weight).max() > 0


def test_without_layers_there_is_no_code():
    with pytest.raises(UsageError, match=r"--encoder\.probes, depth, .* must be at least 1"):
        make_encoder(depth=0)


def make_critic():
    head = ValueHead(
        3, 2, 4, 5, state_action_hidden=(7,), joint_hidden=(6,), layer_norm=True, key=jax.random.key(2)
    )
    head = eqx.tree_at(lambda h: h.joint.layers[-1].weight, head, jnp.ones((6, 1)))
    return FunctionalCritic(make_encoder(), head)


def test_a_critic_is_the_joint_encoder_of_two_codes():
    critic, policy = make_critic(), make_policy()
    obs, act = jnp.array([1.0, 0.0, -1.0]), jnp.array([0.2, -0.3])
    codes = code_of(critic.encoder, policy), critic.head.state_action(jnp.concatenate([obs, act]))
    both = quick_jit(lambda own: (own(policy, obs, act), own.value(own.encode(policy), obs, act)))(critic)
    np.testing.assert_allclose(both[0], critic.head.joint(jnp.concatenate(codes))[0], rtol=1e-5)
    np.testing.assert_allclose(*both)


def test_a_critic_tells_policies_apart():
    critic, obs, act = make_critic(), jnp.ones(3), jnp.zeros(2)
    value = quick_jit(lambda policy: critic(policy, obs, act))
    values = [float(value(make_policy(key=jax.random.key(i)))) for i in range(4)]
    assert len({round(value, 5) for value in values}) == 4


def test_members_of_a_stack_differ_and_match_a_loop():
    make = lambda key: make_policy(key=key)
    stack = ensembles.stack(make, 3, KEY)
    assert ensembles.size(stack) == 3
    obs = jnp.array([0.1, 0.2, 0.3])
    together = vmap(lambda policy: policy(obs))(stack)
    alone = jnp.stack([make(key)(obs) for key in jax.random.split(KEY, 3)])
    np.testing.assert_allclose(together, alone, rtol=1e-6)
    assert len({float(action) for action in together[:, 0]}) == 3
    np.testing.assert_allclose(ensembles.member(stack, 1)(obs), alone[1], rtol=1e-6)


def test_every_leaf_is_an_array():
    for tree in (make_policy(), make_critic()):
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(tree))
