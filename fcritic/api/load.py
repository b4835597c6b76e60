"""A trained agent, loaded from its run: it acts, and its critics value any policy without running it."""

from collections.abc import Callable, Sequence
import contextlib
import dataclasses
from pathlib import Path
from typing import Any
import warnings

import equinox as eqx
import jax
from jax.core import Tracer
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from fcritic import ensembles
from fcritic.agents.recipes import Recipe
from fcritic.api import valuation
from fcritic.api.trust import config_of
from fcritic.api.valuation import Critics, critics_of
from fcritic.config import TrainConfig
from fcritic.envs import Task, Units, task_units
from fcritic.errors import UsageError, one_line
from fcritic.networks.policies import FunctionPolicy, Policy
from fcritic.runs.directory import RunDirectory
from fcritic.startup.backend import prepare
from fcritic.training.health import require_acting
from fcritic.training.replay import Normalizer
from fcritic.training.saving import load_policies, load_state
from fcritic.training.sight import Sight
from fcritic.types import EnvSpec


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """The difference in value between two policies, by each critic."""

    differences: Float[np.ndarray, "critics batch"]
    """Q(a, s, a(s)) - Q(b, s, b(s)) at every state given."""

    @property
    def per_critic(self) -> Float[np.ndarray, " critics"]:
        """The mean over states, critic by critic."""
        return self.differences.mean(axis=1)

    @property
    def mean(self) -> float:
        """The mean over critics and states."""
        return float(self.differences.mean())

    @property
    def spread(self) -> float:
        """Deviation between critics: a `mean` that is smaller than this says little."""
        return float(self.per_critic.std())


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TrainedAgent:
    """The policies and critics of one seed. Observations and actions are the task's own, not the networks'.

    An observation is one of the environment's, or flat; several are a list of them, or have one more leading axis,
    in each part of a Dict or Tuple. Where a policy is asked for, the number of an actor will do, or any policy: a
    pytree of arrays with `__call__` and `activations` that maps *normalised* observations to actions in [-1, 1], as
    `policies` do.
    """

    policies: Any
    """The actors, stacked along a leading axis."""
    critics: Critics
    """The online critics, stacked, with their priors; a shared encoder has no leading axis."""
    normalizer: Normalizer
    """The policies' normaliser of observations; unused where `config.normalize` is off."""
    critic_normalizer: Normalizer
    """The critics' normaliser: the same, except for policies of an earlier frame (`load(best=True)`)."""
    config: TrainConfig
    spec: EnvSpec
    units: Units
    """Between the task's own units and the networks'."""
    seed: int
    """The number of the seed."""
    frame: int
    """Frames that the training had taken."""
    directory: Path
    """Of the run."""
    actor: int = 0
    """The actor that acts by default."""
    best_frame: int | None = None
    """The frame of the evaluation whose actors these are (`load(best=True)`); None for the newest actors."""

    @property
    def actors(self) -> int:
        """How many policies there are."""
        return ensembles.size(self.policies)

    def __repr__(self) -> str:
        actors = f"{self.actors} actor{'s' if self.actors > 1 else ''}, {self._critic_count} critics"
        repeat = f", each action held {self.config.action_repeat} times" if self.config.action_repeat > 1 else ""
        return "\n".join(
            [
                f"TrainedAgent {self.config.recipe} on {self.config.task}",
                f"  {actors}; act() asks actor {self.actor}",
                f"  observations of size {self.spec.obs_dim}, actions of size {self.spec.act_dim}{repeat}",
                f"  seed {self.seed} at frame {self.frame:,}",
                f"  from {self.directory}",
            ]
        )

    def policy(self, actor: int | None = None) -> Policy:
        """One of the actors."""
        actor = self.actor if actor is None else actor
        if not 0 <= actor < self.actors:
            raise UsageError(f"there is no actor {actor}; this agent has actors 0 to {self.actors - 1}")
        return ensembles.member(self.policies, int(actor))

    def act(self, obs: Any, actor: int | Policy | None = None) -> np.ndarray:
        """Returns an actor's action without noise, in the task's units, for each observation."""
        batch, single = self._batch(obs)
        found = np.asarray(valuation.actions(self._policy(actor), self.policy_normalizer, batch))
        scaled = self.units.actions.scale(found)
        return scaled[0] if single else scaled

    def value(self, policy: int | Policy, obs: Any, act: Any = None) -> Float[Array, " critics *batch"]:
        """Q(pi, s, a) by each critic: the discounted rewards of `act`, then of following the policy.

        Without `act` it is the policy's own action. Rewards are summed over an action's repeats and discounted
        per action. Plain critics (sac, td3, fac-plain) do not see the policy: what they value after the action is
        the agent's own policy, and sac's values hold its reward for entropy too. A policy that acts far from the
        agent's actors is valued with a warning: see `trust`.
        """
        batch, single = self._batch(obs)
        self._warn_if_far(policy, batch)
        acts = None if act is None else self._actions(act, len(batch))
        found = valuation.values(self.critics, self.sight, self._policy(policy), batch, acts)
        return found[:, 0] if single else found

    def trust(self, policy: int | Policy, obs: Any) -> valuation.Trust:
        """Whether the critics can judge a policy at these observations, by how far it acts from their actors."""
        return self._trust(self._policy(policy), self._batch(obs)[0])

    def _warn_if_far(self, policy: int | Policy, batch: Float[Array, "batch obs"]) -> None:
        """Warns of a policy, other than an actor, without the mark; never inside a transformation of JAX."""
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((policy, batch)))
        if not traced and not isinstance(policy, int | np.integer):
            trust = self._trust(policy, batch)
            if not trust.mark:
                warnings.warn(f"this value is unreliable: {trust.reason}", stacklevel=3)

    def _trust(self, policy: Policy, batch: Float[Array, "batch obs"]) -> valuation.Trust:
        act = lambda each: np.asarray(valuation.actions(each, self.policy_normalizer, batch))
        return valuation.trust(act(policy), np.stack([act(self.policy(actor)) for actor in range(self.actors)]))

    def gradient(
        self, policy: int | Policy, obs: Any, critic: int | None = None, second_term: float = 1.0
    ) -> Policy:
        """The slope of the mean over observations of Q(pi, s, pi(s)) in the policy, a tree shaped like it.

        By the mean of the critics, or by the one named. It holds both terms: through the action, and, weighted by
        `second_term`, through the critic's policy input.
        """
        count = self._critic_count
        if critic is not None and not 0 <= critic < count:
            raise UsageError(f"there is no critic {critic}; this agent has critics 0 to {count - 1}")
        batch, _ = self._batch(obs)
        return valuation.gradient(self.critics, self.sight, self._policy(policy), batch, critic, second_term)

    def compare(self, policy_a: int | Policy, policy_b: int | Policy, obs: Any) -> Comparison:
        """Returns the difference in value between two policies at these observations, without running either."""
        batch, _ = self._batch(obs)
        for policy in (policy_a, policy_b):
            self._warn_if_far(policy, batch)
        each = [
            valuation.values(self.critics, self.sight, self._policy(policy), batch)
            for policy in (policy_a, policy_b)
        ]
        return Comparison(np.asarray(each[0]) - np.asarray(each[1]))

    def adapt(self, layers: Callable[[Any, Any], Any], params: Any = None) -> FunctionPolicy:
        """A policy in the task's own units, as `value`, `gradient` and `compare` take it.

        ``layers(params, obs)`` gets a raw observation as the task gives it, in arrays of JAX, and returns a tuple:
        the hidden activations that the critics' encoder shall see and, last, the task's action. A controller may
        return the action alone: what the encoder reads before it is then the observation. Shapes are checked here.
        """
        low, high = (
            jnp.asarray(bound, jnp.float32).ravel() for bound in (self.units.actions.low, self.units.actions.high)
        )
        normalizer = self.policy_normalizer

        def in_the_networks_units(params: Any, obs: Float[Array, " obs"]) -> tuple[Array, ...]:
            raw = obs if normalizer is None else normalizer.undo(obs)
            found = layers(params, self._in_parts(raw))
            *hidden, act = found if isinstance(found, tuple) else (obs, found)
            self._require_layers(hidden, act)
            scaled = (2 * jnp.ravel(act) - low - high) / jnp.where(high > low, high - low, 1.0)
            return (*hidden, jnp.clip(scaled, -1.0, 1.0))

        policy = FunctionPolicy(in_the_networks_units, params)
        try:
            example = jax.ShapeDtypeStruct((1, self.spec.obs_dim), jnp.float32)
            eqx.filter_eval_shape(valuation.values, self.critics, self.sight, policy, example)
        except UsageError:
            raise
        except Exception as error:
            what = one_line(str(error).partition("\n")[0], 200)
            raise UsageError(
                f"this controller does not fit {self.config.task}: {type(error).__name__}: {what}"
            ) from error
        return policy

    def _in_parts(self, flat: Float[Array, " obs"]) -> Any:
        """A flat observation as the task gives it."""
        if self.units.unflatten is not None:
            return self.units.unflatten(flat)
        return flat if self.units.obs_shape is None else flat.reshape(self.units.obs_shape)

    def _require_layers(self, hidden: Sequence[Any], act: Any) -> None:
        own = self.units.actions.low.shape
        if np.shape(act) not in (own, (self.spec.act_dim,)):
            raise UsageError(
                f"this controller returns an action of shape {np.shape(act)}; {self.config.task} takes {own}"
            )
        if wrong := [np.shape(each) for each in hidden if np.ndim(each) != 1]:
            raise UsageError(f"the hidden activations of a controller are vectors, not of shape {wrong[0]}")

    @property
    def policy_normalizer(self) -> Normalizer | None:
        """The policies' normaliser; None where observations are not normalised."""
        return self.normalizer if self.config.normalize else None

    @property
    def sight(self) -> Sight:
        """What critics and policies see."""
        if not self.config.normalize:
            return Sight(None)
        same = self.normalizer is self.critic_normalizer
        return Sight(self.critic_normalizer, None if same else self.normalizer)

    @property
    def _critic_count(self) -> int:
        return ensembles.size(getattr(self.critics, "head", self.critics))

    def _policy(self, policy: int | Policy | None) -> Policy:
        return self.policy(policy) if policy is None or isinstance(policy, int | np.integer) else policy

    def _batch(self, obs: Any) -> tuple[Float[Array, "batch obs"], bool]:
        """Returns observations, flat and with a leading axis, and whether there was only one."""
        if isinstance(obs, dict) or (isinstance(obs, list | tuple) and self._of_parts(obs)):
            obs = self._flattened(obs)
        shape, flat = np.shape(obs), (self.spec.obs_dim,)
        known = (flat, self.units.obs_shape)
        single = shape in known
        if not single and shape[1:] not in known:
            wanted = " or ".join(str(each) for each in dict.fromkeys(known) if each is not None)
            names = self.units.obs_names(self.spec.obs_dim) if self.units.unflatten is not None else []
            parts = f": {', '.join(names)}; the task's own form will do, too" * bool(names)
            raise UsageError(
                f"an observation of {self.config.task} has shape {wanted}, or one more axis, not {shape}{parts}"
            )
        array = obs.astype(jnp.float32) if isinstance(obs, jax.Array) else np.asarray(obs, np.float32)
        return array.reshape(1 if single else shape[0], *flat), single

    def _of_parts(self, obs: Any) -> bool:
        """Whether a list or a tuple is of observations with several parts, or is one."""
        several = self.units.obs_shape is None
        return several and (isinstance(obs, tuple) or any(isinstance(each, dict | tuple) for each in obs))

    def _flattened(self, obs: Any) -> np.ndarray:
        """One observation of several parts as one row; a list of them, or parts with a leading axis, as rows."""
        fault = (TypeError, ValueError, LookupError, AttributeError)
        try:
            if isinstance(obs, list) or (isinstance(obs, tuple) and all(isinstance(each, dict) for each in obs)):
                return np.stack([self._flat(each) for each in obs])
            try:
                return self._flat(obs)
            except fault:
                counts = {len(part) if np.ndim(part) else 0 for part in leaves_of(obs)}
                count = counts.pop() if len(counts) == 1 else 0
                with contextlib.suppress(*fault):  # then the first error is reported
                    return np.stack([self._flat(row_of(obs, row)) for row in range(count)])
                raise
        except fault as error:
            raise UsageError(f"this is not an observation of {self.config.task}: {error}") from error

    def _flat(self, observation: Any) -> np.ndarray:
        flat = self.units.flatten(observation)
        if flat.shape != (self.spec.obs_dim,):
            raise ValueError(f"it has {flat.size} numbers, not {self.spec.obs_dim}")
        return flat

    def _actions(self, act: Any, count: int) -> Float[np.ndarray, "batch act"]:
        """The task's actions in [-1, 1], one for each observation."""
        own = self.units.actions.low.shape
        array = np.asarray(act, np.float64)
        if array.shape not in (own, (count, *own)):
            raise UsageError(
                f"an action of {self.config.task} has shape {own}, here {count} of them, not {array.shape}"
            )
        return self.units.actions.unscale(np.broadcast_to(array, (count, *own)))


