"""How Algorithm 3 evaluates a reference policy: forms of Algorithm 2."""

import abc
import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fcritic.theory.evaluation import evaluate, evaluate_exact, sample
from fcritic.theory.policy_gradients import Control
from fcritic.theory.tasks import Task
from fcritic.theory.trust import covariance


class AbstractCritic(abc.ABC):
    """An evaluation of a policy from data of another one."""

    samples: int
    """Transitions that one evaluation draws from the behaviour policy."""

    @abc.abstractmethod
    def __call__(
        self,
        problem: Control,
        behaviour: Float[Array, "states actions"],
        reference: Float[Array, "states actions"],
        weights: Float[Array, " d"],
        key: Array,
    ) -> Float[Array, " d"]:
        """New weights xi for the reference policy; `weights` are those of the epoch before."""


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
    """Start the first target from the weights of the epoch before instead of zero."""
    sampling: str = "independent"
    """`independent`, or `trajectory` for one path of the behaviour policy."""

    @property
    def samples(self) -> int:
        """One for each gradient step."""
        return self.outer * self.inner

    def __call__(self, problem, behaviour, reference, weights, key):
        """The last target of Algorithm 2."""
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
    """Algorithm 2 with its inner loop run to the end on a data set: T times least squares."""

    samples: int
    """Transitions in the data set, drawn independently."""
    outer: int = 100
    """T."""

    def __call__(self, problem, behaviour, reference, weights, key):
        """The last target on the data's frequencies."""
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
        """The last target and its error."""
        found = evaluate_exact(_task(problem, behaviour, reference), outer=self.outer)[-1]
        matrix = covariance(problem.features(reference), problem.pairs(reference))
        direction = jax.random.normal(key, weights.shape, dtype=jnp.float64)
        return found + self.error * direction / jnp.sqrt(direction @ matrix @ direction)
