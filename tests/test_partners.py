"""Critics that are not as many as the actors."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import actor_step, critic_step, quick_jit
from test_losses import start

from fcritic import ensembles
from fcritic.errors import UsageError

KEY = jax.random.key(3)


@pytest.fixture
def crowd(tiny):
    """More critics than actors."""
    return dataclasses.replace(tiny, members=2, critics=5, pairing="mean")


def test_more_critics_than_actors_learn_and_improve_them(crowd, spec, batch):
    state = start(crowd, spec)
    assert ensembles.size(state.actors.params) == 2 and ensembles.size(state.critics.params.head) == 5
    learned, _ = critic_step(crowd, state, batch, KEY)
    moved, _ = actor_step(crowd, learned, batch, KEY)
    for i in range(5):
        pair = (ensembles.member(each.critics.params.head, i) for each in (state, learned))
        assert all(bool((x != y).any()) for x, y in zip(*map(jax.tree.leaves, pair), strict=True))
    assert ensembles.size(moved.actors.params) == 2
    assert quick_jit(crowd.disagreement)(moved, batch.obs).shape == (2,)
    assert crowd.describe(spec)["critics"] == 5 and crowd.describe(spec)["members"] == 2


def test_without_pairs_critics_must_be_asked_for_their_mean(tiny):
    with pytest.raises(UsageError, match="--pairing mean"):
        dataclasses.replace(tiny, critics=tiny.members + 1)
    assert dataclasses.replace(tiny, critics=tiny.members).critic_count == tiny.members


def test_plain_critics_without_pairs_have_one_value_for_all_actors(crowd, spec, batch):
    """All learn toward r + gamma d times the mean over actors of each critic's delayed value."""
    plain = dataclasses.replace(crowd, functional=False)
    state, nothing = start(plain, spec), jnp.zeros(0)
    _, metrics = critic_step(plain, state, batch, KEY)
    targets = []
    for i in range(5):
        head = ensembles.member(state.targets, i)
        act = quick_jit(jax.vmap(lambda policy: jax.vmap(policy)(batch.next_obs)))(state.actors.params)
        each = quick_jit(jax.vmap(jax.vmap(lambda s, a, head=head: head(nothing, s, a)), in_axes=(None, 0)))(
            batch.next_obs, act
        )
        targets.append(np.mean(batch.reward + plain.discount * batch.discount * each.mean(axis=0)))
    np.testing.assert_allclose(metrics["target_value"], np.mean(targets), rtol=1e-4)
    moved, _ = actor_step(plain, state, batch, KEY)
    assert all(
        bool((x != y).any()) for x, y in zip(*map(jax.tree.leaves, (moved.actors, state.actors)), strict=True)
    )