def leaves_of(obs: Any) -> list[Any]:
    """The parts of an observation that have no parts."""
    if isinstance(obs, dict | tuple):
        return [leaf for part in (obs.values() if isinstance(obs, dict) else obs) for leaf in leaves_of(part)]
    return [obs]


def row_of(obs: Any, row: int) -> Any:
    """One of several observations whose parts are stacked."""
    if isinstance(obs, dict):
        return {name: row_of(part, row) for name, part in obs.items()}
    return tuple(row_of(part, row) for part in obs) if isinstance(obs, tuple) else obs[row]


def load(
    directory: str | Path,
    seed: int | None = None,
    best: bool = False,
    actor: int | None = None,
    task: Task | None = None,
    recipe: Recipe | None = None,
) -> TrainedAgent:
    """The agent of a run's newest whole checkpoint. Nothing in the run's folder is executed.

    `seed` is the number of a seed, by default the run's first. With `best` the policies are those of that seed's
    best evaluation so far; the critics are the newest in any case. `actor` acts by default; without it the first.
    `task` and `recipe` take the place of the recorded ones, where these were given in Python or have moved.
    """
    prepare()
    run = RunDirectory.open_existing(directory)
    config = config_of(run, task, recipe)
    newest = run.require_checkpoint()
    seed = config.seed if seed is None else seed
    if seed not in config.seed_numbers:
        first, last = config.seed_numbers[0], config.seed_numbers[-1]
        raise UsageError(
            f"{directory} has no seed {seed}; it has {first if first == last else f'{first} to {last}'}"
        )
    spec, units = task_units(config.task)
    of_seed = lambda tree: ensembles.member(tree, config.seed_numbers.index(seed))
    state = load_state(config, newest, spec)[0]
    learned, seen = of_seed(state.agent), of_seed(state.normalizer)
    policies, normalizer, best_frame = config.agent.evaluation_policies(learned), seen, None
    if best:
        policies, normalizer, facts = load_policies(config, newest, best=True, spec=spec)
        policies, normalizer = of_seed((policies, normalizer))
        best_frame = facts["best"]["frame"][config.seed_numbers.index(seed)]
    require_acting(policies)
    frame = int(newest.name.removeprefix("step-"))
    networks = (policies, critics_of(learned), normalizer, seen)
    agent = TrainedAgent(*networks, config, spec, units, seed, frame, run.path, best_frame=best_frame)
    agent.policy(actor)  # refuses one that is not there
    return dataclasses.replace(agent, actor=actor or 0)
