"""Coverage and Delta of actors that learn: by brute force, in the metrics of a training, in a picture."""

import dataclasses
import json

import equinox as eqx
import jax
from jax import vmap
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
import pytest
from test_train import stop_after

from fcritic import ensembles
from fcritic.agents import actor_trust, base
from fcritic.agents.actor_trust import Trust, drifts, features, trust_of_actors
from fcritic.agents.fac import Led
from fcritic.agents.recipes import find_recipe
from fcritic.cli.dispatch import run as command
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.logs.metrics import read_rows
from fcritic.runs.fingerprint import fingerprint
from fcritic.training import replay
from fcritic.training.loop import train
from fcritic.types import EnvSpec, Transition

SPEC = EnvSpec(3, 2)
SMALL = {
    "members": 2,
    "actor_hidden": (4,),
    "state_action_hidden": (6,),
    "state_action_code": 5,
    "joint_hidden": (7,),
    "batch_size": 8,
    "critic_steps": 1,
}
TRUST = Trust(measure=True, rows=40, states=5)


def agent_of(recipe: str = "fac-small", **options):
    agent = find_recipe(recipe)
    soft = (
        {"critics": 2, "cloud": dataclasses.replace(agent.cloud, policies=0, bank=0)}
        if recipe != "fac-small"
        else {}
    )
    return dataclasses.replace(agent, **SMALL | soft | {"trust": TRUST} | options)


def rows(seed: int) -> Transition:
    draw = np.random.default_rng(seed)
    obs, act = draw.normal(size=(40, 3)), draw.uniform(-1, 1, (40, 2))
    single = lambda each: jnp.asarray(each, jnp.float32)
    return Transition(single(obs), single(act), jnp.zeros(40), jnp.ones(40), single(obs))


@pytest.mark.parametrize("functional", [True, False])
def test_both_metrics_by_brute_force(functional: bool):
    agent = agent_of(functional=functional)
    state = agent.init(SPEC, jax.random.key(0))
    policies, critics, logged, recent = state.actors.net, state.critics.net, rows(0), rows(1).obs
    found = jax.jit(lambda: trust_of_actors(TRUST, policies, critics, logged, recent))()
    for actor in range(2):
        policy = ensembles.member(policies, actor)
        head = ensembles.member(critics.head, actor)
        own = critics.shared or not functional
        encoder = critics.encoder if own else ensembles.member(critics.encoder, actor)
        theta, network = ravel_pytree(policy)

        def phi(acting, described, obs, encoder=encoder, head=head, network=network):
            code = encoder(network(described))
            return vmap(lambda s: features(head, code, s, network(acting)(s)))(obs)

        code = encoder(policy)
        here = np.float64(vmap(lambda s, a, h=head, c=code: features(h, c, s, a))(logged.obs, logged.act))
        there = np.float64(phi(theta, theta, recent))
        inverse = lambda of: np.linalg.pinv(of.T @ of / len(of), rcond=1e-4, hermitian=True)
        rank = np.linalg.matrix_rank(here.T @ here, tol=1e-4 * np.linalg.eigvalsh(here.T @ here)[-1])
        covered = np.einsum("ni,ij,nj->n", there, inverse(here), there).mean() / rank
        fair = (40 - rank) / 40
        assert float(found["trust_by_actor"][actor]) == pytest.approx(covered * fair, rel=1e-2)
        slopes = jax.jacrev(phi, (0, 1))(theta, theta, recent[:5])
        both, by = np.float64(slopes), inverse(there)
        first, second = np.sqrt(np.einsum("tsip,ij,tsjp->tsp", both, by, both).clip(0))
        expected = max(first.mean(axis=0).max(), second.max(axis=1).mean())
        assert float(found["drift_by_actor"][actor]) == pytest.approx(expected, rel=1e-2)
    assert float(found["trust"]) == pytest.approx(float(found["trust_by_actor"].mean()))


def test_the_data_of_an_actor_itself_cover_it_and_others_less():
    agent = agent_of()
    state = agent.init(SPEC, jax.random.key(0))
    policies, critics, logged = state.actors.net, state.critics.net, rows(0)
    acts = vmap(ensembles.member(policies, 0))(logged.obs)
    same = trust_of_actors(TRUST, policies, critics, logged._replace(act=acts), logged.obs)["trust_by_actor"]
    assert 0.7 < float(same[0]) < 1.0  # (40 - directions) / 40
    line = logged.obs * jnp.array([1.0, 0.1, 0.1])[None]
    narrow = logged._replace(obs=line, act=vmap(ensembles.member(policies, 0))(line))
    assert float(trust_of_actors(TRUST, policies, critics, narrow, logged.obs)["trust_by_actor"][0]) > 2


def test_the_newest_rows_are_those_written_last():
    spec = EnvSpec(1, 1)
    ring = replay.empty(spec, 2, 10)
    for step in range(25):
        ring = replay.add(ring, jnp.full((2, replay.width_of(spec)), float(step)))
    found = replay.sample_newest(ring, spec, (200,), jax.random.key(0), share=0.3).obs
    assert sorted(set(np.asarray(found).ravel().tolist())) == [22.0, 23.0, 24.0]


