"""Algorithm 3 with networks: who acts, who rests, how far actors step."""

import dataclasses
from functools import partial
import itertools

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
import numpy as np
import pytest
from trusted_agents import SPEC, TRUST, agent_of, rows

from fcritic import ensembles
from fcritic.agents import actor_trust, base, trust_metrics
from fcritic.agents.fac import Led
from fcritic.agents.steering import Trust
from fcritic.errors import UsageError
from fcritic.training.device import Device, Learning, _learned


def steered(**bounds):
    """An actor update from the same state with and without bounds, and the state before."""
    plain = agent_of()
    bound = dataclasses.replace(plain, trust=dataclasses.replace(TRUST, **bounds))
    before = bound.init(SPEC, jax.random.key(0))
    ends = [
        jax.jit(agent.actor_step)(agent.steer(state, rows(0), rows(0)), rows(0), jax.random.key(1))[0]
        for agent, state in ((plain, plain.init(SPEC, jax.random.key(0))), (bound, before))
    ]
    return before, *ends


def moves(before, after):
    """The length of each actor's step."""
    each = jax.tree.map(
        lambda old, new: ((new - old) ** 2).reshape(2, -1).sum(axis=1), before.actors.net, after.actors.net
    )
    return np.sqrt(sum(np.asarray(leaf) for leaf in jax.tree.leaves(each)))


def test_actors_rest_above_a_bound_of_coverage_and_are_free_below():
    before, plain, resting = steered(rest_above=1e-3)
    assert (moves(before, plain) > 1e-3).all()
    assert (moves(before, resting) == 0).all()
    assert resting.steering.actor_updates.tolist() == [0, 0]
    before, plain, free = steered(rest_above=1e6)
    np.testing.assert_allclose(moves(before, free), moves(before, plain), rtol=1e-3)
    assert free.steering.actor_updates.tolist() == [1, 1]


def test_an_actor_rests_where_the_newest_states_are_not_those_of_the_data():
    agent = agent_of(trust=dataclasses.replace(TRUST, rest_above=1.5))
    state, wide = agent.init(SPEC, jax.random.key(0)), rows(0)
    narrow = wide._replace(obs=wide.obs * jnp.array([[1.0, 0.1, 0.1]]))
    logged = narrow._replace(act=vmap(ensembles.member(state.actors.net, 0))(narrow.obs))
    assert float(agent.steer(state, logged, narrow).steering.steps[0]) == 1.0
    assert float(agent.steer(state, logged, wide).steering.steps[0]) == 0.0


def test_a_step_shrinks_with_the_growth_of_delta():
    before, plain, half = steered(region=0.5)  # the reference is the actor itself: growth 1
    np.testing.assert_allclose(half.steering.steps, 0.5, rtol=1e-3)
    np.testing.assert_allclose(moves(before, half), 0.5 * moves(before, plain), rtol=1e-2)


def test_who_acts_next_covers_the_actors_that_the_data_leave_out():
    agent = agent_of(trust=Trust(behaviour=True))
    state, batch = agent.init(SPEC, jax.random.key(0)), rows(0)
    lead = {}
    for known in (0, 1):  # whose actions are all that the replay holds
        far = eqx.tree_at(
            lambda p: p.network.layers[-1].bias, state.actors.net, jnp.array([[2.0, 2.0], [-2.0, -2.0]])
        )
        moved = dataclasses.replace(state, actors=dataclasses.replace(state.actors, params=far))
        policy = ensembles.member(far, known)
        logged = batch._replace(act=vmap(policy)(batch.obs))
        critics = state.critics.net
        each = actor_trust.expected(far, critics, logged, logged.obs, 2)
        for actor in range(2):
            head, code = ensembles.member(critics.head, actor), critics.encoder(ensembles.member(far, actor))
            moment = lambda act, head=head, code=code: _moment(
                np.float64(vmap(lambda s, a: head.features(code, s, a))(batch.obs, act))
            )
            acts = [vmap(ensembles.member(far, other))(batch.obs) for other in range(2)]
            before = moment(logged.act)
            ridge = trust_metrics.RANGE * np.trace(before) * np.eye(len(before))
            for other in range(2):
                mixed = (1 - actor_trust.ADDED) * before + actor_trust.ADDED * moment(acts[other]) + ridge
                brute = np.trace(np.linalg.solve(mixed, moment(acts[actor])))
                assert float(each[actor, other]) == pytest.approx(brute, rel=1e-2)
        lead[known] = int(jax.jit(agent.steer)(moved, logged, logged).steering.lead)
    assert lead == {0: 1, 1: 0}


def _moment(rows: np.ndarray) -> np.ndarray:
    return rows.T @ rows / len(rows)


@pytest.mark.parametrize("recipe", ["fac-small", "fsac-small"])
def test_the_lead_plays_the_episodes_that_begin_and_no_others(recipe: str):
    agent = agent_of(recipe, trust=Trust(behaviour=True))
    state = agent.init(SPEC, jax.random.key(0))
    far = jnp.linspace(-3, 3, state.actors.params.network.layers[-1].bias.size).reshape(2, -1)
    params = eqx.tree_at(lambda p: p.network.layers[-1].bias, state.actors.params, far)
    obs, key = jnp.zeros(3), jax.random.key(2)
    play = lambda lead, memory: agent.act(Led(params, jnp.int32(lead)), memory, obs, key)
    begun = agent.begin_episode(SPEC, jax.random.key(3))
    (first, memory), (second, _) = play(1, begun), play(0, begun)
    assert int(memory) == 1 and not np.allclose(first, second)
    again, kept = play(0, memory)  # the lead has changed within the episode
    np.testing.assert_array_equal(again, first)
    assert int(kept) == 1


