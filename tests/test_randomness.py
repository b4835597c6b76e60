"""The generator gives Threefry's published answers and JAX's own numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic.randomness import stream, threefry

# Key, counter and result from the test vectors that the authors of Random123 publish.
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("key", "counter", "result"), KNOWN)
def test_published_answers(key, counter, result):
    got = threefry(jnp.array(key, jnp.uint32), *(jnp.uint32(word) for word in counter))
    assert tuple(int(word) for word in got) == result


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: jax.random.key_data(jax.random.split(key, 5)),
        lambda key: jax.random.key_data(jax.random.fold_in(key, 77)),
        lambda key: jax.random.normal(key, (3, 4)),
        lambda key: jax.random.bits(key, (7,), "uint8"),
        lambda key: jax.random.bits(key, (7,), "uint16"),
        lambda key: jax.random.permutation(key, 9),
        lambda key: jax.random.uniform(jax.random.split(key, (2, 2))[1, 0]),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_the_same_numbers_as_jax(draw, seed):
    expected = draw(jax.random.key(seed))
    np.testing.assert_array_equal(draw(stream(seed)), expected)  # by NumPy as far as it goes
    np.testing.assert_array_equal(jax.jit(draw)(stream(seed)), expected)


def test_a_batch_of_keys_draws_what_each_key_draws():
    keys = jax.random.split(stream(3), 4)
    together = jax.vmap(lambda key: jax.random.normal(key, (5,)))(keys)
    for key, row in zip(keys, together, strict=True):
        np.testing.assert_array_equal(jax.random.normal(key, (5,)), row)
