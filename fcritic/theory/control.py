"""Algorithm 3: an actor-critic that two trust metrics govern, with its policies, gradients and critics.

An epoch evaluates a reference policy once and then improves the actor with the weights found. C(reference, mu)
decides whether the behaviour policy mu must be refreshed before the evaluation. The drift from the reference ends
the epoch. The algorithm never sees the true values: afterwards `assess` computes the objective and the errors of
gradient and weights for every step.
"""

import abc
from collections.abc import Callable
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np
from numpy.typing import ArrayLike

from fcritic.errors import UsageError
from fcritic.theory.evaluation import Task, evaluate, evaluate_exact, sample
from fcritic.theory.features import AbstractFeatures
from fcritic.theory.mdp import FiniteMDP, float64
from fcritic.theory.trust import (
    TRIGGERS,
    Anchor,
    Drift,
    Pairs,
    States,
    Theta,
    Weights,
    covariance,
    coverage,
    drift,
    invert,
    measure,
)

# Policies as functions of a parameter vector: theta -> pi[S, A]


class AbstractPolicy(abc.ABC):
    """pi(a | s) proportional to exp(logits(theta)[s, a])."""

    size: int
    """The number of parameters."""

    @abc.abstractmethod
    def logits(self, theta: Array) -> Array:
        """Returns the preferences [S, A]."""

    @float64
    def __call__(self, theta: ArrayLike) -> Array:
        """Returns pi[S, A]."""
        return jax.nn.softmax(self.logits(jnp.asarray(theta)), axis=-1)


@functools.partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["states", "actions"])
@dataclasses.dataclass(frozen=True)
class TabularSoftmax(AbstractPolicy):
    """A policy with one preference for each pair."""

    states: int
    actions: int

    @property
    def size(self) -> int:
        """S A."""
        return self.states * self.actions

    def logits(self, theta: Array) -> Array:
        """Returns theta as [S, A]."""
        return jnp.reshape(theta, (self.states, self.actions))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["basis"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class LogLinear(AbstractPolicy):
    """A policy whose preferences are linear in given features."""

    basis: np.ndarray
    """[S, A, parameters]."""

    @property
    def size(self) -> int:
        """The number of features."""
        return self.basis.shape[-1]

    def logits(self, theta: Array) -> Array:
        """Returns basis(s, a)' theta."""
        return jnp.asarray(self.basis) @ theta


@functools.partial(jax.tree_util.register_dataclass, data_fields=["cosines", "sines"], meta_fields=[])
@dataclasses.dataclass(frozen=True, eq=False)
class Periodic(AbstractPolicy):
    """A policy whose preferences are sums of cosines and sines of the parameters.

    A softmax policy climbs forever: its gradient and the gradient's error vanish together at infinity. This one has
    its optimum at finite parameters, where an error of the critic remains visible.
    """

    cosines: np.ndarray
    """[S, A, parameters]."""
    sines: np.ndarray
    """[S, A, parameters]."""

    @property
    def size(self) -> int:
        """The number of angles."""
        return self.cosines.shape[-1]

    def logits(self, theta: Array) -> Array:
        """Returns cosines(s, a)' cos(theta) + sines(s, a)' sin(theta)."""
        return jnp.asarray(self.cosines) @ jnp.cos(theta) + jnp.asarray(self.sines) @ jnp.sin(theta)


def periodic(states: int, actions: int, size: int = 4, scale: float = 1.5, seed: int = 0) -> Periodic:
    """Returns a random periodic policy; `scale` is the standard deviation of its preferences."""
    waves = np.random.default_rng(seed).normal(size=(2, states, actions, size)) * scale / np.sqrt(size)
    return Periodic(waves[0], waves[1])


# Policy gradients from a critic's weights. Expectations over states are computed rather than sampled, so that the
# gradients differ by their formula alone.

GRADIENTS = {
    "both": "both terms of eq. (2), the functional critic's gradient of J_rho",
    "first": "the first term alone, states weighted by d_mu / (1 - gamma), which is exact at mu = pi: Off-PAC",
    "emphatic": "the first term, states weighted by the emphasis of d_mu, which is computed exactly",
    "emphatic-printed": "the same with the emphasis as printed under eq. (3), its infinite sum truncated",
    "on-policy": "the first term, states weighted by the discounted visits of the policy itself",
    "exact": "the exact gradient of J_rho; no critic",
}
"""Name and meaning of each formula."""


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["mdp", "features", "policy", "rho"], meta_fields=[]
)
@dataclasses.dataclass(frozen=True, eq=False)
class Control:
    """A control problem: an MDP, features of policies, and a parametrisation of policies.

    It can be an argument of a compiled program, which then serves all problems of a size.
    """

    mdp: FiniteMDP
    features: AbstractFeatures
    """Functional features phi; where they are exact, its `weights` are xi*."""
    policy: AbstractPolicy
    rho: States
    """The distribution of first states in J_rho."""

    @float64
    def objective(self, theta: Theta) -> Float[Array, ""]:
        """Returns J_rho of the parameters."""
        return self.mdp.objective(self.policy(theta), self.rho)

    @property
    def optimum(self) -> float:
        """The largest J_rho of any policy, by policy iteration. Softmax policies come arbitrarily close to it."""
        pi = np.eye(self.mdp.actions)[np.argmax(self.mdp.r, axis=1)]
        while True:
            better = np.eye(self.mdp.actions)[np.argmax(self.mdp.q(pi), axis=1)]
            if np.dot(self.rho, self.mdp.v(better) - self.mdp.v(pi)) < 1e-12:
                return float(self.mdp.objective(pi, self.rho))
            pi = better

    @float64
    def pairs(self, pi: Pairs) -> Pairs:
        """Returns the stationary measure of a policy over pairs."""
        return self.mdp.pairs(self.mdp.stationary(pi), pi)


