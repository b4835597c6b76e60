"""Algorithm 3, its triggers, its special cases and its rivals, on a small linear MDP."""

import dataclasses
import math

import numpy as np
import pytest
from small_control import DIM, THETA, problem

from fcritic.errors import UsageError
from fcritic.theory.control import (
    Control,
    Exact,
    Fitted,
    Sampled,
    Settings,
    actor_critic,
    anchor_at,
    assess,
    coefficients,
    on_policy,
    policy_gradient,
    two_timescale,
)
from fcritic.theory.problems import random_policy
from fcritic.theory.trust import coverage, measure
from studies.theory.rivals import RIVALS

__all__ = ["problem"]

SMALL_ERROR = Exact(0.03, samples=7)  # of the same shape as the usual critic, so no new program
SETTINGS = Settings(steps=12, step_size=2.0, trigger="kl", threshold=0.02)


def run(problem: Control, critic=None, seeds: int = 2, behaviour=None, **changes):
    settings = dataclasses.replace(SETTINGS, **changes)
    return actor_critic(problem, settings, critic or Exact(0.3, samples=7), THETA, seeds, behaviour)


def test_steps_climb_the_estimated_gradient(problem: Control):
    """Ascent, not the descent of Algorithms 1 and 4; the weights are those of the epoch."""
    trace = run(problem, SMALL_ERROR)
    for seed, step in ((0, 0), (1, 5)):
        slope = policy_gradient("both", problem, trace.theta[seed, step], trace.weights[seed, step], None)
        moved = trace.theta[seed, step + 1] - trace.theta[seed, step]
        np.testing.assert_allclose(moved, SETTINGS.step_size * slope, atol=1e-12)
    found = assess(problem, trace)
    assert (found.objective[:, -1] > found.objective[:, 0]).all()
    assert not np.allclose(trace.weights[0], trace.weights[1])  # seeds differ
    np.testing.assert_array_equal(run(problem, SMALL_ERROR).theta, trace.theta)  # and repeat


def test_an_epoch_ends_at_the_first_step_past_the_threshold(problem: Control):
    trace = run(problem)
    for seed in range(2):
        starts = np.flatnonzero(np.diff(trace.epoch[seed], prepend=-1))
        assert 1 < len(starts) < SETTINGS.steps
        np.testing.assert_array_equal(trace.reference[seed, starts], trace.theta[seed, starts])
        np.testing.assert_allclose(trace.drift[seed, starts], 0.0, atol=1e-12)
        assert trace.drift[seed].max() <= SETTINGS.threshold  # the step past it is the next epoch's first
        for start in starts[1:]:
            anchor = anchor_at(problem, trace.reference[seed, start - 1], None)
            theta = trace.theta[seed, start]
            arguments = (problem.policy, problem.features, problem.rho, anchor, theta)
            assert measure("kl", "absolute", *arguments) > SETTINGS.threshold
    assert (trace.weights[0, 1:] == trace.weights[0, :-1]).all(axis=1).sum() == SETTINGS.steps - len(
        np.unique(trace.epoch[0])
    )


def test_behaviour_is_refreshed_exactly_when_coverage_asks_for_it(problem: Control):
    trace = run(problem, kappa=1.02)
    bound = 1.02 * DIM * (1 + 1e-6)
    refreshed = np.diff(trace.refreshes, prepend=0, axis=1) > 0
    starts = np.diff(trace.epoch, prepend=-1, axis=1) > 0
    np.testing.assert_array_equal(refreshed, starts & (trace.coverage > bound))
    assert 0 < refreshed.sum() < starts.sum()
    for seed, step in np.argwhere(starts):
        reference = problem.policy(trace.reference[seed, step])
        mu = problem.policy(THETA) if step == 0 else trace.behaviour[seed, step - 1]
        expected = coverage(problem.features(reference), problem.pairs(reference), problem.pairs(mu))
        assert trace.coverage[seed, step] == pytest.approx(expected, rel=1e-9)
        if refreshed[seed, step]:
            np.testing.assert_allclose(trace.behaviour[seed, step], reference)


def test_samples_are_counted_by_evaluation_or_by_refresh(problem: Control):
    fresh = run(problem, kappa=1.02)
    np.testing.assert_array_equal(fresh.samples, 7 * (fresh.epoch + 1))
    kept = run(problem, kappa=1.02, keep_data=True)
    np.testing.assert_array_equal(kept.samples, 7 * (kept.refreshes + 1))
    assert kept.samples[:, -1].max() < fresh.samples[:, -1].min()


def test_on_policy_adaptation(problem: Control):
    """Remark: mu is the reference of every epoch, so coverage is the rank wherever it is used."""
    trace = run(problem, **changes(on_policy))
    expected = [[problem.policy(theta) for theta in seed] for seed in trace.reference]
    np.testing.assert_allclose(trace.behaviour, expected, atol=1e-12)
    assert len(np.unique(trace.epoch[0])) < SETTINGS.steps  # epochs still have several steps


def test_two_timescale_scheme(problem: Control):
    """Remark: with epochs of one step every step has an evaluation of its own."""
    trace = run(problem, **changes(two_timescale))
    np.testing.assert_array_equal(trace.epoch, np.tile(np.arange(SETTINGS.steps), (2, 1)))
    np.testing.assert_array_equal(trace.reference, trace.theta)


