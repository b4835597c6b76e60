"""Coverage and Delta of actors that learn: by brute force, in the metrics of a training, in a picture."""

import dataclasses
import json

import jax
from jax import vmap
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
import pytest
from trusted_agents import SPEC, TRUST, agent_of, rows

from fcritic import ensembles
from fcritic.agents import actor_trust
from fcritic.agents.actor_trust import drifts, trust_of_actors
from fcritic.cli.dispatch import run as command
from fcritic.config import TrainConfig
from fcritic.logs.metrics import read_rows
from fcritic.training import replay
from fcritic.training.loop import train
from fcritic.types import EnvSpec


@pytest.mark.parametrize("functional", [True, False])
def test_both_metrics_by_brute_force(functional: bool):
    agent = agent_of(functional=functional)
    state = agent.init(SPEC, jax.random.key(0))
    policies, critics, logged, recent = state.actors.net, state.critics.net, rows(0), rows(1).obs
    found = jax.jit(lambda: trust_of_actors(policies, critics, logged, recent, 5))()
    for actor in range(2):
        policy = ensembles.member(policies, actor)
        head = ensembles.member(critics.head, actor)
        own = critics.shared or not functional
        encoder = critics.encoder if own else ensembles.member(critics.encoder, actor)
        theta, network = ravel_pytree(policy)

        def phi(acting, described, obs, encoder=encoder, head=head, network=network):
            code = encoder(network(described))
            return vmap(lambda s: head.features(code, s, network(acting)(s)))(obs)

        code = encoder(policy)
        here = np.float64(vmap(lambda s, a, h=head, c=code: h.features(c, s, a))(logged.obs, logged.act))
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
    same = trust_of_actors(policies, critics, logged._replace(act=acts), logged.obs, 5)["trust_by_actor"]
    assert 0.7 < float(same[0]) < 1.0  # (40 - directions) / 40
    line = logged.obs * jnp.array([1.0, 0.1, 0.1])[None]
    narrow = logged._replace(obs=line, act=vmap(ensembles.member(policies, 0))(line))
    assert float(trust_of_actors(policies, critics, narrow, logged.obs, 5)["trust_by_actor"][0]) > 2


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
    for name in ("trust", "drift", "value_error"):
        assert found[name]["0"][1] == [row[name] for row in behaviour]
    assert (tmp_path / "on" / "trust.png").stat().st_size > 1000
    assert command(["plot", str(tmp_path / "off"), "--what", "trust"]) == 2
    assert "--trust.measure" in capsys.readouterr().err


def test_growth_is_delta_over_that_of_the_reference():
    agent = agent_of()
    state = agent.init(SPEC, jax.random.key(0))
    policies, critics, logged = state.actors.net, state.critics.net, rows(0)
    moved = jax.tree.map(lambda leaf: leaf + 0.5 * jnp.sin(jnp.arange(leaf.size)).reshape(leaf.shape), policies)
    growth = jax.jit(drifts, static_argnums=3)
    found = growth(moved, critics, logged.obs, 5, policies)
    same = growth(policies, critics, logged.obs, 5, policies)
    np.testing.assert_allclose(same["growth"], 1.0, rtol=1e-4)
    np.testing.assert_allclose(found["growth"], found["drift"] / same["drift"], rtol=1e-3)


def test_coverage_is_fair_where_other_rows_are_measured():
    """Of rows of one law it is 1 in the mean, though directions are a third of the rows."""
    draw = np.random.default_rng(0)
    agent = agent_of()
    state = agent.init(SPEC, jax.random.key(0))
    measured, found = jax.jit(actor_trust.coverages), []
    for _ in range(30):
        obs, other = jnp.float32(draw.normal(size=(2, 40, 3)))
        batch = rows(0)._replace(obs=obs, act=vmap(ensembles.member(state.actors.net, 0))(obs))
        found.append(measured(state.actors.net, state.critics.net, batch, other)["trust"][0])
    assert 0.8 < float(np.median(found)) < 1.25