@float64
def emphasis(mdp: FiniteMDP, pi: Pairs, first: States) -> States:
    """Returns m' = first' (I - gamma P_pi)^-1, the policy's discounted visits to each state from `first` on."""
    return mdp.occupancy(pi, first) / (1 - mdp.gamma)


@float64
def printed_emphasis(mdp: FiniteMDP, pi: Pairs, first: States) -> States:
    """Returns the sum under eq. (3) as printed, E[sum_t first(s_t) | s_0 = s], undiscounted and forward in time.

    Undiscounted, it does not converge; it is truncated after ln(0.01) / ln(gamma) steps.
    """
    chain = mdp.chain(pi)
    count = math.ceil(math.log(0.01) / math.log(mdp.gamma)) if mdp.gamma > 0 else 1
    step = lambda ahead, _: (jnp.asarray(first) + chain @ ahead, None)
    return jax.lax.scan(step, jnp.zeros(mdp.states), None, count)[0]


@float64
def estimated_objective(problem: Control, theta: Theta, weights: Weights) -> Float[Array, ""]:
    """Returns the functional critic's J_rho, E_rho sum_a pi(a|s) <phi^pi(s, a), xi>."""
    pi = problem.policy(theta)
    return jnp.einsum("s,sa,sad,d->", problem.rho, pi, problem.features(pi), weights)


@float64
def first_term(problem: Control, theta: Theta, weights: Weights, states: States) -> Theta:
    """Returns sum_s states(s) sum_a grad pi(a|s) <phi^pi(s, a), xi>, with the features held fixed."""
    q = problem.features(problem.policy(theta)) @ weights
    return jax.grad(lambda at: jnp.einsum("s,sa,sa->", states, problem.policy(at), q))(theta)


@float64
def policy_gradient(
    kind: str | Int[Array, ""], problem: Control, theta: Theta, weights: Weights, behaviour: Pairs
) -> Theta:
    """Returns the gradient by one of `GRADIENTS`, from a critic's weights and the behaviour policy mu.

    **Arguments:** `kind` is a name or its index in `GRADIENTS`; an index can be an argument of a compiled program.
    """
    theta, weights = jnp.asarray(theta), jnp.asarray(weights)

    def both() -> Array:
        return jax.grad(lambda at: estimated_objective(problem, at, weights))(theta)

    def exact() -> Array:
        return jax.grad(problem.objective)(theta)

    def weighted(states: Callable[[], Array]) -> Callable[[], Array]:
        return lambda: first_term(problem, theta, weights, states())

    pi, mdp = problem.policy(theta), problem.mdp
    formulas = {
        "both": both,
        "first": weighted(lambda: mdp.stationary(behaviour) / (1 - mdp.gamma)),
        "emphatic": weighted(lambda: emphasis(mdp, pi, mdp.stationary(behaviour))),
        "emphatic-printed": weighted(lambda: printed_emphasis(mdp, pi, mdp.stationary(behaviour))),
        "on-policy": weighted(lambda: emphasis(mdp, pi, problem.rho)),
        "exact": exact,
    }
    if isinstance(kind, str):
        return formulas[kind]()
    return jax.lax.switch(kind, [lambda formula=formulas[name]: jnp.asarray(formula()) for name in GRADIENTS])


