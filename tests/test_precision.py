"""Precision, and the kernels that compute in bfloat16, beside plain float32: interpreted, so they run anywhere."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import quick_jit

from fcritic import ensembles, kernels
from fcritic.agents.fac import FAC
from fcritic.agents.recipes import find_recipe
from fcritic.kernels import blocks, heads
from fcritic.kernels import policies as policy_kernels
from fcritic.kernels.blocks import bits_must_repeat
from fcritic.networks.actor_encoder import EncoderConfig
from fcritic.networks.policies import DeterministicPolicy
from fcritic.networks.precision import lower
from fcritic.types import EnvSpec, Transition

SPEC = EnvSpec(5, 3)
SMALL = FAC(
    members=2,
    batch_size=128,
    actor_hidden=(32, 32),
    state_action_hidden=(64, 64),
    state_action_code=32,
    joint_hidden=(64, 64),
    encoder=EncoderConfig(probes=16, depth=1, width=32, code=16, shared=False),
)


@pytest.fixture
def interpreted(monkeypatch):
    """The kernels compute, on whatever device there is."""
    monkeypatch.setattr(kernels, "INTERPRET", True)


def batch(seed: int = 0) -> Transition:
    draw = lambda *shape: jnp.asarray(np.random.default_rng(seed).normal(size=(128, *shape)), jnp.float32)
    return Transition(draw(5), draw(3), draw(), jnp.ones(128), draw(5))


def distance(found, wanted) -> float:
    """|found - wanted| / |wanted| over all leaves together."""
    flat = lambda tree: jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])
    return float(jnp.linalg.norm(flat(found) - flat(wanted)) / jnp.linalg.norm(flat(wanted)))


def one_step(agent: FAC):
    """Gradients of the critics (first moments after a step), what the update reports, and the state after it."""
    state, key = agent.init(SPEC, jax.random.key(0)), jax.random.key(1)
    trained, metrics = quick_jit(agent.critic_step)(state, batch(), key)
    return trained.critics.opt_state[0].mu, metrics, trained


def test_kernels_are_no_further_from_float32_than_plain_bfloat16(monkeypatch):
    wanted, wanted_metrics, _ = one_step(dataclasses.replace(SMALL, precision="float32"))
    plain, _, _ = one_step(dataclasses.replace(SMALL, precision="bfloat16"))
    monkeypatch.setattr(kernels, "INTERPRET", True)
    fast, fast_metrics, _ = one_step(dataclasses.replace(SMALL, precision="bfloat16"))
    assert distance(plain, fast) > 0  # the kernels did run
    assert distance(fast, wanted) < min(0.02, 1.2 * distance(plain, wanted))  # bfloat16 has 8 bits
    for name, value in wanted_metrics.items():
        assert float(fast_metrics[name]) == pytest.approx(float(value), rel=0.03, abs=2e-3), name


@pytest.mark.parametrize(("probes", "hidden"), [(8, 30), (64, 32)])
def test_codes_of_a_stack_are_those_of_each_policy(interpreted, probes, hidden):
    """Odd numbers of tokens and padding: no token may see the padding. Policies that fit have kernels too."""
    config = EncoderConfig(probes=probes, depth=1, width=32, code=8)
    make = lambda key: DeterministicPolicy(5, (hidden, hidden), 3, key=key, last_scale=0.5)
    policies = ensembles.stack(make, 3, jax.random.key(0))
    encoder = config.build(5, (hidden, hidden, 3), jax.random.key(1))
    lowered = lower(encoder, jnp.dtype("bfloat16"))
    codes = quick_jit(lambda own: kernels.codes(lowered, own))(policies).astype(jnp.float32)
    assert distance(codes, quick_jit(jax.vmap(encoder))(policies)) < 0.02
    one = lower(ensembles.member(policies, 0), jnp.dtype("bfloat16"))
    assert policy_kernels.fit(one, lowered.probes) == (hidden == 32)


def test_seeds_can_be_mapped_over_kernels(interpreted):
    """vmap adds axes to the grid: each seed gets its own numbers."""
    make = lambda seed: SMALL.init(SPEC, jax.random.key(seed)).critics.params.head
    lowered = [lower(ensembles.member(make(seed), 0), jnp.dtype("bfloat16")) for seed in (0, 1)]
    codes, rows = jnp.ones((2, 16), jnp.bfloat16), batch()
    act = jnp.broadcast_to(rows.act, (2, *rows.act.shape))
    values = lambda head: heads.values(head, codes, rows.obs, act)
    both = quick_jit(jax.vmap(values))(ensembles.stack_all(lowered))
    for index in (0, 1):
        np.testing.assert_allclose(both[index], quick_jit(values)(lowered[index]), rtol=1e-3, atol=1e-5)
    assert float(jnp.abs(both[0] - both[1]).max()) > 1e-4


def test_what_is_learned_stays_in_float32():
    for name in ("fac-small", "sac", "td3"):
        agent = dataclasses.replace(find_recipe(name), precision="bfloat16")
        state = jax.eval_shape(lambda agent=agent: agent.init(SPEC, jax.random.key(0)))
        rows = jax.eval_shape(lambda: batch())
        state = jax.eval_shape(lambda s, b, agent=agent: agent.critic_step(s, b, jax.random.key(0))[0], state, rows)
        assert all(leaf.dtype in (jnp.float32, jnp.int32) for leaf in jax.tree.leaves(state))


def test_off_a_gpu_the_default_is_float32():
    assert FAC().compute_dtype == jnp.float32 and find_recipe("sac").compute_dtype == jnp.float32
    assert dataclasses.replace(FAC(), precision="bfloat16").compute_dtype == jnp.bfloat16


def test_heads_that_do_not_fit_take_the_plain_path(interpreted):
    odd = dataclasses.replace(SMALL, joint_hidden=(48, 48), precision="bfloat16")
    head = lower(odd.init(SPEC, jax.random.key(0)).critics.params.head, jnp.dtype("bfloat16"))
    assert not heads.fits(head, batch().obs)
    assert jnp.isfinite(one_step(odd)[1]["critic_loss"])


@pytest.mark.parametrize(
    ("flags", "must"),
    [
        ("", False),
        ("--xla_gpu_deterministic_ops=false", False),
        ("--xla_gpu_deterministic_ops=true", True),
        ("--xla_dump_to=x --xla_gpu_exclude_nondeterministic_ops=true", True),
    ],
)
def test_attention_knows_whether_bits_must_repeat(monkeypatch, flags, must):
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert bits_must_repeat() is must


def test_tiles_are_larger_where_there_is_more_to_share_out():
    def tiles(shared: bool, seeds: int, sequences: int = 10) -> int:
        rows = lambda _: blocks.rows_of_a_tile(shared, sequences)
        return int(jax.vmap(rows, axis_name=kernels.SEEDS, out_axes=None)(jnp.zeros(seeds)))

    assert [tiles(True, 1), tiles(True, 4), tiles(False, 1)] == [32, 128, 128]
    assert [tiles(False, 1, sequences=1), tiles(False, 4, sequences=1)] == [32, 128]  # as in the actors' update
    assert blocks.rows_of_a_tile(True, 10) == 32  # outside of training too


def codes_and_gradients(first_codes, encoders, sequences, along, dtype: str):
    """Of a stack of encoders, each with its own sequences."""

    def codes(encoder, rows):
        encoder = lower(encoder, jnp.dtype(dtype))
        return first_codes(encoder.blocks, encoder.norm, encoder.read, rows.astype(dtype)).astype(jnp.float32)

    def total(encoders, rows):
        found = jax.vmap(codes)(encoders, rows)
        return (found * along).sum(), found

    gradients, found = quick_jit(jax.grad(total, argnums=(0, 1), has_aux=True))(encoders, sequences)
    return found, (gradients[0].blocks, gradients[0].norm, gradients[0].read, gradients[1])


def plain_codes(stack, norm, read, rows):
    for block in stack:
        rows = jax.vmap(block)(rows)
    return jax.vmap(lambda token: read(norm(token)))(rows[:, 0])


@pytest.mark.parametrize(
    ("tile", "code", "encoders", "columns", "again"),
    [(32, 32, 1, 32, False), (128, 8, 1, 32, True), (32, 32, 2, 16, True), (128, 32, 2, 16, False)],
)
def test_codes_and_gradients_of_several_blocks_are_those_of_the_plain_ones(
    interpreted, monkeypatch, tile, code, encoders, columns, again
):
    """Six sequences of 71 tokens: tiles cross their ends, and the last block computes fewer rows. Codes as wide as
    the blocks are read by the kernels too; weights are loaded whole or in parts, gradients kept or read again."""
    for name in ("FORWARD", "BACKWARD"):
        place = {"FORWARD": 2, "BACKWARD": 3}[name]
        table = getattr(blocks, name).items()
        how = {rows: (*how[:place], columns, *([again] if how[place + 1 :] else [])) for rows, how in table}
        monkeypatch.setattr(blocks, name, how)
    config = EncoderConfig(probes=8, depth=3, width=32, code=code)
    stack = ensembles.stack(lambda key: config.build(5, (30, 30, 3), key), encoders, jax.random.key(1))
    sequences = jax.random.normal(jax.random.key(0), (encoders, 6, 71, 32))
    along = jax.random.normal(jax.random.key(1), (encoders, 6, code))
    given = stack, sequences, along
    codes, gradients = codes_and_gradients(
        lambda *parts: blocks.first_codes(*parts, tile), *given, dtype="bfloat16"
    )
    wanted_codes, wanted = codes_and_gradients(plain_codes, *given, dtype="float32")
    assert distance(codes, wanted_codes) < 0.02
    assert distance(gradients, wanted) < 0.05  # plain bfloat16: 0.03
    for index in range(encoders):
        assert distance(ensembles.member(codes, index), ensembles.member(wanted_codes, index)) < 0.02
        assert distance(ensembles.member(gradients, index), ensembles.member(wanted, index)) < 0.05


@pytest.mark.parametrize(("tile", "reach", "columns"), [(32, None, 64), (64, 0.5, 16)])
def test_layers_of_policies_and_their_gradients_are_those_of_the_plain_ones(
    interpreted, monkeypatch, tile, reach, columns
):
    """80 probes, no whole tiles, of two encoders, and three policies; both get gradients, each its own."""
    monkeypatch.setattr(policy_kernels, "HOW", (tile, 4, 2, columns))
    make = lambda key: DeterministicPolicy(5, (32, 32), 3, key=key, last_scale=0.5, reach=reach)
    policies = ensembles.stack(make, 3, jax.random.key(0))
    probes = jax.random.normal(jax.random.key(1), (2, 80, 5))
    along = [jax.random.normal(jax.random.key(2), (2, 3, 80, width)) for width in (32, 3)]

    def total(policies, probes, layers, dtype):
        policies = lower(policies, jnp.dtype(dtype))
        over_policies = jax.vmap(layers, in_axes=(0, None))
        found = jax.vmap(over_policies, in_axes=(None, 0))(policies, probes.astype(dtype))
        found = [layer.astype(jnp.float32) for layer in found]
        return sum((a * b).sum() for a, b in zip(found, along, strict=True)), found

    def found(layers, dtype):
        return quick_jit(jax.grad(lambda *pair: total(*pair, layers, dtype), argnums=(0, 1), has_aux=True))(
            policies, probes
        )

    low = lower(ensembles.member(policies, 0), jnp.dtype("bfloat16"))
    assert policy_kernels.fit(low, probes[0].astype("bfloat16"))
    gradients, layers = found(policy_kernels.last_layers, "bfloat16")
    plain = lambda policy, rows: jax.vmap(policy.activations)(rows)[1:]
    wanted, wanted_layers = found(plain, "float32")
    assert distance(layers, wanted_layers) < 0.01
    usual = found(plain, "bfloat16")[0]
    for own, near, exact in zip(*(jax.tree.leaves(tree) for tree in (gradients, usual, wanted)), strict=True):
        assert distance(own, exact) < min(0.1, 1.2 * distance(near, exact))
