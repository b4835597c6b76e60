"""Algorithm 3: an actor-critic that two trust metrics govern.

An epoch evaluates a reference policy once and then improves the actor with these weights. C(reference, mu) decides
whether the behaviour policy mu must be refreshed before the evaluation; the drift from the reference decides when
the epoch ends. The algorithm never sees the true values: what its steps were worth is computed afterwards, by
`fcritic.theory.assessment.assess`.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from fcritic.errors import UsageError
from fcritic.theory.critics import AbstractCritic
from fcritic.theory.policy_gradients import GRADIENTS, Control, policy_gradient
from fcritic.theory.precision import float64
from fcritic.theory.triggers import TRIGGERS, Anchor, measure
from fcritic.theory.trust import covariance, coverage, drift, invert

ROUNDING = 1e-6
"""C(pi, pi) equals the rank up to rounding; a C_max of exactly the rank must not refresh by it."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options of Algorithm 3."""

    steps: int
    """Improvement steps in all, M."""
    step_size: float
    """eta, of the ascent."""
    kappa: float = 2.0
    """C_max as a multiple of the rank of A_k, which is C(pi, pi). 0 refreshes in every epoch, infinity never."""
    trigger: str = "delta-ratio"
    """The measure of drift that ends an epoch, one of `fcritic.theory.triggers.TRIGGERS`."""
    threshold: float = 2.0
    """The drift at which an epoch ends."""
    epoch_limit: float = math.inf
    """The longest epoch in steps. One evaluates before every step: the two-timescale scheme."""
    first: str = "absolute"
    """C_1 inside Delta: `absolute` (a bound), `printed` (none) or `exact`."""
    gradient: str = "both"
    """The formula of the step, one of `fcritic.theory.policy_gradients.GRADIENTS`."""
    keep_data: bool = False
    """Whether transitions are drawn only when mu changes and then used again, or anew for each evaluation."""

    def __post_init__(self):
        _require_known("trigger", self.trigger, TRIGGERS)
        _require_known("gradient", self.gradient, GRADIENTS)
        _require_known("first", self.first, ("absolute", "printed", "exact"))
        if self.steps < 1 or self.epoch_limit < 1:
            raise UsageError(f"steps and epoch_limit must be at least 1, not {self.steps} and {self.epoch_limit:g}")
        if not 0 < self.step_size < math.inf:
            raise UsageError(f"step_size must be positive and finite, not {self.step_size:g}")
        if not (self.kappa == 0 or self.kappa >= 1):
            raise UsageError(f"kappa must be at least 1, or 0 to refresh in every epoch, not {self.kappa:g}")


def on_policy(settings: Settings) -> Settings:
    """The paper's on-policy adaptation: mu is the reference in every epoch."""
    return dataclasses.replace(settings, kappa=0.0)


def two_timescale(settings: Settings) -> Settings:
    """The paper's limit of epochs of one step: an evaluation before every step."""
    return dataclasses.replace(settings, epoch_limit=1)


def full_coverage(settings: Settings) -> Settings:
    """The paper's off-policy case: a behaviour policy with full support that is never refreshed."""
    return dataclasses.replace(settings, kappa=math.inf)


class Trace(NamedTuple):
    """What happened before each improvement step; leading axes are seeds and steps."""

    theta: Float[Array, "*seeds steps parameters"]
    weights: Float[Array, "*seeds steps d"]
    """xi of the epoch, which the step uses."""
    reference: Float[Array, "*seeds steps parameters"]
    """Parameters of the epoch's reference policy."""
    behaviour: Float[Array, "*seeds steps states actions"]
    """mu of the epoch, after a refresh."""
    epoch: Int[Array, "*seeds steps"]
    refreshes: Int[Array, "*seeds steps"]
    """Changes of mu so far."""
    samples: Float[Array, "*seeds steps"]
    """Transitions drawn so far."""
    coverage: Float[Array, "*seeds steps"]
    """C(reference, mu) that the epoch found, before a refresh."""
    drift: Float[Array, "*seeds steps"]
    """The measure that can end the epoch."""
    slope: Float[Array, "*seeds steps parameters"]
    """The gradient that the step followed."""


class _Loop(NamedTuple):
    """What an epoch hands to the next."""

    theta: Array
    behaviour: Array
    weights: Array
    step: Array
    epoch: Array
    refreshes: Array
    trace: Trace


def actor_critic(
    problem: Control,
    settings: Settings,
    critic: AbstractCritic,
    theta: Float[Array, " parameters"],
    seeds: int,
    behaviour: Float[Array, "states actions"] | None = None,
    seed: int = 0,
) -> Trace:
    """Algorithm 3 for several seeds at once, which differ in the sampled transitions.

    **Arguments:** `theta` are the first parameters; `behaviour` the first mu, which is the first policy where None.
    """
    if behaviour is None:
        behaviour = problem.policy(np.asarray(theta))
    keys = jax.random.split(jax.random.key(seed), seeds)
    program = (settings.steps, settings.trigger, settings.first)
    return _run_seeds(*program, problem, critic, _knobs(settings), theta, behaviour, keys)