# Critics: forms of Algorithm 2 that evaluate the reference policy


class AbstractCritic(abc.ABC):
    """An evaluation of a policy from another policy's data."""

    samples: int
    """Transitions that one evaluation draws from the behaviour policy."""

    @abc.abstractmethod
    def __call__(
        self, problem: Control, behaviour: Pairs, reference: Pairs, weights: Weights, key: Array
    ) -> Weights:
        """Returns new weights xi for the reference policy; `weights` are those of the previous epoch."""


def _task(problem: Control, behaviour: Array, reference: Array) -> Task:
    mdp = problem.mdp
    phi, states = problem.features(reference), mdp.stationary(behaviour)
    return Task(phi, mdp.r, jnp.float64(mdp.gamma), reference, behaviour, mdp.P, states)


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["step"],
    meta_fields=["outer", "inner", "truncate", "reset", "warm", "sampling"],
)
@dataclasses.dataclass(frozen=True)
class Sampled(AbstractCritic):
    """Algorithm 2 on fresh transitions: `outer` times `inner` gradient steps, one transition each."""

    outer: int
    """T."""
    inner: int
    """K."""
    step: float
    """alpha."""
    truncate: bool = True
    reset: bool = True
    """Start each inner loop from zero, as printed, or from the target."""
    warm: bool = False
    """Start the first target from the weights of the previous epoch instead of zero."""
    sampling: str = "independent"
    """`independent`, or `trajectory` for one path of the behaviour policy."""

    @property
    def samples(self) -> int:
        """One transition for each gradient step."""
        return self.outer * self.inner

    def __call__(self, problem, behaviour, reference, weights, key):
        """Returns the last target of Algorithm 2."""
        return evaluate(
            _task(problem, behaviour, reference),
            key[None],
            outer=self.outer,
            inner=self.inner,
            step=self.step,
            truncate=self.truncate,
            reset=self.reset,
            sampling=self.sampling,
            first=weights if self.warm else None,
        )[0, -1]


@functools.partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["samples", "outer"])
@dataclasses.dataclass(frozen=True)
class Fitted(AbstractCritic):
    """Algorithm 2 with its inner loop run to convergence on a data set: T least-squares fits."""

    samples: int
    """Transitions in the data set, drawn independently."""
    outer: int = 100
    """T."""

    def __call__(self, problem, behaviour, reference, weights, key):
        """Returns the last target for the data's frequencies."""
        task = _task(problem, behaviour, reference)
        _, pairs, following = sample(task, key, self.samples, "independent", jnp.zeros((), jnp.int32))
        states, actions = problem.mdp.states, problem.mdp.actions
        counts = jnp.zeros((states * actions, states)).at[pairs, following].add(1.0)
        counts = counts.reshape(states, actions, states)
        seen = jnp.sum(counts, axis=2)
        visits = jnp.sum(seen, axis=1)
        data = task._replace(
            P=counts / jnp.maximum(seen, 1.0)[:, :, None],
            behaviour=seen / jnp.maximum(visits, 1.0)[:, None],
            states=visits / self.samples,
        )
        return evaluate_exact(data, outer=self.outer)[-1]


@functools.partial(jax.tree_util.register_dataclass, data_fields=["error"], meta_fields=["outer", "samples"])
@dataclasses.dataclass(frozen=True)
class Exact(AbstractCritic):
    """Algorithm 2 on the true distribution with K = infinity, plus an error of known size in a random direction."""

    error: float = 0.0
    """||xi - exact||_A, the root mean square of the error in values under the reference's own measure."""
    outer: int = 300
    """T."""
    samples: int = 0

    def __call__(self, problem, behaviour, reference, weights, key):
        """Returns the last target with its error added."""
        found = evaluate_exact(_task(problem, behaviour, reference), outer=self.outer)[-1]
        matrix = covariance(problem.features(reference), problem.pairs(reference))
        direction = jax.random.normal(key, weights.shape, dtype=jnp.float64)
        return found + self.error * direction / jnp.sqrt(direction @ matrix @ direction)


