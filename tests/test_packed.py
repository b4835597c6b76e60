"""Networks as vectors: nothing but the number of arrays changes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fcritic.agents.cloud import Cloud
from fcritic.agents.fac import FAC
from fcritic.kernels.packing import Packed, pack, pack_like, unpack
from fcritic.networks.actor_encoder import EncoderConfig
from fcritic.networks.mlp import MLP
from fcritic.training import device as programs
from fcritic.training.device import Device, Learning
from fcritic.types import EnvSpec, Transition

SPEC = EnvSpec(obs_dim=3, act_dim=2)


def same(found, wanted) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_a_vector_holds_every_number_once_and_gives_the_tree_back():
    tree = {"net": MLP(3, (4,), 2, key=jax.random.key(0), layer_norm=True), "count": jnp.arange(2)}
    packed = pack(tree, (MLP,))
    assert isinstance(packed["net"], Packed)
    assert [leaf.shape for leaf in jax.tree.leaves(packed)] == [(2,), (3 * 4 + 4 + 4 * 2 + 2 + 2 * 4,)]
    same(unpack(packed), tree)
    same(pack_like(packed, tree), packed)
    same(unpack(tree), tree)


def test_a_tree_is_packed_for_each_seed():
    trees = jax.vmap(lambda number: {"a": jnp.full((2, 2), number), "b": number[None]})(jnp.arange(3.0))
    vectors = jax.vmap(Packed.of)(trees)
    assert vectors.vector.shape == (3, 5)
    same(jax.vmap(unpack)(vectors), trees)


class Calm(FAC):
    """FAC whose Adam divides no gradient by less than a hundredth.

    The gradient of some parameters is exactly zero, for example that of the biases of keys, which softmax does not
    see. What rounding leaves of it Adam would divide by itself: steps of full length in directions by chance.
    """

    def optimiser(self):
        return optax.adam(self.learning_rate, eps=0.01)


PLAIN = {"functional": False}
FULL = {"prior_scale": 1.0}
CLOUD = {
    "encoder": EncoderConfig(kind="behaviour", probes=5, code=4, width=8, shared=True, probe_states="replay"),
    "cloud": Cloud(policies=3, rows=2, bank=3, every=1),
}


@pytest.mark.parametrize("changes", [PLAIN, FULL, CLOUD], ids=["plain critics", "priors", "a cloud"])
def test_learning_and_acting_are_the_same_with_vectors(tiny, monkeypatch, changes):
    """What a GPU does, on whatever device there is."""
    agent = Calm(**vars(tiny) | {"encoder": dataclasses.replace(tiny.encoder, shared=True)} | changes)
    learning = Learning(agent, SPEC, 2, 20, normalize=True, recency=8.0)
    draw = np.random.default_rng(0).normal(size=(4, 2, 2, 9)).astype(np.float32)
    steps = [Transition(d[..., :3], d[..., 3:5], d[..., 5], d[..., 5] * 0 + 1, d[..., 6:]) for d in draw]
    found = {}
    for packs in (False, True):
        monkeypatch.setattr(programs, "on_gpu", lambda packs=packs: packs)
        device = Device(learning, learning.start([1, 2]))
        for number, step in enumerate(steps):
            device.learn(step, number)
        action = device.act(steps[0].obs, np.zeros((2, 2), bool), 9)
        found[packs] = (device.state, action, len(device.leaves))
    assert found[True][2] < found[False][2] / 3
    assert jax.tree.structure(found[True][0]) == jax.tree.structure(found[False][0])
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, found[True][:2], found[False][:2])