class _Knobs(NamedTuple):
    """The settings that are arguments of the program, so that one program serves all their values."""

    step_size: Array
    kappa: Array
    threshold: Array
    epoch_limit: Array
    keep_data: Array
    gradient: Array


class _Plan(NamedTuple):
    """What all parts of a program share."""

    problem: Control
    critic: AbstractCritic
    knobs: _Knobs
    steps: int
    trigger: str
    first: str
    key: Array


def _knobs(settings: Settings) -> _Knobs:
    numbers = [float(getattr(settings, name)) for name in _Knobs._fields[:-1]]
    return _Knobs(*numbers, gradient=list(GRADIENTS).index(settings.gradient))


@float64
@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _run_seeds(steps, trigger, first, problem, critic, knobs, theta, behaviour, keys) -> Trace:
    plan = lambda key: _Plan(problem, critic, knobs, steps, trigger, first, key)
    return jax.vmap(lambda key: _run(plan(key), theta, behaviour))(keys)


def _run(plan: _Plan, theta, behaviour) -> Trace:
    theta, behaviour = jnp.asarray(theta, jnp.float64), jnp.asarray(behaviour, jnp.float64)
    size = plan.problem.features(plan.problem.policy(theta)).shape[-1]
    weights, zero, count = jnp.zeros(size), jnp.zeros((), int), jnp.zeros(())
    row = Trace(theta, weights, theta, behaviour, zero, zero, count, count, count, theta)
    trace = jax.tree.map(lambda leaf: jnp.zeros((plan.steps, *leaf.shape), leaf.dtype), row)
    loop = _Loop(theta, behaviour, weights, zero, zero, zero, trace)
    return jax.lax.while_loop(lambda loop: loop.step < plan.steps, lambda loop: _epoch(plan, loop), loop).trace


def _epoch(plan: _Plan, loop: _Loop) -> _Loop:
    """Tests the coverage, evaluates the reference and improves the actor until it has drifted too far."""
    problem, critic, knobs = plan.problem, plan.critic, plan.knobs
    anchor = anchor_at(problem, loop.theta, plan.first if plan.trigger == "delta-ratio" else None)
    covered = coverage(anchor.phi, anchor.pairs, problem.pairs(loop.behaviour))
    refresh = covered > knobs.kappa * anchor.inverse.rank * (1 + ROUNDING)
    refresh &= jnp.any(loop.behaviour != anchor.pi)  # at the very start mu is the reference already
    behaviour = jnp.where(refresh, anchor.pi, loop.behaviour)
    refreshes = loop.refreshes + refresh
    # The same key and the same mu give the same transitions: that is how data are kept.
    draws = jnp.where(knobs.keep_data > 0, refreshes, loop.epoch)
    weights = critic(problem, behaviour, anchor.pi, loop.weights, jax.random.fold_in(plan.key, draws))
    samples = critic.samples * (1.0 + draws)
    now = Trace(
        loop.theta, weights, loop.theta, behaviour, loop.epoch, refreshes, samples, covered, 0.0, loop.theta
    )
    theta, step, trace = _improve(plan, anchor, now, loop.step, loop.trace)
    return _Loop(theta, behaviour, weights, step, loop.epoch + 1, refreshes, trace)


def _improve(plan: _Plan, anchor: Anchor, row: Trace, step, trace: Trace):
    """Ascends with the epoch's weights. The test follows each step, as printed."""
    problem, knobs, begun = plan.problem, plan.knobs, step
    given = (problem.policy, problem.features, problem.rho, anchor)
    drifted = lambda theta: measure(plan.trigger, plan.first, *given, theta)

    def ascend(state):
        theta, step, moved, trace = state
        slope = policy_gradient(knobs.gradient, problem, theta, row.weights, row.behaviour)
        now = row._replace(theta=theta, drift=moved, slope=slope)
        trace = jax.tree.map(lambda all_rows, new: all_rows.at[step].set(new), trace, now)
        theta = theta + knobs.step_size * slope
        return theta, step + 1, drifted(theta), trace

    def trusted(state):
        _, step, moved, _ = state
        within = (moved <= knobs.threshold) & (step - begun < knobs.epoch_limit)
        # The first step of an epoch is taken untested, for a reference cannot drift from itself.
        return (step < plan.steps) & (within | (step == begun))

    state = (anchor.theta, step, drifted(anchor.theta), trace)
    theta, step, _, trace = jax.lax.while_loop(trusted, ascend, state)
    return theta, step, trace


@float64
def anchor_at(problem: Control, theta: Float[Array, " parameters"], first: str | None = "absolute") -> Anchor:
    """What an epoch remembers of the policy with these parameters.

    **Arguments:** `first` is the reading of C_1 in its Delta, which is left out where None.
    """
    pi = problem.policy(theta)
    phi, pairs = problem.features(pi), problem.pairs(pi)
    inverse = invert(covariance(phi, pairs))
    delta = jnp.ones(())
    if first is not None:
        delta = drift(problem.policy, problem.features, problem.rho, theta, inverse).delta(first)
    return Anchor(theta, pi, phi, pairs, inverse, delta)


def _require_known(name: str, value: str, known) -> None:
    if value not in known:
        raise UsageError(f"{name} must be one of {', '.join(known)}, not {value!r}")
