"""Use of what critics know: the actor that begins an episode, and the worst actor, replaced by a past one."""

import dataclasses
import json

import jax
from jax import vmap
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import actor_step, quick_jit
from test_fsac import SOFT, awake, same

import fcritic
from fcritic import ensembles
from fcritic.agents.choice import LEAD, Explore, Explorer, most_promising
from fcritic.agents.cloud import STATES, Cloud
from fcritic.agents.fac import FAC
from fcritic.agents.steering import Trust
from fcritic.errors import UsageError
from fcritic.networks.critics import FunctionalCritic
from fcritic.training.loop import train
from fcritic.training.saving import load_state

KEY = jax.random.key(3)
DOUBT = -1.0  # with which these actors differ from state to state
OPTIMIST = dataclasses.replace(SOFT, members=3, explore=Explore(choose="optimist", doubt=DOUBT))
value = quick_jit(lambda critic, policy, s: critic(policy, s, policy(s)))
choose = quick_jit(most_promising, static_argnums=(3, 4))


def state_of(spec, agent):
    """A state whose actors and values differ."""
    state = awake(spec, dataclasses.replace(agent, members=2))  # `awake` has two temperatures
    wide = agent.init(spec, jax.random.key(0))
    shaken = jax.tree.map(lambda leaf: leaf + 0.5 * jax.random.normal(KEY, leaf.shape), wide.actors.params)
    actors = dataclasses.replace(wide.actors, params=shaken)
    return dataclasses.replace(wide, actors=actors, critics=state.critics, targets=state.targets)


def each_value(state, policies, obs):
    """Q_i(pi_j, s, pi_j(s)) one by one."""
    critics = state.critics.params
    heads = range(ensembles.size(critics.head))
    one = lambda i: FunctionalCritic(critics.encoder, ensembles.member(critics.head, i))
    members = range(ensembles.size(policies))
    return np.array([[float(value(one(i), ensembles.member(policies, j), obs)) for j in members] for i in heads])


def test_the_optimist_takes_the_highest_mean_plus_doubt_deviations(spec):
    state, chosen = state_of(spec, OPTIMIST), set()
    for number in range(4):
        obs = 2 * jax.random.normal(jax.random.key(number), (3,))
        each = each_value(state, state.actors.params, obs)
        for doubt in (-20.0, 0.0, 20.0):
            score = each.mean(axis=0) + doubt * each.std(axis=0)
            found = int(choose(state.actors.params, state.valued_by, obs, doubt, 3))
            assert found == score.argmax()
            assert int(choose(state.actors.params, state.valued_by, obs, doubt, 2)) == score[:2].argmax()
            chosen.add(found)
    assert len(chosen) > 1


def test_the_actor_of_the_first_state_plays_the_whole_episode(spec):
    """Also where another would be chosen at a later state; each environment has its own."""
    state = state_of(spec, OPTIMIST)
    memory = OPTIMIST.begin_episode(spec, KEY)
    assert int(memory) == LEAD
    policy = OPTIMIST.rollout_policy(state)
    act = quick_jit(vmap(OPTIMIST.act, in_axes=(None, 0, 0, 0)))
    obs, expected = [], []
    for each in 2 * jax.random.normal(KEY, (16, 3)):
        values = each_value(state, state.actors.params, each)
        score = values.mean(axis=0) + DOUBT * values.std(axis=0)
        if np.diff(np.sort(score))[-1] > 1e-3:  # no rounding decides
            obs.append(each)
            expected.append(int(score.argmax()))
    assert len(set(expected)) > 1
    count, keys = len(obs), jax.random.split(KEY, len(obs))
    _, first = act(policy, jnp.full(count, LEAD), jnp.stack(obs), keys)
    assert first.tolist() == expected
    _, later = act(policy, first, jnp.stack(obs[::-1]), keys)
    assert later.tolist() == expected


def test_the_optimist_explores_with_noise_too(spec):
    agent = FAC(
        members=2, actor_hidden=(8,), joint_hidden=(6,), encoder=SOFT.encoder,
        explore=Explore(noise=0.1, choose="optimist"),
    )  # fmt: skip
    memory = agent.begin_episode(spec, KEY)
    assert isinstance(memory, Explorer) and int(memory.actor) == LEAD
    state = agent.init(spec, KEY)
    _, after = quick_jit(agent.act)(agent.rollout_policy(state), memory, jnp.ones(3), KEY)
    assert isinstance(after, Explorer) and int(after.actor) in (0, 1)


BREEDING = dataclasses.replace(SOFT, cloud=Cloud(bank=4, every=2, replace_every=6))


