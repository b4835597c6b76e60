"""The functional actor-critic: Algorithm `alg-nn` of the paper, in its own order."""

import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray
import optax

from fcritic import ensembles
from fcritic.agents.action_noise import draw_noise, with_noise
from fcritic.agents.base import AbstractAgent
from fcritic.agents.fac_limits import require_sensible
from fcritic.agents.fac_rollout import RolloutMemory, begin_rollout, rollout_action
from fcritic.agents.fac_start import begin_actors, begin_critics, begin_priors
from fcritic.agents.fac_state import FACState, Policies
from fcritic.agents.facts import cheaper_than, parts_of, table_of
from fcritic.agents.learner import Learner
from fcritic.agents.losses import actions, functional_critic_loss, own_values
from fcritic.agents.masks import mask_weights
from fcritic.agents.neighbours import NeighbourKind, draw_neighbours
from fcritic.agents.optimisers import critic_adam, heads_later
from fcritic.agents.pairing import Pairing, actor_gradients, permuted
from fcritic.kernels.packing import unpack
from fcritic.networks.actor_encoder import ActorEncoder, EncoderConfig
from fcritic.networks.critics import FunctionalCritic, ValueHead
from fcritic.networks.policies import DeterministicPolicy
from fcritic.networks.precision import Precision
from fcritic.networks.priors import Prior
from fcritic.randomness import apart
from fcritic.types import EnvSpec, Metrics, Transition

Targets = Literal["own", "mean"]

_PRIOR_STREAM, _MASK_STREAM = 2**31, 2**31 + 1  # far from 0, 1, 2, which the first parameters use


