"""The kernels on a real GPU beside plain JAX: `python -m pytest tests/test_gpu.py`, by itself."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic import kernels
from fcritic.agents.base import update
from fcritic.agents.fac import FAC
from fcritic.agents.recipes import find_recipe
from fcritic.kernels import blocks, heads
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
    step = jax.jit(jax.vmap(agent.critic_step, axis_name=kernels.SEEDS))
    trained, metrics = step(states, batches(seeds), keys)
    return trained.critics.opt_state[0].mu, metrics["critic_loss"]


def distances(found, wanted) -> dict[str, float]:
    """|found - wanted| / |wanted| of every leaf and, under an empty name, of all together.

    What is almost nothing beside the rest, as the gradient of the keys' biases, which is 0 but for rounding, has no
    relative error worth a bound and is left out.
    """
    pairs = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(found)}
    others = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(wanted)}
    whole = lambda leaves: np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in leaves.values()])
    pairs[""], others[""] = whole(pairs), whole(others)
    relative = lambda a, b: float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))
    least = 1e-5 * np.linalg.norm(others[""])
    counted = {name: np.asarray(leaf, np.float64) for name, leaf in others.items() if np.linalg.norm(leaf) > least}
    return {name: relative(np.asarray(pairs[name], np.float64), leaf) for name, leaf in counted.items()}


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
    monkeypatch.setattr(blocks, "fit", lambda blocks: False)
    monkeypatch.setattr(heads, "fits", lambda head, obs: False)
    jax.clear_caches()
    plain, _ = one_step(agent("bfloat16"), seeds)
    near, usual = distances(fast, wanted), distances(plain, wanted)
    assert distances(fast, plain)[""] > 0  # the kernels did run
    assert near[""] < min(0.05, 1.2 * usual[""])
    worse = {name: (near[name], usual[name]) for name in near if near[name] > max(0.05, 2 * usual[name])}
    assert not worse
    np.testing.assert_allclose(fast_loss, wanted_loss, rtol=0.01)


def test_an_iteration_written_out_is_that_of_a_loop(monkeypatch):
    """Three critic updates and one of the actors, by the same kernels: the compiler may order sums otherwise.

    Found on an H200: 0.014 for critics or actors in one run, 0 for the critics in another. The same iteration in
    float32 was 0.11 from it for the critics: first steps of Adam are signs of gradients.
    """
    agent = dataclasses.replace(find_recipe("fac-shared"), members=4, batch_size=ROWS, precision="bfloat16")
    keys = jax.random.split(jax.random.key(0), 1)
    four = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[:, ::-1], leaf, leaf[:, ::-1]], axis=1), batches(1))

    def iterate():
        one = lambda state, group, key, once: update(agent, state, group, key, (True,), once)
        step = jax.jit(jax.vmap(one, in_axes=(0, 0, 0, None), axis_name=kernels.SEEDS))
        state, _ = step(jax.vmap(partial(agent.init, SPEC))(keys), four, keys, jnp.asarray(1))
        return state.critics.opt_state[0].mu, state.actors.opt_state[0].mu

    written_out = iterate()
    monkeypatch.setattr(FAC, "unrolled_on_gpu", False)
    for found, wanted in zip(written_out, iterate(), strict=True):
        assert distances(found, wanted)[""] < 0.03