def test_full_coverage_needs_no_refresh(problem: Control):
    """Remark: under a behaviour policy with full support it is a stable off-policy actor-critic."""
    behaviour = random_policy(problem.mdp, 5)
    trace = run(problem, Exact(0.0, samples=7), behaviour=behaviour, step_size=20.0, kappa=math.inf)
    assert (trace.behaviour == behaviour).all()
    assert np.isfinite(trace.coverage).all()
    found = assess(problem, trace)
    np.testing.assert_allclose(found.error_length, 0.0, atol=1e-6)
    assert found.squared_gradient[0, -1] < 0.2 * found.squared_gradient[0, 0]


def changes(special) -> dict:
    """What a special case changes in the settings."""
    new = special(SETTINGS)
    return {
        field.name: getattr(new, field.name)
        for field in dataclasses.fields(Settings)
        if getattr(new, field.name) != getattr(SETTINGS, field.name)
    }


def test_the_printed_trigger_can_end_an_epoch(problem: Control):
    assert run(problem, trigger="delta", threshold=0.0).epoch[0, -1] > 0
    assert run(problem, trigger="delta", threshold=1e9).epoch[0, -1] == 0


def test_triggers_at_the_anchor_and_by_hand(problem: Control):
    theta = np.random.default_rng(0).normal(size=THETA.size)
    anchor = anchor_at(problem, theta)
    value = lambda trigger, at: measure(
        trigger, "absolute", problem.policy, problem.features, problem.rho, anchor, at
    )
    for trigger, start in {
        "kl": 0,
        "feature-distance": 0,
        "feature-ratio": 1,
        "delta-ratio": 1,
        "never": 0,
    }.items():
        assert value(trigger, theta) == pytest.approx(start, abs=1e-9)
    other = np.random.default_rng(1).normal(size=THETA.size)
    pi, reference = problem.policy(other), problem.policy(theta)
    expected = np.dot(problem.mdp.stationary(reference), np.sum(pi * np.log(pi / reference), axis=1))
    assert value("kl", other) == pytest.approx(expected)
    inverse = np.linalg.inv(np.einsum("sa,sai,saj->ij", anchor.pairs, anchor.phi, anchor.phi))
    length = lambda phi: np.sqrt(np.einsum("sa,sai,ij,saj->", anchor.pairs, phi, inverse, phi))
    phi = problem.features(pi)
    assert value("feature-ratio", other) == pytest.approx(length(phi) / np.sqrt(DIM))
    assert value("feature-distance", other) == pytest.approx(length(phi - anchor.phi) / np.sqrt(DIM))


@pytest.mark.parametrize("critic", [Sampled(30, 300, 0.5, reset=False), Fitted(4000)], ids=["sampled", "fitted"])
def test_sampled_critics_come_near_the_true_weights_and_can_keep_their_data(problem: Control, critic):
    """With kept data a second evaluation of one policy from one mu changes nothing; with fresh data it does."""
    still = {"step_size": 1e-9, "kappa": math.inf, "epoch_limit": 1}
    fresh, kept = (run(problem, critic, keep_data=keep, **still) for keep in (False, True))
    assert fresh.samples[0, 0] == critic.samples
    errors = assess(problem, fresh).weight_error
    assert 0 < errors.mean() < 0.3  # values lie between 0 and 5
    np.testing.assert_allclose(kept.weights[:, 0], kept.weights[:, 1], atol=1e-5)
    assert np.abs(fresh.weights[:, 0] - fresh.weights[:, 1]).max() > 1e-3


def test_rivals_differ_as_they_say():
    made = {name: change(SETTINGS) for name, change in RIVALS.items()}
    assert made["on-policy actor-critic"].gradient == "on-policy"
    assert made["refreshing every step"].kappa == 0
    assert made["refreshing every step"].epoch_limit == 1
    assert made["never refreshing"] == dataclasses.replace(SETTINGS, kappa=math.inf)
    for name, gradient in (("Off-PAC", "first"), ("emphatic actor-critic", "emphatic")):
        assert (made[name].gradient, made[name].epoch_limit, made[name].kappa) == (gradient, 1, math.inf)
    assert made["exact policy gradient"].gradient == "exact"


def test_coefficients_along_a_trace_bound_the_gradients_error(problem: Control):
    trace = run(problem)
    found, bound = assess(problem, trace), coefficients(problem, trace)
    assert (found.error_largest <= (bound.first + bound.second) * found.weight_error + 1e-12).all()
    assert (found.error_length <= bound.euclidean * found.weight_error + 1e-12).all()
    np.testing.assert_allclose(found.weight_error, 0.3, rtol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kappa": 0.5}, "kappa must be at least 1"),
        ({"kappa": math.nan}, "kappa must be at least 1"),
        ({"trigger": "deltas"}, "trigger must be one of"),
        ({"gradient": "none"}, "gradient must be one of"),
        ({"step_size": -1.0}, "step_size must be positive"),
        ({"steps": 0}, "at least 1"),
    ],
)
def test_bad_settings_are_refused_in_a_line(changed: dict, message: str):
    with pytest.raises(UsageError, match=message) as error:
        dataclasses.replace(SETTINGS, **changed)
    assert "\n" not in str(error.value)
