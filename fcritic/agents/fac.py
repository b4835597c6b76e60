"""The functional actor-critic: Algorithm `alg-nn` of the paper, in its own order."""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray
import optax

from fcritic import ensembles
from fcritic.agents.base import AbstractAgent, Learner
from fcritic.agents.losses import actor_loss, functional_critic_loss
from fcritic.agents.neighbours import NeighbourKind, draw_neighbours
from fcritic.errors import UsageError, require_at_least
from fcritic.networks.actor_encoder import EncoderConfig
from fcritic.networks.critics import BlindEncoder, FunctionalCritic, ValueHead
from fcritic.networks.policies import DeterministicPolicy
from fcritic.types import EnvSpec, Metrics, Transition

Pairing = Literal["fixed", "permuted", "mean"]


class FACState(eqx.Module):
    """What the agent learns; every part has a leading axis of n members."""

    actors: Learner
    """The policies A_t."""
    critics: Learner
    """The critics Q^(i); a shared encoder has no leading axis."""
    targets: ValueHead
    """The delayed heads, xi'_sa and xi'_joint."""
    slow_actors: DeterministicPolicy | None
    """A slow average of each actor, where `path` neighbours are drawn from it."""


@dataclasses.dataclass(frozen=True)
class FAC(AbstractAgent[FACState]):
    """n deterministic actors paired with n functional critics; no noise, no entropy, no double Q."""

    members: int = 10
    """Actors and critics, n (text: 10)."""
    learning_rate: float = 3e-4
    """Step of Adam for actors and critics (Table `tab:hyperparams`)."""
    encoder_learning_rate: float = 3e-4
    """Step of Adam for the actor encoder and its probes (paper: the same)."""
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
    encoder: EncoderConfig = EncoderConfig()
    """The actor encoder E_act."""
    functional: bool = True
    """Ablation: False gives plain critics Q(s, a), each learning on its own actor only."""
    second_term: float = 1.0
    """Weight of the second gradient term, through the policy input (1: the exact gradient, 0: without)."""
    pairing: Pairing = "fixed"
    """Which critic improves an actor: its own (paper), another one at each update, or the mean of all."""
    neighbours: NeighbourKind = "none"
    """Policies never run that the critics learn on too (paper: none)."""
    neighbour_scale: float = 3.0
    """How far neighbours lie; see `fcritic.agents.neighbours`."""
    neighbour_rate: float = 0.005
    """Rate of the slow average that `path` neighbours start from."""
    per_step_actor: bool = False
    """Ablation: draw the rollout actor at every step instead of every episode (line 7)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        widths = (*self.actor_hidden, *self.state_action_hidden, *self.joint_hidden, self.state_action_code)
        require_at_least(1, members=self.members, layer_width=min(widths))
        require_at_least(0, learning_rate=self.learning_rate, encoder_learning_rate=self.encoder_learning_rate)
        if not 0 <= self.tau <= 1:
            raise UsageError(f"--tau must be in [0, 1], not {self.tau:g}")
        layers = len(self.actor_hidden) + 1
        if outside := [layer for layer in self.encoder.layers if not -layers <= layer < layers]:
            raise UsageError(f"--encoder.layers names layer {outside[0]}, but actors have {layers} layers")

    def init(self, spec: EnvSpec, key: PRNGKeyArray) -> FACState:
        """Actors, critics and targets (lines 1-3)."""
        actor_key, encoder_key, head_key = jax.random.split(key, 3)
        policies = ensembles.stack(
            lambda k: DeterministicPolicy(
                spec.obs_dim, self.actor_hidden, spec.act_dim, key=k, last_scale=self.actor_last_scale
            ),
            self.members,
            actor_key,
        )
        critics = FunctionalCritic(
            self._init_encoder(spec, encoder_key),
            ensembles.stack(lambda k: self._init_head(spec, k), self.members, head_key),
        )
        return FACState(
            Learner.start(policies, self._actor_optimiser()),
            Learner.start(critics, self._critic_optimiser()),
            critics.head,
            policies if self.neighbours == "path" else None,
        )

    def begin_episode(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """The rollout actor of the episode (line 7)."""
        return jax.random.randint(key, (), 0, self.members)

    def act(
        self, state: FACState, memory: Int[Array, ""], obs: Float[Array, " obs"], key: PRNGKeyArray
    ) -> Float[Array, " act"]:
        """The rollout actor's action, without noise (line 8)."""
        index = jax.random.randint(key, (), 0, self.members) if self.per_step_actor else memory
        # Computing all actors and picking one is cheaper than gathering one actor's weights.
        return vmap(lambda policy: policy(obs))(state.actors.params)[index]

    def critic_step(self, state: FACState, batch: Transition, key: PRNGKeyArray) -> tuple[FACState, Metrics]:
        """Trains every critic on the product of policies and batch; its target follows (lines 11-16)."""
        policies = state.actors.params
        if self.neighbours != "none":
            extra = draw_neighbours(self.neighbours, policies, state.slow_actors, self.neighbour_scale, key)
            policies = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), policies, extra)
        grads, metrics = jax.grad(functional_critic_loss, has_aux=True)(
            state.critics.params, state.targets, policies, batch, self.discount, self._critic_axes
        )
        critics = state.critics.apply(grads, self._critic_optimiser())
        targets = ensembles.polyak(state.targets, critics.params.head, self.tau)
        slow = state.slow_actors
        if slow is not None:
            slow = ensembles.polyak(slow, state.actors.params, self.neighbour_rate)
        return FACState(state.actors, critics, targets, slow), metrics

    def actor_step(self, state: FACState, batch: Transition, key: PRNGKeyArray) -> tuple[FACState, Metrics]:
        """Moves every actor up the exact off-policy gradient of its critic (lines 18-22)."""
        policies, critics, axes = state.actors.params, state.critics.params, self._critic_axes
        if self.pairing == "permuted":
            order = jax.random.permutation(key, self.members)
            encoder = critics.encoder if self.encoder.shared else ensembles.member(critics.encoder, order)
            critics = FunctionalCritic(encoder, ensembles.member(critics.head, order))

        def loss(policy: DeterministicPolicy, critic: FunctionalCritic) -> Float[Array, ""]:
            if self.pairing == "mean":
                one = lambda c: actor_loss(policy, c, batch.obs, self.second_term)
                return vmap(one, in_axes=(axes,))(critic).mean()
            return actor_loss(policy, critic, batch.obs, self.second_term)

        critic_axis = None if self.pairing == "mean" else axes
        losses, grads = vmap(jax.value_and_grad(loss), in_axes=(0, critic_axis))(policies, critics)
        actors = state.actors.apply(grads, self._actor_optimiser())
        norms = vmap(optax.global_norm)(grads)
        metrics = {"actor_value": -losses.mean(), "actor_grad_norm": norms.mean()}
        return eqx.tree_at(lambda s: s.actors, state, actors), metrics

    def evaluation_policies(self, state: FACState) -> DeterministicPolicy:
        """All n actors."""
        return state.actors.params

    def describe(self, spec: EnvSpec) -> dict[str, Any]:
        """Every row of Table `tab:hyperparams`, and what the text adds to it."""
        tokens = self.encoder.token_count((*self.actor_hidden, spec.act_dim)) if self.functional else 0
        return {
            "critics": self.members,
            "actors": self.members,
            "optimizer": "adam",
            "learning_rate": self.learning_rate,
            "batch_size": self.batch_size,
            "discount": self.discount,
            "tau": self.tau,
            "critic_steps": self.critic_steps,
            "cycles": self.cycles,
            "actor_hidden": self.actor_hidden,
            "state_action_hidden": self.state_action_hidden,
            "joint_hidden": self.joint_hidden,
            "encoder_layers": self.encoder.depth,
            "encoder_heads": self.encoder.heads,
            "encoder_width": self.encoder.width,
            "encoder_shared": self.encoder.shared,
            "probes": self.encoder.probes,
            "tokens": tokens,
            "token_kind": self.encoder.tokens,
            "extracted_layers": self.encoder.layers,
            "actor_code": self.encoder.code if self.functional else 0,
            "state_action_code": self.state_action_code,
            "activation": "relu",
            "layer_norm": self.layer_norm,
            "second_term": self.second_term,
            "neighbours": self.neighbours,
        }

    def parts(self, state: FACState) -> dict[str, Any]:
        """One member of each part, and all that is trained."""
        one = lambda tree: jax.eval_shape(lambda t: ensembles.member(t, 0), tree)
        critics = state.critics.params
        encoder = critics.encoder if self._critic_axes.encoder is None else one(critics.encoder)
        return {
            "one_actor": one(state.actors.params),
            "one_actor_encoder": encoder,
            "one_state_action_encoder": one(critics.head.state_action),
            "one_joint_encoder": one(critics.head.joint),
            "all_actors": state.actors.params,
            "all_critics": critics,
            "all_targets": state.targets,
        }

    def cheaper(self) -> dict[str, "FAC"]:
        """Variants that cost less, by the options that make them."""
        encoder = lambda **changes: dataclasses.replace(self, encoder=dataclasses.replace(self.encoder, **changes))
        variants = {"--members 4": dataclasses.replace(self, members=min(4, self.members))}
        if self.functional:
            variants["--encoder.shared"] = encoder(shared=True)
            variants["--encoder.shared --encoder.depth 1"] = encoder(shared=True, depth=1)
        return variants

    @property
    def _critic_axes(self) -> FunctionalCritic:
        """Where the members' axis of the critics is."""
        shared = self.functional and self.encoder.shared
        return FunctionalCritic(None if shared else 0, 0)

    def _init_encoder(self, spec: EnvSpec, key: PRNGKeyArray):
        if not self.functional:
            return BlindEncoder()
        make = lambda k: self.encoder.build(spec.obs_dim, (*self.actor_hidden, spec.act_dim), k)
        return make(key) if self.encoder.shared else ensembles.stack(make, self.members, key)

    def _init_head(self, spec: EnvSpec, key: PRNGKeyArray) -> ValueHead:
        return ValueHead(
            spec.obs_dim,
            spec.act_dim,
            self.encoder.code if self.functional else 0,
            self.state_action_code,
            state_action_hidden=self.state_action_hidden,
            joint_hidden=self.joint_hidden,
            layer_norm=self.layer_norm,
            key=key,
        )

    def _actor_optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)

    def _critic_optimiser(self) -> optax.GradientTransformation:
        def step(updates: FunctionalCritic, params: FunctionalCritic) -> FunctionalCritic:
            scaled = lambda tree, rate: jax.tree.map(lambda leaf: -rate * leaf, tree)
            return FunctionalCritic(
                scaled(updates.encoder, self.encoder_learning_rate), scaled(updates.head, self.learning_rate)
            )

        return optax.chain(optax.scale_by_adam(), optax.stateless(step))
