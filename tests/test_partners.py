"""Critics that are not as many as the actors."""

import dataclasses

import jax
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
    with pytest.raises(UsageError, match="plain critics value their own actor only"):
        dataclasses.replace(tiny, functional=False, pairing="mean")
