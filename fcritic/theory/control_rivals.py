"""Rivals of Algorithm 3 for control. All share its loop and critic; they differ in data, epochs and gradient."""

import dataclasses
import math

from fcritic.theory.actor_critic import Settings, on_policy, two_timescale


def on_policy_actor_critic(settings: Settings) -> Settings:
    """The classic actor-critic: data from the present policy, an evaluation before every step, its own visits."""
    return dataclasses.replace(refresh_every_step(settings), gradient="on-policy")


def off_pac(settings: Settings) -> Settings:
    """Off-PAC: a behaviour policy that stays, an evaluation before every step, no second term."""
    return dataclasses.replace(two_timescale(never_refresh(settings)), gradient="first")


def emphatic_actor_critic(settings: Settings) -> Settings:
    """Off-PAC with states weighted by their emphasis, which is computed exactly: the best case of such a method."""
    return dataclasses.replace(off_pac(settings), gradient="emphatic")


def never_refresh(settings: Settings) -> Settings:
    """Algorithm 3 without its coverage test: the first behaviour policy stays."""
    return dataclasses.replace(settings, kappa=math.inf)


def refresh_every_step(settings: Settings) -> Settings:
    """Algorithm 3 without trust: new data and a new evaluation before every step, but both terms."""
    return on_policy(two_timescale(settings))


def exact_gradient(settings: Settings) -> Settings:
    """Ascent along the exact gradient. It needs no critic and no samples."""
    return dataclasses.replace(settings, gradient="exact", threshold=math.inf, kappa=math.inf)


RIVALS = {
    "on-policy actor-critic": on_policy_actor_critic,
    "Off-PAC": off_pac,
    "emphatic actor-critic": emphatic_actor_critic,
    "never refreshing": never_refresh,
    "refreshing every step": refresh_every_step,
    "exact policy gradient": exact_gradient,
}
"""Each takes the settings of Algorithm 3 and changes what makes the rival."""