@pytest.mark.parametrize("recipe", ["fac-small", "fsac-small"])
def test_critics_rest_until_delta_has_grown_and_the_ratio_is_told(recipe: str):
    agent = agent_of(recipe, trust=Trust(refresh_above=2.0, states=4))
    update = jax.jit(base.update, static_argnums=(0, 4))
    batches = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), rows(0))
    look = lambda state: jax.jit(agent.steer)(state, rows(0), rows(1))
    learned_by = lambda state: (state.critics, state.targets)

    def after(state, updates: int):
        for step in range(updates):
            state, _ = update(agent, state, batches, jax.random.key(step), (True,))
        return state

    began = look(agent.init(SPEC, jax.random.key(0)))
    assert bool(began.steering.critics_learn)  # they have learned nothing yet
    known = look(after(began, 3))
    assert int(known.steering.critic_updates) == 3 and not bool(known.steering.critics_learn)
    rested = look(after(known, 3))
    assert same(learned_by(known), learned_by(rested)) and not same(known.actors, rested.actors)
    assert int(rested.steering.critic_updates) == 3 and rested.steering.actor_updates.tolist() == [6, 6]
    assert float(rested.steering.told()["critic_ratio"]) == 0.5
    assert same(known.steering.reference, rested.steering.reference)  # from when critics learned last
    away = next(far for scale in (3.0, 10.0, 0.3, 0.1) if growth(agent, far := moved(rested, scale)).max() > 2.0)
    again = look(away)
    assert bool(again.steering.critics_learn) and same(again.steering.reference, away.actors.params)
    assert not same(learned_by(after(again, 1)), learned_by(again))


def same(one, other) -> bool:
    """Whether all numbers of two trees are equal."""
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


def moved(state, scale: float):
    """The state with other actors: their first layers larger by a factor."""
    params = eqx.tree_at(lambda p: p.network.layers[0].weight, state.actors.params, replace_fn=lambda w: scale * w)
    return dataclasses.replace(state, actors=dataclasses.replace(state.actors, params=params))


def growth(agent, state):
    """Growth of Delta since the reference."""
    given = (state.actors.net, state.critics.net, rows(1).obs, agent.trust.states, state.steering.reference)
    return actor_trust.drifts(*given)["growth"]


def test_critics_learn_where_an_actor_waits_for_them():
    agent = agent_of(trust=dataclasses.replace(TRUST, refresh_above=1e6, rest_above=1e-3))
    state = agent.init(SPEC, jax.random.key(0))
    learned = dataclasses.replace(state, steering=dataclasses.replace(state.steering, critic_updates=jnp.int32(9)))
    assert bool(agent.steer(learned, rows(0), rows(0)).steering.critics_learn)
    free = dataclasses.replace(agent, trust=dataclasses.replace(agent.trust, rest_above=1e6))
    assert not bool(free.steer(learned, rows(0), rows(0)).steering.critics_learn)


def test_seeds_measure_when_it_is_time_and_no_more_often():
    """A condition for each seed would become a choice between both, which measures in every iteration."""
    learning = lambda agent: Learning(agent, SPEC, envs=1, capacity=50, normalize=True, recency=1.0)

    def conditions(agent) -> int:
        state = learning(agent).start([0, 1])
        leaves, structure = jax.tree.flatten(state)
        given = (tuple(leaves), jnp.zeros((2, 1, state.replay.rows.shape[-1])), jnp.uint32(0))
        return str(jax.make_jaxpr(partial(_learned, learning(agent), structure, (True,)))(*given)).count("cond[")

    assert conditions(agent_of(trust=Trust(rest_above=1.0))) == conditions(agent_of(trust=Trust())) + 1


def test_an_iteration_that_is_not_due_leaves_what_was_measured():
    agent = agent_of(trust=Trust(region=1.0, every=3, rows=20))
    learning = Learning(agent, SPEC, envs=1, capacity=50, normalize=True, recency=1.0)
    device = Device(learning, learning.start([0, 1]))
    step = jax.tree.map(lambda leaf: np.asarray(leaf)[None, :1].repeat(2, axis=0), rows(0))
    references = []
    for iteration in range(7):
        device.learn(step, iteration)
        references.append(jax.device_get(device.state.agent.steering.reference))
    changed = [not same(*pair) for pair in itertools.pairwise(references)]
    assert changed == [False, False, True, False, False, True]


def test_soft_actors_rest_with_their_temperatures():
    agent = agent_of("fsac-small", trust=Trust(rest_above=1e-6))
    before = agent.steer(agent.init(SPEC, jax.random.key(0)), rows(0), rows(0))
    after = jax.jit(agent.actor_step)(before, rows(0), jax.random.key(1))[0]
    assert same((before.actors.net, before.log_temperatures.net), (after.actors.net, after.log_temperatures.net))


def test_bounds_that_are_none_are_refused():
    with pytest.raises(UsageError, match=r"--trust.rest-above must be above 0, not -1"):
        Trust(rest_above=-1.0)
    with pytest.raises(UsageError, match=r"--trust.every must be at least 1"):
        Trust(every=0)