def test_a_training_tells_and_draws_them_and_learns_the_same(tmp_path, capsys):
    def trained(name: str, measure: bool):
        agent = agent_of()
        config = TrainConfig(
            dataclasses.replace(agent, trust=dataclasses.replace(TRUST, measure=measure)),
            recipe="fac-small",
            task="riverswim-3",
            steps=80,
            warmup=40,
            eval_every=40,
            log_every=40,
        )
        return train(config, tmp_path / name, quiet=True)

    told, plain = ([*read_rows(trained(name, on).metrics.path)] for name, on in (("on", True), ("off", False)))
    behaviour = [row for row in told if row["kind"] == "behaviour"]
    assert len(behaviour) == 2
    for row in behaviour:
        assert len(row["value_error_by_actor"]) == 2 and row["value_error"] >= abs(row["value_bias"]) - 1e-6
        assert len(row["trust_by_actor"]) == len(row["drift_by_actor"]) == 2
        assert row["trust"] > 0 < row["drift"] and 0 <= row["outside"] <= 1
        assert row["drift"] >= row["drift_printed"] - 1e-6
    assert not any("trust" in row for row in plain)
    learned = lambda rows: [row for row in rows if row["kind"] in ("train", "evaluation")]
    assert learned(told) == learned(plain)
    assert command(["plot", str(tmp_path / "on"), "--what", "trust", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["runs"][0]["measures"]
    assert found["trust"]["0"][1] == [row["trust"] for row in behaviour]
    assert (tmp_path / "on" / "trust.png").stat().st_size > 1000
    assert command(["plot", str(tmp_path / "off"), "--what", "trust"]) == 2
    assert "--trust.measure" in capsys.readouterr().err


def steered(**bounds):
    """An actor update from the same state with and without bounds, and the state before."""
    plain = agent_of()
    bound = dataclasses.replace(plain, trust=dataclasses.replace(TRUST, **bounds))
    before = bound.init(SPEC, jax.random.key(0))
    batch = rows(0)
    if "rest_above" in bounds:
        batch = batch._replace(next_obs=batch.obs)
    ends = [
        jax.jit(agent.actor_step)(state, batch, jax.random.key(1))[0]
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
    assert int(resting.steering.updates) == 1
    before, plain, free = steered(rest_above=1e6)
    np.testing.assert_allclose(moves(before, free), moves(before, plain), rtol=1e-3)


def test_a_step_shrinks_with_the_growth_of_delta():
    before, plain, half = steered(region=0.5)  # the reference is the actor itself: growth 1
    np.testing.assert_allclose(half.steering.steps, 0.5, rtol=1e-3)
    np.testing.assert_allclose(moves(before, half), 0.5 * moves(before, plain), rtol=1e-2)


def test_growth_is_delta_over_that_of_the_reference():
    agent = agent_of()
    state = agent.init(SPEC, jax.random.key(0))
    policies, critics, logged = state.actors.net, state.critics.net, rows(0)
    moved = jax.tree.map(lambda leaf: leaf + 0.5 * jnp.sin(jnp.arange(leaf.size)).reshape(leaf.shape), policies)
    found = jax.jit(drifts, static_argnums=0)(TRUST, moved, critics, logged.obs, policies)
    same = jax.jit(drifts, static_argnums=0)(TRUST, policies, critics, logged.obs, policies)
    np.testing.assert_allclose(same["growth"], 1.0, rtol=1e-4)
    np.testing.assert_allclose(found["growth"], found["drift"] / same["drift"], rtol=1e-3)


def test_who_acts_next_covers_the_actors_that_the_data_leave_out():
    agent = dataclasses.replace(agent_of(), trust=Trust(behaviour=True, every=1))
    state, batch = agent.init(SPEC, jax.random.key(0)), rows(0)
    lead = {}
    for known in (0, 1):  # whose actions are all that the replay holds
        far = eqx.tree_at(
            lambda p: p.network.layers[-1].bias, state.actors.net, jnp.array([[2.0, 2.0], [-2.0, -2.0]])
        )
        moved = dataclasses.replace(state, actors=dataclasses.replace(state.actors, params=far))
        policy = ensembles.member(far, known)
        logged = batch._replace(act=vmap(policy)(batch.obs), next_obs=batch.obs)
        critics = state.critics.net
        each = actor_trust.expected(far, critics, logged, logged.next_obs, 2)
        for actor in range(2):
            head, code = ensembles.member(critics.head, actor), critics.encoder(ensembles.member(far, actor))
            moment = lambda act, head=head, code=code: _moment(
                np.float64(vmap(lambda s, a: features(head, code, s, a))(batch.obs, act))
            )
            acts = [vmap(ensembles.member(far, other))(batch.obs) for other in range(2)]
            before = moment(logged.act)
            ridge = actor_trust.RANGE * np.trace(before) * np.eye(len(before))
            for other in range(2):
                mixed = (1 - actor_trust.ADDED) * before + actor_trust.ADDED * moment(acts[other]) + ridge
                brute = np.trace(np.linalg.solve(mixed, moment(acts[actor])))
                assert float(each[actor, other]) == pytest.approx(brute, rel=1e-2)
        lead[known] = int(jax.jit(agent.actor_step)(moved, logged, jax.random.key(1))[0].steering.lead)
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


def test_critics_learn_at_first_where_actors_have_left_and_where_actors_wait():
    trust, free = Trust(refresh_above=2.0), np.ones(2)
    told = lambda growth, steps, updates: bool(
        trust.critics_learn(jnp.array(growth), jnp.array(steps), jnp.int32(updates))
    )
    assert told([1.0, 1.0], free, 0)
    assert not told([1.9, 0.5], free, 50)
    assert told([1.0, 2.1], free, 50)
    assert told([1.0, 1.0], [1.0, 0.0], 50)


@pytest.mark.parametrize("recipe", ["fac-small", "fsac-small"])
def test_critics_rest_below_a_growth_of_delta_and_the_ratio_is_told(recipe: str):
    update = jax.jit(base.update, static_argnums=(0, 4))
    batches = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), rows(0))
    ends = {}
    for bound in (None, 1e-6, 1e6):
        trust = Trust(refresh_above=bound, every=2, states=4)
        agent = agent_of(recipe, trust=trust)
        state = third = agent.init(SPEC, jax.random.key(0))
        for step in range(6):
            state, _ = update(agent, state, batches, jax.random.key(step), (True,))
            if step == 2:
                third = state
        ends[bound] = state
    for plain, learned in zip(*(jax.tree.leaves(ends[b].critics) for b in (None, 1e-6)), strict=True):
        np.testing.assert_allclose(plain, learned, rtol=1e-5, atol=1e-7)
    assert int(ends[1e-6].steering.critic_updates) == 6
    rested = ends[1e6]
    assert int(rested.steering.critic_updates) == 3  # the first measurement lets them, the second, in update 3, not
    assert rested.steering.actor_updates.tolist() == [6, 6]
    assert float(rested.steering.told()["critic_ratio"]) == 0.5
    for early, late in zip(*(jax.tree.leaves((s.critics, s.targets)) for s in (third, rested)), strict=True):
        np.testing.assert_array_equal(early, late)
    # The reference stays where critics learned last.
    for early, late in zip(*(jax.tree.leaves(s.steering.reference) for s in (third, rested)), strict=True):
        np.testing.assert_array_equal(early, late)
    assert float(rested.steering.updates) == 6


def test_soft_actors_rest_with_their_temperatures():
    agent = agent_of("fsac-small", trust=Trust(rest_above=1e-6))
    before = agent.init(SPEC, jax.random.key(0))
    after = jax.jit(agent.actor_step)(before, rows(0), jax.random.key(1))[0]
    for old, new in zip(
        *(jax.tree.leaves((s.actors.net, s.log_temperatures.net)) for s in (before, after)), strict=True
    ):
        np.testing.assert_array_equal(old, new)


def test_coverage_is_fair_where_other_rows_are_measured():
    """Of rows of one law it is 1 in the mean, though directions are a third of the rows."""
    draw = np.random.default_rng(0)
    agent = agent_of()
    state = agent.init(SPEC, jax.random.key(0))
    found = []
    for _ in range(30):
        obs, other = jnp.float32(draw.normal(size=(2, 40, 3)))
        batch = rows(0)._replace(obs=obs, act=vmap(ensembles.member(state.actors.net, 0))(obs))
        found.append(actor_trust.coverages(state.actors.net, state.critics.net, batch, other)["trust"][0])
    assert 0.8 < float(np.median(found)) < 1.25


def test_bounds_that_are_none_are_refused():
    with pytest.raises(UsageError, match=r"--trust.rest-above must be above 0, not -1"):
        Trust(rest_above=-1.0)
    with pytest.raises(UsageError, match=r"--trust.every must be at least 1"):
        Trust(every=0)


@pytest.mark.parametrize("recipe", ["fac-small", "fsac-small"])
def test_a_steered_training_continues_exactly(tmp_path, recipe: str):
    bounds = {"behaviour": True, "rest_above": 1.5, "refresh_above": 1.2, "region": 1.0, "every": 7}
    config = TrainConfig(
        agent_of(recipe, trust=dataclasses.replace(TRUST, **bounds)),
        recipe=recipe,
        task="riverswim-3",
        steps=100,
        warmup=40,
        eval_every=50,
        log_every=50,
    )
    whole = train(config, tmp_path / "whole", quiet=True)
    stop_after(70, config, tmp_path / "parts")
    parts = train(config, tmp_path / "parts", quiet=True)
    assert fingerprint(whole.path) == fingerprint(parts.path)
    assert whole.metrics.path.read_bytes() == parts.metrics.path.read_bytes()