# Algorithm 3

ROUNDING = 1e-6
"""Tolerance on C_max: C(pi, pi) equals the rank up to rounding, which alone must not cause a refresh."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options of Algorithm 3."""

    steps: int
    """M, improvement steps in all."""
    step_size: float
    """eta, the step size of the ascent."""
    kappa: float = 2.0
    """C_max as a multiple of the rank of A_k, which is C(pi, pi). 0 refreshes in every epoch; infinity never does,
    as in the paper's off-policy case, where mu has full support."""
    trigger: str = "delta-ratio"
    """The measure of drift that ends an epoch, one of `fcritic.theory.trust.TRIGGERS`."""
    threshold: float = 2.0
    """The drift at which an epoch ends."""
    epoch_limit: float = math.inf
    """The longest epoch in steps. 1 evaluates before every step: the two-timescale scheme."""
    first: str = "absolute"
    """C_1 inside Delta: `absolute` (a bound), `printed` (none) or `exact`."""
    gradient: str = "both"
    """The formula of the step, one of `fcritic.theory.control.GRADIENTS`."""
    keep_data: bool = False
    """Whether transitions are drawn only when mu changes and then reused, or drawn anew for each evaluation."""

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
    """Returns the settings of the paper's on-policy adaptation: mu is the reference in every epoch."""
    return dataclasses.replace(settings, kappa=0.0)


def two_timescale(settings: Settings) -> Settings:
    """Returns the settings of the paper's limit of epochs of one step: an evaluation before every step."""
    return dataclasses.replace(settings, epoch_limit=1)


class Trace(NamedTuple):
    """The state before each improvement step; leading axes are seeds and steps."""

    theta: Float[Array, "*seeds steps parameters"]
    weights: Float[Array, "*seeds steps d"]
    """xi of the epoch, used by the step."""
    reference: Float[Array, "*seeds steps parameters"]
    """Parameters of the epoch's reference policy."""
    behaviour: Float[Array, "*seeds steps states actions"]
    """mu of the epoch, after a refresh."""
    epoch: Int[Array, "*seeds steps"]
    refreshes: Int[Array, "*seeds steps"]
    """Refreshes of mu so far."""
    samples: Float[Array, "*seeds steps"]
    """Transitions drawn so far."""
    coverage: Float[Array, "*seeds steps"]
    """C(reference, mu) at the start of the epoch, before a refresh."""
    drift: Float[Array, "*seeds steps"]
    """The measure of drift that can end the epoch."""
    slope: Float[Array, "*seeds steps parameters"]
    """The gradient that the step followed."""


class _Loop(NamedTuple):
    """The state between epochs."""

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
    theta: Theta,
    seeds: int,
    behaviour: Pairs | None = None,
    seed: int = 0,
) -> Trace:
    """Runs Algorithm 3 for several seeds at once, which differ in the sampled transitions, and returns the trace.

    **Arguments:** `theta` are the first parameters; `behaviour` is the first mu, the first policy where None.
    """
    if behaviour is None:
        behaviour = problem.policy(np.asarray(theta))
    keys = jax.random.split(jax.random.key(seed), seeds)
    program = (settings.steps, settings.trigger, settings.first)
    return _run_seeds(*program, problem, critic, _knobs(settings), theta, behaviour, keys)


class _Knobs(NamedTuple):
    """Settings that are arguments of the compiled program, so that one program serves all their values."""

    step_size: Array
    kappa: Array
    threshold: Array
    epoch_limit: Array
    keep_data: Array
    gradient: Array


class _Plan(NamedTuple):
    """The problem, the options and the key of one seed."""

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
    """Tests the coverage, evaluates the reference and improves the actor until it has drifted too far from it."""
    problem, critic, knobs = plan.problem, plan.critic, plan.knobs
    anchor = anchor_at(problem, loop.theta, plan.first if plan.trigger == "delta-ratio" else None)
    covered = coverage(anchor.phi, anchor.pairs, problem.pairs(loop.behaviour))
    refresh = covered > knobs.kappa * anchor.inverse.rank * (1 + ROUNDING)
    refresh &= jnp.any(loop.behaviour != anchor.pi)  # in the first epoch mu is already the reference
    behaviour = jnp.where(refresh, anchor.pi, loop.behaviour)
    refreshes = loop.refreshes + refresh
    # The same key and the same mu give the same transitions, which keeps the data.
    draws = jnp.where(knobs.keep_data > 0, refreshes, loop.epoch)
    weights = critic(problem, behaviour, anchor.pi, loop.weights, jax.random.fold_in(plan.key, draws))
    samples = critic.samples * (1.0 + draws)
    now = Trace(
        loop.theta, weights, loop.theta, behaviour, loop.epoch, refreshes, samples, covered, 0.0, loop.theta
    )
    theta, step, trace = _improve(plan, anchor, now, loop.step, loop.trace)
    return _Loop(theta, behaviour, weights, step, loop.epoch + 1, refreshes, trace)