def bred(spec, batch, updates, shift):
    """A state whose bank has had so many updates, with past actors whose values are shifted by their bias; and what
    an actor step makes of it."""
    state = awake(spec, BREEDING)
    past = jax.tree.map(lambda leaf: leaf + shift * jax.random.normal(KEY, leaf.shape), state.bank.stored)
    state = dataclasses.replace(
        state, bank=dataclasses.replace(state.bank, stored=past, updates=jnp.int32(updates))
    )
    return state, actor_step(BREEDING, state, batch, KEY)[0]


def means(state, policies, obs):
    return np.mean([each_value(state, policies, each) for each in obs], axis=(0, 1))


def test_the_worst_actor_becomes_the_best_past_one(spec, batch):
    state, after = bred(spec, batch, 5, 0.5)
    without = dataclasses.replace(BREEDING, cloud=dataclasses.replace(BREEDING.cloud, replace_every=0))
    plain = dataclasses.replace(state, bank=dataclasses.replace(state.bank, replaced=None))
    moved = actor_step(without, plain, batch, KEY)[0]
    obs = batch.obs[:STATES]
    past = ensembles.member(moved.bank.stored, np.arange(3))  # three have been stored, the fourth place is none yet
    ours, theirs = means(state, moved.actors.params, obs), means(state, past, obs)
    assert theirs.max() > ours.min() + 1e-3
    worst, best = int(ours.argmin()), int(theirs.argmax())
    assert same(ensembles.member(after.actors.params, worst), ensembles.member(past, best))
    assert same(ensembles.member(after.actors.params, 1 - worst), ensembles.member(moved.actors.params, 1 - worst))
    assert same(after.actors.opt_state, moved.actors.opt_state) and int(after.bank.replaced) == 1


def test_no_actor_is_replaced_before_it_is_time_or_by_a_worse_one(spec, batch):
    state, after = bred(spec, batch, 3, 0.5)  # the fourth update
    assert int(after.bank.replaced) == 0
    state = awake(spec, BREEDING)
    bank = dataclasses.replace(state.bank, updates=jnp.int32(5))
    far = dataclasses.replace(bank, stored=jax.tree.map(lambda leaf: leaf + 0.5, bank.stored))
    for stored in (bank, far):
        held = dataclasses.replace(state, bank=stored)
        after = actor_step(BREEDING, held, batch, KEY)[0]
        better = means(held, ensembles.member(stored.stored, np.arange(3)), batch.obs).max()
        least = means(held, state.actors.params, batch.obs).min()
        if abs(better - least) > 0.05:  # an update moves values by less
            assert int(after.bank.replaced) == int(better > least)


def test_choice_and_replacement_are_continued_exactly(tmp_path):
    sizes = {"actor_hidden": (8,), "joint_hidden": (8,), "batch_size": 8, "critics": 2, "members": 2}
    encoder = {"probes": 4, "code": 4, "width": 8}
    cloud = {"policies": 3, "rows": 2, "bank": 4, "every": 2, "replace_every": 3}
    often = {"steps": 160, "warmup": 40, "eval_every": 80, "explore": {"choose": "optimist"}}
    config = fcritic.configure("fsac-small", "probe-both", encoder=encoder, cloud=cloud, **sizes, **often)
    whole = train(config, tmp_path / "whole", quiet=True)
    train(dataclasses.replace(config, steps=91), tmp_path / "parts", quiet=True)
    parts = train(config, tmp_path / "parts", quiet=True)
    states = [load_state(config, run.latest_checkpoint())[0].agent for run in (whole, parts)]
    assert same(*states)
    rows = [json.loads(line) for line in whole.metrics.path.read_text().splitlines()]
    told = [row["replaced"] for row in rows if row["kind"] == "behaviour"]
    assert told == sorted(told) and told[-1] == int(states[0].bank.replaced[0]) > 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trust": Trust(behaviour=True)}, "leave out --trust.behaviour"),
        (
            {"explore": Explore(choose="optimist", per_step=True)},
            "leave out --trust.behaviour and --explore.per-step",
        ),
        ({"names": True}, "asks critics that see policies"),
        ({"functional": False}, "asks critics that see policies"),
        ({"cloud": Cloud(replace_every=5)}, "--cloud.replace-every needs past actors"),
        ({"explore": Explore(), "names": True, "cloud": Cloud(bank=3, replace_every=5)}, "needs past actors"),
    ],
)
def test_what_cannot_be_is_refused(changes, said):
    with pytest.raises(UsageError) as refused:
        dataclasses.replace(OPTIMIST, **changes)
    assert said in str(refused.value)


def test_numbers_that_choose_nothing_are_refused():
    with pytest.raises(UsageError, match=r"--explore.doubt must be a finite number"):
        Explore(doubt=float("nan"))
    with pytest.raises(UsageError, match=r"--cloud.replace-every must be at least 0"):
        Cloud(replace_every=-1)
