"""The kernels on a real GPU beside plain JAX: `python -m pytest tests/test_gpu.py`, by itself."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic.agents.fac import FAC
from fcritic.agents.recipes import find_recipe
from fcritic.networks import attention_kernels, fused_blocks, product
from fcritic.networks.transformer import attend
from fcritic.types import EnvSpec, Transition

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "gpu", reason="no GPU, or other tests run with it, which use the CPU"
)
SPEC, ROWS = EnvSpec(17, 6), 128


def batches(seeds: int) -> Transition:
    draw = lambda *shape: jnp.asarray(np.random.default_rng(0).normal(size=(seeds, ROWS, *shape)), jnp.float32)
    return Transition(draw(17), jnp.tanh(draw(6)), draw(), jnp.ones((seeds, ROWS)), draw(17))


def one_step(agent: FAC, seeds: int):
    """First moments of the critics, which are their gradients times a number, and the losses."""
    keys = jax.random.split(jax.random.key(0), seeds)
    states = jax.vmap(partial(agent.init, SPEC))(keys)
    step = jax.jit(jax.vmap(agent.critic_step, axis_name=fused_blocks.SEEDS))
    trained, metrics = step(states, batches(seeds), keys)
    return trained.critics.opt_state[0].mu, metrics["critic_loss"]


def distances(found, wanted) -> dict[str, float]:
    """|found - wanted| / |wanted| of every leaf and, under an empty name, of all together."""
    pairs = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(found)}
    others = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(wanted)}
    whole = lambda leaves: np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in leaves.values()])
    pairs[""], others[""] = whole(pairs), whole(others)
    relative = lambda a, b: float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))
    return {name: relative(np.asarray(leaf, np.float64), np.asarray(others[name])) for name, leaf in pairs.items()}


@pytest.mark.parametrize("seeds", [1, 4])
@pytest.mark.parametrize("recipe", ["fac-shared", "fac"])
def test_an_update_by_kernels_is_no_further_from_float32_than_plain_bfloat16(monkeypatch, recipe, seeds):
    """Bounds: a loss within 1 %, all gradients together within 1.2 times what bfloat16 costs anyway."""
    agent = lambda precision: dataclasses.replace(
        find_recipe(recipe), members=4, batch_size=ROWS, precision=precision
    )
    fast, fast_loss = one_step(agent("bfloat16"), seeds)
    with jax.default_matmul_precision("highest"):
        wanted, wanted_loss = one_step(agent("float32"), seeds)
    monkeypatch.setattr(fused_blocks, "fit", lambda blocks: False)
    monkeypatch.setattr(product, "fits", lambda head, obs: False)
    jax.clear_caches()
    plain, _ = one_step(agent("bfloat16"), seeds)
    near, usual = distances(fast, wanted), distances(plain, wanted)
    assert distances(fast, plain)[""] > 0  # the kernels did run
    assert near[""] < min(0.05, 1.2 * usual[""])
    # A leaf whose gradient is almost nothing, as the bias of keys, has no relative error worth a bound.
    worse = {name: (near[name], usual[name]) for name in near if near[name] > max(0.05, 2 * usual[name])}
    assert not worse
    np.testing.assert_allclose(fast_loss, wanted_loss, rtol=0.01)


@pytest.mark.parametrize(("heads", "keep"), [(1, 288), (1, 16), (4, 288)])
def test_attention_and_its_gradient(heads, keep):
    """Of 263 tokens, 25 rows of padding; within 1 % of float32, where plain bfloat16 is at 0.3 %."""
    joined = jax.random.normal(jax.random.key(0), (3 * 288, 384)).astype(jnp.bfloat16)
    along = jax.random.normal(jax.random.key(1), (3, keep, 128)).at[:, 263:].set(0).reshape(-1, 128)

    def plain(joined):
        query, key, value = (part.reshape(3, 288, heads, -1) for part in jnp.split(joined, 3, axis=1))
        return jax.vmap(attend)(query[:, :keep], key[:, :263], value[:, :263]).reshape(-1, 128)

    def both(function, rows):
        total = lambda rows: (function(rows).astype(jnp.float32) * along).sum()
        return function(rows) * (along != 0), jax.grad(total)(rows)

    found = jax.jit(partial(both, lambda rows: attention_kernels.attend(rows, heads, 288, 263, keep, False)))(
        joined
    )
    with jax.default_matmul_precision("highest"):
        wanted = jax.jit(partial(both, plain))(joined.astype(jnp.float32))
    for name, distance in distances(found, wanted).items():
        assert distance < 0.01, name