def _improve(plan: _Plan, anchor: Anchor, row: Trace, step, trace: Trace):
    """Ascends with the epoch's weights and tests the drift after each step, as printed."""
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
        # The first step needs no test: the reference has not drifted from itself.
        return (step < plan.steps) & (within | (step == begun))

    state = (anchor.theta, step, drifted(anchor.theta), trace)
    theta, step, _, trace = jax.lax.while_loop(trusted, ascend, state)
    return theta, step, trace


@float64
def anchor_at(problem: Control, theta: Theta, first: str | None = "absolute") -> Anchor:
    """Returns the anchor of an epoch whose reference policy has these parameters.

    **Arguments:** `first` is the reading of C_1 in its Delta; None leaves Delta at 1.
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


# True values, gradients and errors along a trace


class Assessment(NamedTuple):
    """Exact figures before each improvement step; leading axes are seeds and steps."""

    objective: Float[Array, "seeds steps"]
    """J_rho of the policy."""
    squared_gradient: Float[Array, "seeds steps"]
    """||grad J_rho||^2."""
    error_largest: Float[Array, "seeds steps"]
    """The largest component of the step's gradient minus the true one."""
    error_length: Float[Array, "seeds steps"]
    """The length of the step's gradient minus the true one."""
    weight_error: Float[Array, "seeds steps"]
    """||xi - xi*||_{A_k}; NaN where the features have no xi*."""
    value_size: Float[Array, "seeds steps"]
    """||xi*||_{A_k}, the root mean square of the reference's values; NaN where the features have no xi*."""
    first_largest: Float[Array, "seeds steps"]
    """The largest component of G_1, the part of the error in the first term of eq. (2)."""


@float64
@jax.jit
def assess(problem: Control, trace: Trace) -> Assessment:
    """Returns exact figures along a trace."""

    def one(row: Trace) -> Assessment:
        exact = jax.grad(problem.objective)(row.theta)
        error = row.slope - exact
        return Assessment(
            objective=problem.objective(row.theta),
            squared_gradient=jnp.sum(exact**2),
            error_largest=jnp.max(jnp.abs(error)),
            error_length=jnp.sqrt(jnp.sum(error**2)),
            weight_error=_length(problem, row, row.weights),
            value_size=_length(problem, row, jnp.zeros_like(row.weights)),
            first_largest=_first_error(problem, row),
        )

    return jax.vmap(jax.vmap(one))(trace)


def _length(problem: Control, row: Trace, weights: Weights) -> Float[Array, ""]:
    """Returns ||weights - xi*||_{A_k}."""
    truth = getattr(problem.features, "weights", None)
    if truth is None:
        return jnp.array(jnp.nan)
    pi = problem.policy(row.reference)
    matrix = covariance(problem.features(pi), problem.pairs(pi))
    error = weights - truth
    return jnp.sqrt(jnp.maximum(error @ matrix @ error, 0.0))


def _first_error(problem: Control, row: Trace) -> Float[Array, ""]:
    truth = getattr(problem.features, "weights", None)
    if truth is None:
        return jnp.array(jnp.nan)
    return jnp.max(jnp.abs(first_term(problem, row.theta, row.weights - truth, problem.rho)))


@float64
@jax.jit
def coefficients(problem: Control, trace: Trace) -> Drift:
    """Returns all coefficients of eq. (9) along a trace, for each step relative to its epoch's reference."""

    def one(row: Trace) -> Drift:
        anchor = anchor_at(problem, row.reference, None)
        return drift(problem.policy, problem.features, problem.rho, row.theta, anchor.inverse)

    return jax.vmap(lambda rows: jax.lax.map(one, rows))(trace)
