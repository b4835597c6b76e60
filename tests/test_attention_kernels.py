"""Attention by kernels, interpreted on the CPU, beside the plain one in float32."""

import jax
import jax.numpy as jnp
import pytest

from fcritic.networks import attention_kernels
from fcritic.networks.transformer import attend

ACTORS, PADDED, TOKENS, WIDTH = 2, 96, 71, 32


@pytest.fixture
def joined():
    return jax.random.normal(jax.random.key(0), (ACTORS * PADDED, 3 * WIDTH)).astype(jnp.bfloat16)


def plain(joined, heads: int, keep: int):
    query, key, value = (part.reshape(ACTORS, PADDED, heads, -1) for part in jnp.split(joined, 3, axis=1))
    return jax.vmap(attend)(query[:, :keep], key[:, :TOKENS], value[:, :TOKENS]).reshape(-1, WIDTH)


def with_gradient(function, joined, keep: int):
    """What the kept rows that are no padding become, and the gradient of a sum over them."""
    along = jax.random.normal(jax.random.key(1), (ACTORS, keep, WIDTH)).at[:, TOKENS:].set(0).reshape(-1, WIDTH)
    total = lambda rows: (function(rows).astype(jnp.float32) * along).sum()
    return jax.jit(lambda rows: (jnp.where(along != 0, function(rows), 0), jax.grad(total)(rows)))(joined)


def distance(found, wanted) -> float:
    return float(jnp.linalg.norm(found.astype(jnp.float32) - wanted) / jnp.linalg.norm(wanted))


@pytest.mark.parametrize(("heads", "keep", "chunk"), [(1, PADDED, 32), (2, 16, 64)])
def test_attention_is_the_plain_one(monkeypatch, joined, heads, keep, chunk):
    """Chunks of 64 leave 32 rows over; the second case computes 16 rows of a sequence only."""
    monkeypatch.setattr(attention_kernels, "CHUNK", chunk)
    monkeypatch.setattr(attention_kernels, "BACK_CHUNK", chunk)
    ours = lambda rows: attention_kernels.attend(rows, heads, PADDED, TOKENS, keep, True)
    found = with_gradient(ours, joined, keep)
    wanted = with_gradient(lambda rows: plain(rows, heads, keep), joined.astype(jnp.float32), keep)
    for ours_, theirs in zip(found, wanted, strict=True):
        assert distance(ours_, theirs) < 0.005  # plain bfloat16: 0.003


def test_padding_is_not_seen_and_gets_no_gradient(joined):
    changed = joined.reshape(ACTORS, PADDED, -1).at[:, TOKENS:].set(100.0).reshape(joined.shape)
    ours = jax.jit(lambda rows: attention_kernels.attend(rows, 1, PADDED, TOKENS, 16, True))
    assert (ours(joined) == ours(changed)).all()
    gradient = jax.jit(jax.grad(lambda rows: ours(rows).astype(jnp.float32).sum()))(joined)
    assert (gradient.reshape(ACTORS, PADDED, -1)[:, TOKENS:] == 0).all()
