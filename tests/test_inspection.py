"""What `fcritic inspect` computes: exact on a task with known returns, and what critics say by hand."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import quick_jit
from rounding import assert_equal_but_for_rounding
import scipy.stats

from fcritic import ensembles, envs
from fcritic.agents.cloud import plane
from fcritic.agents.recipes import find_recipe
from fcritic.api.load import TrainedAgent
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.networks.actor_encoder import EncoderConfig
from fcritic.networks.critics import FunctionalCritic
from fcritic.training.knowledge import agreement, rank_correlation
from fcritic.training.replay import Normalizer
from fcritic.view.inspection import measure
from fcritic.view.inspection.inspect import principal, require_functional
from fcritic.view.inspection.measure import Rollouts

TASK = "probe-policy"  # two actions; the second, where 1 is seen, is the reward
ENCODER = EncoderConfig(probes=5, depth=1, code=4, width=8, heads=2)


def agent_of(shared=False, **changes):
    sizes = {"members": 3, "batch_size": 5, "actor_hidden": (8, 6), "state_action_hidden": (7,)}
    sizes |= {"state_action_code": 4, "joint_hidden": (6,), "actor_last_scale": 0.5}
    encoder = dataclasses.replace(ENCODER, shared=shared)
    return dataclasses.replace(find_recipe("fac"), encoder=encoder, **sizes | changes)


def untrained(shared=False, kind=None) -> TrainedAgent:
    config = TrainConfig(kind or agent_of(shared), task=TASK)
    spec, units = envs.task_units(TASK)
    state = config.agent.init(spec, jax.random.key(1))
    seen = Normalizer(jnp.array([0.1]), jnp.array([0.3]), jnp.int32(7))
    policies = config.agent.evaluation_policies(state)
    return TrainedAgent(policies, state.critics.params, seen, seen, config, spec, units, 0, 0, Path())


@pytest.fixture(scope="module")
def agent():
    return untrained()


@quick_jit
def value_by_hand(critic, policy, normalizer, states):
    """The mean over states of Q(pi, s, pi(s)), as the critic itself computes it."""
    seen = [normalizer(state) for state in states]
    return sum(critic(policy, state, policy(state)) for state in seen) / len(seen)


def critic_of(agent: TrainedAgent, index: int) -> FunctionalCritic:
    shared = agent.critics.encoder.config.shared
    encoder = agent.critics.encoder if shared else ensembles.member(agent.critics.encoder, index)
    return FunctionalCritic(encoder, ensembles.member(agent.critics.head, index))


def test_corners_are_the_actors_to_the_last_bit(agent):
    x, y = measure.points(5)
    policies = plane(agent.policies, (2, 0, 1), x, y)
    assert ensembles.size(policies) == 25 + 4
    for corner, actor in (((0, 0), 2), ((1, 0), 0), ((0, 1), 1)):
        (cell,) = np.flatnonzero((x == corner[0]) & (y == corner[1]))
        pairs = zip(
            *(jax.tree.leaves(ensembles.member(*each)) for each in ((policies, cell), (agent.policies, actor))),
            strict=True,
        )
        assert all(np.array_equal(*pair) for pair in pairs)
    middle = plane(agent.policies, (0, 1, 2), np.array([0.5]), np.array([0.25]))
    leaf = lambda tree: np.asarray(jax.tree.leaves(tree)[0])
    a, b, c = leaf(agent.policies)
    np.testing.assert_allclose(leaf(middle)[0], a + 0.5 * (b - a) + 0.25 * (c - a), rtol=1e-5, atol=1e-7)


def test_a_slice_that_cannot_be_is_refused():
    for count in (1, 4, 8, 45):
        with pytest.raises(UsageError, match="--grid must be 5, 9, 13"):
            measure.places(count)
    for corners in ((0, 1), (0, 1, 1), (0, 1, 2, 0)):
        with pytest.raises(UsageError, match="three different actors"):
            measure.require_corners(corners, 3)
    with pytest.raises(UsageError, match="actor 3; this agent has actors 0 to 2"):
        measure.require_corners((0, 1, 3), 3)
    with pytest.raises(UsageError, match="needs three actors, this agent has 2"):
        measure.require_corners((0, 1, 2), 2)


@pytest.mark.parametrize("shared", [False, True])
def test_predictions_are_the_critics_answers(shared):
    agent = untrained(shared)
    policies = plane(agent.policies, (0, 1, 2), *measure.points(5))
    states = np.array([[0.0], [1.0], [0.3]], np.float32)
    found = measure.values(agent, policies, states)
    assert found.shape == (3, 29)
    for critic in range(3):
        for cell in (0, 7, 8, 28):  # also across the pieces in which they are computed
            by_hand = value_by_hand(
                critic_of(agent, critic), ensembles.member(policies, cell), agent.normalizer, states
            )
            np.testing.assert_allclose(found[critic, cell], by_hand, rtol=0, atol=1e-4 * np.abs(found).max())


def test_measured_returns_are_exact_where_they_are_known(agent):
    policies = plane(agent.policies, (0, 1, 2), *measure.points(5))
    rollouts, heard = Rollouts(agent, 2, width=8), []  # 29 policies in turns of 8
    seen = rollouts.measure(policies, heard.append)
    rollouts.close()
    actions = [float(ensembles.member(policies, cell)(agent.normalizer(jnp.ones(1)))[0]) for cell in range(29)]
    chain = 3 + (1 + 8 + 6) + 10  # the normalizer, a dot product per layer, biases and tanh
    assert_equal_but_for_rounding(seen.plain, np.stack([actions] * 2, axis=1), chain)
    np.testing.assert_allclose(seen.discounted, 0.99 * seen.plain, rtol=1e-6)
    assert (
        seen.longest == 2
        and np.array_equal(seen.first, [[0.0], [0.0]])
        and heard == [8, 16, 24, 32, 40, 48, 53, 58]
    )


def test_rank_correlation_is_spearmans():
    generator = np.random.default_rng(0)
    for _ in range(20):
        a, b = generator.integers(0, 8, (2, 12)).astype(float)  # with ties
        assert rank_correlation(a, b) == pytest.approx(scipy.stats.spearmanr(a, b).statistic)
    assert rank_correlation(np.ones(3), np.arange(3.0)) is None


def test_agreement_by_hand():
    predicted, measured = np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0])  # measured = 1 + 2 predicted
    found = agreement(predicted, measured)
    assert found["rank"] == pytest.approx(1) and found["slope"] == pytest.approx(2)
    assert found["bias"] == pytest.approx(-2) and found["error"] == pytest.approx(np.sqrt((1 + 4 + 9) / 3))


def test_principal_components_keep_distances_of_a_plane():
    generator = np.random.default_rng(1)
    points = generator.normal(size=(9, 2)) @ generator.normal(size=(2, 6)) + 5
    flat, shares = principal(points)
    distances = lambda table: np.linalg.norm(table[:, None] - table[None], axis=-1)
    np.testing.assert_allclose(distances(flat), distances(points), atol=1e-9)
    assert sum(shares) == pytest.approx(1) and shares[0] >= shares[1]
    assert principal(np.ones((3, 1)))[1] == [0.0, 0.0]


def test_codes_are_the_encoders_own(agent):
    found = measure.codes(agent, agent.policies, agent.normalizer)
    assert found.shape == (3, 3, 4)
    encode = quick_jit(lambda critic, policy: critic.encode(policy))
    for critic, actor in ((0, 0), (1, 2), (2, 1)):
        by_hand = encode(critic_of(agent, critic), ensembles.member(agent.policies, actor))
        np.testing.assert_allclose(found[critic, actor], by_hand, rtol=1e-3, atol=1e-5)


def test_sensitivity_is_the_slope_of_the_value_in_each_probe(agent):
    states = np.array([[0.2], [1.0]], np.float32)
    found = measure.sensitivity(agent, agent.policies, states)
    assert found.shape == (3, 5)

    def value(critic, actor, probe, step):
        one = critic_of(agent, critic)
        probes = np.array(one.encoder.probes)
        probes[probe] += step
        moved = eqx.tree_at(lambda each: each.encoder.probes, one, jnp.asarray(probes))
        return float(value_by_hand(moved, ensembles.member(agent.policies, actor), agent.normalizer, states))

    for critic, probe in ((0, 0), (2, 3)):
        slopes = [(value(critic, a, probe, 1e-2) - value(critic, a, probe, -1e-2)) / 2e-2 for a in range(3)]
        np.testing.assert_allclose(found[critic, probe], np.mean(np.abs(slopes)), rtol=0.05, atol=1e-5)


def test_probes_are_told_in_the_units_of_the_task(agent):
    found = measure.probes(agent)[1]
    raw = critic_of(agent, 1).encoder.probes
    np.testing.assert_allclose(found, np.sqrt(0.3 + 1e-6) * raw + 0.1, rtol=1e-5)


def test_critics_that_do_not_see_the_policy_are_refused():
    for kind, name in ((agent_of(functional=False), "fac"), (find_recipe("td3"), "fac")):
        with pytest.raises(
            UsageError, match=r"do not see the policy: .* name a run of fac, fac-shared or fac-small"
        ):
            require_functional(untrained(kind=kind))
        assert name