@dataclasses.dataclass(frozen=True)
class FAC(AbstractAgent[FACState]):
    """n deterministic actors paired with n functional critics; no noise, no entropy, no double Q."""

    auto_on_gpu: ClassVar[Precision] = "bfloat16"
    actor_metrics: ClassVar[tuple[str, ...]] = ("actor_value", "actor_grad_norm")
    packed_kinds: ClassVar[tuple[type, ...]] = (DeterministicPolicy, ActorEncoder, ValueHead)
    unrolled_on_gpu: ClassVar[bool] = True

    members: int = 10
    """Actors and critics, n (text: 10)."""
    critics: int | None = None
    """Critics, where they shall not be as many as the actors (paper: n; needs `pairing` mean)."""
    learning_rate: float = 3e-4
    """Step of Adam for actors and critics (Table `tab:hyperparams`)."""
    encoder_learning_rate: float | None = None
    """Step of Adam for the actor encoder and its probes (paper and default: the same)."""
    tau: float = 0.005
    """Target update rate, 1 - rho (Table `tab:hyperparams`)."""
    actor_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of an actor (Table `tab:hyperparams`)."""
    state_action_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the state-action encoder E_sa (Table `tab:hyperparams`)."""
    state_action_code: int = 64
    """State-action encoding dimension (Table `tab:hyperparams`)."""
    joint_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the joint encoder E_joint (Table `tab:hyperparams`)."""
    layer_norm: bool = True
    """Layer norm in E_sa (also its output) and E_joint (open; public fork: on)."""
    actor_last_scale: float = 0.003
    """Spread of the actors' last layer at the start (open; public fork: 0.003, so all begin near 0)."""
    actor_reach: float | None = None
    """What the mean size of an actor's last layer is held to before its tanh, so that its actions keep off their
    bounds, where they could learn no more (paper: none; Wang 2020: 1)."""
    encoder: EncoderConfig = EncoderConfig()
    """The actor encoder E_act."""
    functional: bool = True
    """Ablation: False gives plain critics Q(s, a), each learning on its own actor only."""
    adam_epsilon: float = 1e-8
    """Adam's guard against division by zero (open)."""
    actor_states: Literal["current", "both"] = "current"
    """States of the actor update: those of the batch, or `both` these and their successors (open; fork: both)."""
    second_term: float = 1.0
    """Weight of the second gradient term, through the policy input (1: the exact gradient, 0: without)."""
    pairing: Pairing = "fixed"
    """Which critic improves an actor: its own (paper), one drawn at each update, or the mean of all."""
    targets: Targets = "own"
    """What a critic regresses on: the target of its own (paper), or the mean over all critics."""
    neighbours: NeighbourKind = "none"
    """Policies never run that the critics learn on too (paper: none)."""
    neighbour_scale: float = 3.0
    """How far neighbours lie, meant for `path`; the others want less (see `fcritic.agents.neighbours`)."""
    neighbour_rate: float = 0.005
    """Rate of the slow average that `path` neighbours start from."""
    action_noise: float = 0.0
    """Deviation of the noise that is part of every policy: in training, in targets and in the actors' updates
    (paper: none). Evaluation has none."""
    exploration_noise: float = 0.0
    """Deviation of what a step adds to the noise of exploring, unknown to the critics (paper: none; TD3+: 0.2)."""
    exploration_memory: float = 0.85
    """Share of that noise that stays from step to step (TD3+: 0.85; 0: no memory)."""
    per_step_actor: bool = False
    """Ablation: draw the rollout actor at every step instead of every episode (line 7)."""
    rollout_actors: int | None = None
    """Ablation: only the first so many actors collect data, all learn from it (paper: all collect)."""
    prior_scale: float = 0.0
    """beta: a fixed random function of deviation about beta, added to each critic and its target (paper: none)."""
    mask_probability: float = 1.0
    """Share of the transitions that a critic learns from, drawn for each pair of the two once (paper: all)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sensible(self)

    def init(self, spec: EnvSpec, key: PRNGKeyArray) -> FACState:
        """Actors, critics and targets (lines 1-3)."""
        actor_key, encoder_key, head_key = apart(key, 3)
        policies = begin_actors(self, spec, actor_key)
        critics = begin_critics(self, spec, encoder_key, head_key)
        return FACState(
            Learner.start(policies, self._actor_optimiser()),
            Learner.start(critics, self._critic_optimiser()),
            critics.head,
            policies if self.neighbours == "path" else None,
            begin_priors(self, spec, jax.random.fold_in(key, _PRIOR_STREAM)) if self.prior_scale else None,
            jax.random.key_data(jax.random.fold_in(key, _MASK_STREAM)) if self.numbered else None,
        )

    def begin_episode(self, spec: EnvSpec, key: PRNGKeyArray) -> RolloutMemory:
        """The rollout actor of the episode (line 7)."""
        return begin_rollout(self, spec, key)

    def rollout_policy(self, state: FACState) -> Policies:
        """All n actors."""
        return state.actors.params

    evaluation_policies = rollout_policy

    def act(
        self, policy: Policies, memory: RolloutMemory, obs: Float[Array, " obs"], key: PRNGKeyArray
    ) -> tuple[Float[Array, " act"], RolloutMemory]:
        """The rollout actor's action, without noise unless that is asked for (line 8)."""
        return rollout_action(self, policy, memory, obs, key)

    def foresee(self, state: FACState, batches: Transition, keys: Key[Array, " updates"]) -> Transition:
        """The actors' next actions, unless policies that are drawn for each update join them."""
        if self.neighbours != "none":
            return batches
        policies, obs = unpack(state.actors.params), batches.next_obs
        together = actions(policies, obs.reshape(-1, obs.shape[-1]), self.compute_dtype)
        act = jnp.moveaxis(together.reshape(len(together), *obs.shape[:2], -1), 1, 0)
        return batches._replace(next_act=vmap(self._with_own_noise)(act, keys))

    def critic_step(self, state: FACState, batch: Transition, key: PRNGKeyArray) -> tuple[FACState, Metrics]:
        """Trains every critic on the product of policies and batch; its target follows (lines 11-16)."""
        policies, targets = unpack((state.actors.params, state.targets))
        if self.neighbours != "none":
            extra = draw_neighbours(self.neighbours, policies, unpack(state.slow_actors), self.neighbour_scale, key)
            policies = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), policies, extra)
        if batch.next_act is None:
            act = actions(policies, batch.next_obs, self.compute_dtype)
            batch = batch._replace(next_act=self._with_own_noise(act, key))
        dtype, priors, weights = self.compute_dtype, self._priors(state), None
        if self.numbered:
            weights = mask_weights(state.mask_key, batch.number, self.critic_count, self.mask_probability)

        def loss(critics: FunctionalCritic) -> tuple[Float[Array, ""], Metrics]:
            sides = critics.lowered(dtype), targets.lowered(dtype)
            given = (policies, batch, self.discount, self.shared_encoder, priors, weights)
            return functional_critic_loss(*sides, *given, self.targets == "mean")

        grads, metrics = jax.grad(loss, has_aux=True)(unpack(state.critics.params))
        critics = state.critics.apply(heads_later(grads, dtype), self._critic_optimiser())
        delayed = ensembles.polyak(state.targets, critics.params.head, self.tau)
        slow = state.slow_actors
        if slow is not None:
            slow = ensembles.polyak(slow, state.actors.params, self.neighbour_rate)
        return dataclasses.replace(state, critics=critics, targets=delayed, slow_actors=slow), metrics

    def actor_step(self, state: FACState, batch: Transition, key: PRNGKeyArray) -> tuple[FACState, Metrics]:
        """Moves every actor up the exact off-policy gradient of its critic (lines 18-22)."""
        policies, critics = unpack((state.actors.params, state.critics.params))
        critics = critics.lowered(self.compute_dtype)
        priors = self._priors(state)
        if self.pairing == "permuted":
            critics, priors = permuted(critics, priors, self.shared_encoder, key)
        obs = jnp.concatenate([batch.obs, batch.next_obs]) if self.actor_states == "both" else batch.obs
        noise = draw_noise(self.action_noise, (obs.shape[0], batch.act.shape[1]), key)
        given = (obs, self.second_term, self.shared_encoder, self.pairing == "mean", noise)
        losses, grads = actor_gradients(policies, critics, priors, *given)
        actors = state.actors.apply(grads, self._actor_optimiser())
        metrics = {"actor_value": -losses.mean(), "actor_grad_norm": vmap(optax.tree.norm)(grads).mean()}
        return eqx.tree_at(lambda s: s.actors, state, actors), metrics

    def disagreement(self, state: FACState, obs: Float[Array, "batch obs"]) -> Float[Array, " actors"]:
        """Over all critics, also those of other actors."""
        found = own_values(state.critics.params, state.actors.params, obs, self.shared_encoder, state.priors)
        return found.std(axis=0).mean(axis=-1)

    def describe(self, spec: EnvSpec) -> dict[str, Any]:
        """Every row of Table `tab:hyperparams`, and what the text adds to it."""
        return table_of(self, spec)

    def parts(self, state: FACState) -> dict[str, Any]:
        """One member of each part, and all that is trained; priors, where there are some, are not."""
        return parts_of(self, state)

    def cheaper(self) -> dict[str, "FAC"]:
        """Variants that cost less, by the options that make them."""
        return cheaper_than(self)

    @property
    def numbered(self) -> bool:
        """Masks are computed from the numbers of transitions."""
        return self.mask_probability < 1

    @property
    def critic_count(self) -> int:
        """Critics; as many as actors unless told otherwise."""
        return self.members if self.critics is None else self.critics

    @property
    def collectors(self) -> int:
        """Actors that collect data; all unless told otherwise."""
        return self.members if self.rollout_actors is None else self.rollout_actors

    @property
    def encoder_rate(self) -> float:
        """The step of Adam for the encoder."""
        return self.learning_rate if self.encoder_learning_rate is None else self.encoder_learning_rate

    @property
    def shared_encoder(self) -> bool:
        """Whether the critics' encoder has no axis of members."""
        return self.functional and self.encoder.shared

    def _with_own_noise(self, act: Float[Array, "actors batch act"], key: PRNGKeyArray) -> Float[Array, "..."]:
        """All policies with the same noise."""
        noise = draw_noise(self.action_noise, act.shape[1:], key)
        return vmap(lambda one: with_noise(one, noise))(act)

    def _priors(self, state: FACState) -> Prior | None:
        """In the type in which the critics compute."""
        return None if state.priors is None else unpack(state.priors).lowered(self.compute_dtype)

    def _actor_optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate, eps=self.adam_epsilon)

    def _critic_optimiser(self) -> optax.GradientTransformation:
        return critic_adam(self.learning_rate, self.encoder_rate, self.adam_epsilon)
