"""The functional actor-critic: Algorithm 5 of the paper, in its own order."""

import dataclasses
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray
import optax

from fcritic import ensembles, kernels
from fcritic.agents.base import AbstractAgent, Learner, net, remembered_noise, with_noise
from fcritic.agents.bellman import BellmanEquation, equations_of_policies
from fcritic.agents.choice import LEAD, Explore, Explorer, Led, Policies, RolloutMemory, led, most_promising
from fcritic.agents.cloud import Bank, Cloud, Drawn, next_actions
from fcritic.agents.losses import (
    Pairing,
    actor_gradients,
    cloud_loss,
    encode_all,
    functional_critic_loss,
    own_values,
    seen_as,
)
from fcritic.agents.steering import Steering, Trust
from fcritic.errors import UsageError, require_at_least
from fcritic.kernels.packing import Packed, pack_like
from fcritic.networks.actor_encoder import ActorEncoder, EncoderConfig, ProbedBehaviour
from fcritic.networks.critics import BlindEncoder, FunctionalCritic, PrimedHead, Prior, ValueHead
from fcritic.networks.policies import DeterministicPolicy
from fcritic.networks.precision import Precision, lower
from fcritic.randomness import apart
from fcritic.types import EnvSpec, Metrics, Transition

_PRIOR_STREAM = 2**31  # far from 0, 1, 2, which the first parameters use

LEAST_REACH = 1e-6
"""What divides by a smaller one may be infinite."""


def primed(heads: ValueHead, priors: Any) -> ValueHead | PrimedHead:
    """Returns heads, each with its prior where there are priors."""
    return heads if priors is None else PrimedHead(heads, net(priors))


def with_priors(critics: FunctionalCritic, priors: Any) -> FunctionalCritic:
    """Returns critics with these priors, where there are some."""
    return FunctionalCritic(critics.encoder, primed(critics.head, priors))


class FACState(eqx.Module):
    """The learned part of the agent; every field has a leading axis of n members."""

    actors: Learner
    """The policies A_t."""
    critics: Learner
    """The critics Q^(i); a shared encoder has no leading axis."""
    targets: ValueHead | Packed
    """The delayed heads, xi'_sa and xi'_joint."""
    priors: Prior | None = None
    """A fixed function for each critic, added to it and to its target."""
    bank: Bank | None = None
    """Past actors, where some are kept."""
    steering: Steering | None = None
    """What trust allows the actors, where their steps depend on it."""
    names: Any = None
    """The first actors, where their codes stand for those of the present ones."""

    @property
    def known_by(self) -> Any:
        """The policies whose codes stand for the actors, where it is not they themselves."""
        return None if self.names is None else net(self.names)

    @property
    def valued_by(self) -> FunctionalCritic:
        """The critics with their priors."""
        return with_priors(self.critics.net, self.priors)


@dataclasses.dataclass(frozen=True)
class FAC(AbstractAgent[FACState]):
    """n deterministic actors paired with n functional critics; no noise, no entropy, no double Q."""

    auto_on_gpu: ClassVar[Precision] = "bfloat16"
    actor_metrics: ClassVar[tuple[str, ...]] = ("actor_value", "actor_grad_norm")
    packed_kinds: ClassVar[tuple[type, ...]] = (DeterministicPolicy, ActorEncoder, ProbedBehaviour, ValueHead)
    unrolled_on_gpu: ClassVar[bool] = True

    members: int = 10
    """Actors and critics, n (text: 10)."""
    critics: int | None = None
    """Critics, if not as many as actors, which needs `--pairing mean` (paper: n)."""
    learning_rate: float = 3e-4
    """Learning rate of Adam for actors and critics (Table 1)."""
    tau: float = 0.005
    """Target update rate, 1 - rho (Table 1)."""
    actor_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of an actor (Table 1)."""
    state_action_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the state-action encoder E_sa (Table 1)."""
    state_action_code: int = 64
    """State-action encoding dimension (Table 1)."""
    joint_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the joint encoder E_joint (Table 1)."""
    layer_norm: bool = True
    """Layer norm in E_sa (also its output) and E_joint (open in the paper)."""
    actor_last_scale: float = 0.003
    """Initial weights of the actors' last layer are uniform in +- this, so all actors begin near 0 (open)."""
    actor_reach: float | None = None
    """Largest mean magnitude of an actor's output before its tanh, to keep actions off their bounds, where the tanh
    is flat (paper: none; Wang 2020: 1)."""
    encoder: EncoderConfig = EncoderConfig()
    """The actor encoder E_act."""
    functional: bool = True
    """Critics take the policy as an input; without, they are plain Q(s, a), each on its own actor, or with
    `--pairing mean` all on one value for all actors, from the mean of the actors' targets (ablation)."""
    names: bool = False
    """A code names its actor and says nothing of what it does now: it is that of the first actor with its number,
    for ever (ablation)."""
    second_term: float = 1.0
    """Weight of the second gradient term, through the policy input, in eq. (2) (1: exact gradient; 0: ablation)."""
    actor_steps: int = 1
    """Updates of each actor in a row between critic updates, on one batch (paper: 1)."""
    pairing: Pairing = "fixed"
    """Critic whose value an actor ascends: its own (paper), or the mean of all."""
    explore: Explore = Explore()
    """How the actors collect data."""
    cloud: Cloud = Cloud()
    """Further policies that the critics learn from."""
    trust: Trust = Trust()
    """What is known of the agents' trust in their critics."""
    prior_scale: float = 0.0
    """Standard deviation of the fixed random prior function added to each critic and its target (paper: none)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, members=self.members, critics=self.critic_count, actor_steps=self.actor_steps)
        require_at_least(1, **{"explore.actors": self.collectors, "state_action_code": self.state_action_code})
        if self.collectors > self.members:
            limit = f"at most the members, {self.members}"
            raise UsageError(f"--explore.actors must be {limit}, not {self.collectors}")
        for name in ("actor_hidden", "state_action_hidden", "joint_hidden"):
            require_at_least(1, **{name: min(getattr(self, name), default=1)})
        scales = ("learning_rate", "prior_scale", "actor_last_scale")
        require_at_least(0, **{name: getattr(self, name) for name in scales})
        if self.actor_reach is not None and not self.actor_reach >= LEAST_REACH:
            raise UsageError(f"--actor-reach must be at least {LEAST_REACH:g}, not {self.actor_reach:g}")
        if not 0 <= self.tau <= 1:
            raise UsageError(f"--tau must be in [0, 1], not {self.tau:g}")
        layers = len(self.actor_hidden) + 1
        if outside := [layer for layer in self.encoder.layers if not -layers <= layer < layers]:
            raise UsageError(f"--encoder.layers names layer {outside[0]}, but actors have {layers} layers")
        if self.trust.behaviour and self.explore.per_step:
            raise UsageError("--trust.behaviour names an actor for an episode; leave out --explore.per-step")
        if self.explore.choose == "optimist" and (self.trust.behaviour or self.explore.per_step):
            others = "--trust.behaviour and --explore.per-step"
            raise UsageError(f"--explore.choose optimist names an actor for an episode; leave out {others}")
        if self.explore.choose == "optimist" and not self.sees_policies:
            raise UsageError("--explore.choose optimist asks critics that see policies; these do not")
        if self.cloud.replace_every and not self.keeps_past:
            raise UsageError(
                "--cloud.replace-every needs past actors that critics can value; keep some: --cloud.bank 32"
            )
        if self.cloud.policies and not self.functional:
            raise UsageError("plain critics cannot tell policies apart; leave --cloud.policies at 0")
        if self.cloud.policies and self.cloud.mixed and self.encoder.kind != "behaviour":
            raise UsageError("mixtures have no neurons; use --encoder.kind behaviour or --cloud.mixed 0")
        if self.names and not self.functional:
            raise UsageError("plain critics see no codes; leave out --names or --no-functional")
        if self.names and (self.cloud.policies or self.trust.measure or self.trust.steers):
            raise UsageError("--names has codes for actors alone; leave out --cloud.policies and --trust")
        if self.critic_count != self.members and self.pairing != "mean":
            raise UsageError("--critics that are not as many as --members have no pairs; use --pairing mean")

    def init(self, spec: EnvSpec, key: PRNGKeyArray) -> FACState:
        """Returns actors, critics and targets (lines 1-3)."""
        actor_key, encoder_key, head_key = apart(key, 3)
        policies = ensembles.stack(partial(self._actor, spec), self.members, actor_key)
        heads = ensembles.stack(lambda k: self._head(spec, self._code, key=k), self.critic_count, head_key)
        critics = FunctionalCritic(self._encoder(spec, encoder_key), heads)
        priors = None
        if self.prior_scale:
            prior_key = jax.random.fold_in(key, _PRIOR_STREAM)
            priors = ensembles.stack(partial(self._prior, spec), self.critic_count, prior_key)
        learner = partial(Learner.start, optimiser=self.optimiser())
        held = (priors, self.cloud.begin(policies), self.trust.begin(policies), policies if self.names else None)
        return FACState(learner(policies), learner(critics), critics.head, *held)

    def begin_episode(self, spec: EnvSpec, key: PRNGKeyArray) -> RolloutMemory:
        """Returns the rollout actor of the episode (line 7), or that it is yet to be named; no noise yet."""
        named = self.trust.behaviour or self.explore.choose == "optimist"
        actor = jnp.int32(LEAD) if named else self._draw_actor(key)
        return Explorer(actor, jnp.zeros(spec.act_dim)) if self.explore.noise else actor

    def rollout_policy(self, state: FACState) -> Any:
        """Returns all n actors, and where none is drawn which is to begin an episode, or critics that say it."""
        if self.explore.choose == "optimist":
            return Led(state.actors.params, (state.critics.params, state.priors))
        if not self.trust.behaviour or state.steering is None:
            return state.actors.params
        return Led(state.actors.params, state.steering.lead)

    def evaluation_policies(self, state: FACState) -> Policies:
        """Returns all n actors."""
        return state.actors.params

    def act(
        self, policy: "Policies | Led", memory: RolloutMemory, obs: Float[Array, " obs"], key: PRNGKeyArray
    ) -> tuple[Float[Array, " act"], RolloutMemory]:
        """Returns the rollout actor's action, without noise unless that is asked for (line 8)."""
        policy, memory = led(policy, memory, partial(self._choose, obs))
        index = memory.actor if isinstance(memory, Explorer) else memory
        if self.explore.per_step:
            index = self._draw_actor(key)
        # Computing all actors and picking one is cheaper than gathering one actor's weights.
        act = vmap(lambda one: one(obs))(net(policy))[index]
        if not isinstance(memory, Explorer):
            return act, memory
        noise = remembered_noise(memory.noise, self.explore.noise, self.explore.memory, key)
        return with_noise(act, noise), Explorer(memory.actor, noise)

    def _choose(self, obs: Float[Array, " obs"], policies: Any, lead: Any) -> Int[Array, ""]:
        """The actor that begins an episode here: already named, or the one that critics expect the most of."""
        if self.explore.choose == "random":
            return lead
        critics = with_priors(net(lead[0]), lead[1])
        return most_promising(net(policies), critics, obs, self.explore.doubt, self.collectors)

    def critic_updates(
        self, state: FACState, batches: Transition, keys: Key[Array, " updates"]
    ) -> tuple[FACState, Metrics]:
        """G critic updates (lines 10-17).

        Actors rest meanwhile, so their next actions are computed for all batches at once.
        """
        obs = batches.next_obs
        act = kernels.actions(state.actors.net, obs.reshape(-1, obs.shape[-1]), self.compute_dtype)
        next_act = jnp.moveaxis(act.reshape(len(act), *obs.shape[:2], -1), 1, 0)
        clouds = vmap(partial(self._draw_cloud, state))(batches, keys) if self.cloud.policies else ()
        return self.in_turn(self._critic_update, state, batches, next_act, *clouds)

    def critic_step(self, state: FACState, batch: Transition, key: PRNGKeyArray) -> tuple[FACState, Metrics]:
        """Trains every critic on the product of policies and batch; its target follows (lines 11-16)."""
        next_act = kernels.actions(state.actors.net, batch.next_obs, self.compute_dtype)
        cloud = self._draw_cloud(state, batch, key) if self.cloud.policies else ()
        return self._critic_update(state, batch, next_act, *cloud)

    def _draw_cloud(
        self, state: FACState, batch: Transition, key: PRNGKeyArray
    ) -> tuple[Drawn, Float[Array, "policies rows act"], Float[Array, "policies rows"] | None]:
        """Policies with their rows, their actions at the next states, and what is added to the values there."""
        drawn = self.cloud.draw(state.actors.net, state.bank, batch, key)
        return drawn, *self._cloud_actions(state, drawn, jax.random.split(key, 3)[2])

    def _cloud_actions(
        self, state: FACState, drawn: Drawn, key: PRNGKeyArray
    ) -> tuple[Float[Array, "policies rows act"], Float[Array, "policies rows"] | None]:
        return next_actions(drawn), None

    def _critic_update(
        self,
        state: FACState,
        batch: Transition,
        next_act: Float[Array, "actors batch act"],
        drawn: Drawn | None = None,
        cloud_act: Float[Array, "policies rows act"] | None = None,
        cloud_bonus: Float[Array, "policies rows"] | None = None,
        bonus: Float[Array, "actors batch"] | None = None,
        subset: Int[Array, " chosen"] | None = None,
    ) -> tuple[FACState, Metrics]:
        policies, dtype = seen_as(state.actors.net, state.known_by), self.compute_dtype
        if self.functional and self.encoder.probe_states == "replay":
            state = _probing_replay(state, batch)
        targets = lower(primed(net(state.targets), state.priors), dtype)

        def loss(critics: FunctionalCritic) -> tuple[Float[Array, ""], Metrics]:
            critics = lower(with_priors(critics, state.priors), dtype)
            given = (critics, targets, policies, next_act, batch, self.discount)
            found, metrics = functional_critic_loss(*given, bonus, subset, self.pairing)
            if drawn is not None and cloud_act is not None:
                given = (critics, targets, drawn.policies, cloud_act, drawn.rows, self.discount)
                found = found + self.cloud.weight * cloud_loss(*given, cloud_bonus, subset)
            return found, metrics

        grads, metrics = jax.grad(loss, has_aux=True)(state.critics.net)
        critics = state.critics.apply(grads, self.optimiser())
        delayed = ensembles.polyak(state.targets, critics.params.head, self.tau)
        if state.steering is not None:
            was, now = (state.critics, state.targets), (critics, delayed)
            (critics, delayed), steering = state.steering.of_critics(was, now)
            state = dataclasses.replace(state, steering=steering)
        return dataclasses.replace(state, critics=critics, targets=delayed), metrics

    def actor_step(self, state: FACState, batch: Transition, key: PRNGKeyArray) -> tuple[FACState, Metrics]:
        """Moves every actor, by default once; returns the metrics of the last move."""
        if self.actor_steps == 1:
            return self._actor_update(state, batch, key)
        *keys, last = jax.random.split(key, self.actor_steps)
        for each in keys:
            state, _ = self._actor_update(state, batch, each)
        return self._actor_update(state, batch, last)

    def _actor_update(self, state: FACState, batch: Transition, key: PRNGKeyArray) -> tuple[FACState, Metrics]:
        """Moves every actor up the exact off-policy gradient of its critic (lines 18-22)."""
        critics = lower(state.valued_by, self.compute_dtype)
        how = (self.second_term, self.pairing, state.known_by)
        losses, grads = actor_gradients(state.actors.net, critics, batch.obs, *how)
        actors, steering = self._stepped(state, grads)
        metrics = {"actor_value": -losses.mean(), "actor_grad_norm": vmap(optax.tree.norm)(grads).mean()}
        actors, bank = self._kept(state, actors, batch)
        return dataclasses.replace(state, actors=actors, bank=bank, steering=steering), metrics

    def _kept(self, state: FACState, actors: Learner, batch: Transition) -> tuple[Learner, Bank | None]:
        """The actors and the bank after an update, the worst actor replaced where that is wanted and due."""
        bank = self.cloud.keep(state.bank, actors.net)
        if not self.cloud.replace_every or bank is None:
            return actors, bank
        return self.cloud.replace(actors, bank, state.valued_by, batch.obs)

    def _stepped(self, state: FACState, grads: Any) -> tuple[Learner, Steering | None]:
        """Actors after a step, which is as long as trust allows."""
        actors = state.actors.apply(grads, self.optimiser())
        return (actors, None) if state.steering is None else state.steering.of_actors(state.actors, actors)

    @property
    def steers(self) -> tuple[int, int] | None:
        """Whether what agents do depends on trust: after how many iterations and with how many rows."""
        return (self.trust.every, self.trust.rows) if self.trust.steers else None

    def steer(self, state: FACState, logged: Transition, recent: Transition) -> FACState:
        """Returns the state with what trust allows from now on."""
        if state.steering is None:
            return state
        given = (state.actors.net, state.critics.net, logged, recent.obs, self.collectors)
        return dataclasses.replace(state, steering=self.trust.steer(state.steering, *given))

    def disagreement(self, state: FACState, obs: Float[Array, "batch obs"]) -> Float[Array, " actors"]:
        """Returns the critics' standard deviation about each actor, at its own actions."""
        return own_values(state.valued_by, state.actors.net, obs, state.known_by).std(axis=0).mean(axis=-1)

    @property
    def sees_policies(self) -> bool:
        """Whether critics see what a policy does."""
        return self.functional and not self.names

    @property
    def keeps_past(self) -> bool:
        """Whether there is a bank, of policies that critics can value."""
        return self.sees_policies and self.cloud.bank > 0

    def has_past(self, state: FACState) -> Bool[Array, ""] | bool:
        """Returns whether the bank holds a past actor yet."""
        return state.bank is not None and self.cloud.stored(state.bank) > 0

    def asked(self, state: FACState, count: int, key: PRNGKeyArray) -> dict[str, Any]:
        """Returns past actors, mixtures where the encoder can read them, and a slice through three actors."""
        assert state.bank is not None
        return self.cloud.asked(state.actors.net, state.bank, count, key, self.encoder.kind == "behaviour")

    def predicted(
        self, state: FACState, policies: Any, obs: Float[Array, "policies obs"]
    ) -> Float[Array, " policies"]:
        """Returns the mean over critics of Q_i(pi_j, s_j, pi_j(s_j))."""
        critics, act = state.valued_by, vmap(lambda policy, s: policy(s))(policies, obs)
        each = vmap(lambda head, codes: vmap(head)(codes, obs, act))
        return each(critics.head, encode_all(critics, policies)).mean(axis=0)

    def equations(
        self, state: FACState, policies: Any, obs: Float[Array, "policies starts obs"], logged: Transition
    ) -> BellmanEquation:
        """Returns what logged rows say about these policies in the features of each critic."""
        return equations_of_policies(state.valued_by, policies, obs, logged, self.discount)

    def describe(self, spec: EnvSpec) -> dict[str, Any]:
        """Returns the options, with the number of critics and the length of the encoder's sequence."""
        tokens = self.encoder.token_count((*self.actor_hidden, spec.act_dim))
        return super().describe(spec) | {"critics": self.critic_count, "tokens": tokens}

    def cheaper(self) -> dict[str, "FAC"]:
        """Returns variants that cost less, by the options that make them."""
        replace = dataclasses.replace
        encoder = lambda **changes: replace(self, encoder=replace(self.encoder, **changes))
        variants = {"--members 4": replace(self, members=min(4, self.members))}
        if self.functional and not self.encoder.shared:
            variants["--encoder.shared"] = encoder(shared=True)
        if self.functional and self.encoder.depth > 1:
            variants["--encoder.depth 1"] = encoder(depth=1)
        return variants

    @property
    def critic_count(self) -> int:
        """Number of critics; as many as actors unless told otherwise."""
        return self.members if self.critics is None else self.critics

    @property
    def collectors(self) -> int:
        """Number of actors that collect data; all unless told otherwise."""
        return self.members if self.explore.actors is None else self.explore.actors

    def optimiser(self) -> optax.GradientTransformation:
        """Returns Adam for actors and critics."""
        return optax.adam(self.learning_rate)

    @property
    def _code(self) -> int:
        return self.encoder.code if self.functional else 0

    def _draw_actor(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """One of the actors that collect data."""
        return jax.random.randint(key, (), 0, self.collectors)

    def _actor(self, spec: EnvSpec, key: PRNGKeyArray) -> Any:
        scales = {"last_scale": self.actor_last_scale, "reach": self.actor_reach}
        return DeterministicPolicy(spec.obs_dim, self.actor_hidden, spec.act_dim, key=key, **scales)

    def _encoder(self, spec: EnvSpec, key: PRNGKeyArray) -> ActorEncoder | ProbedBehaviour | BlindEncoder:
        """One encoder for all critics, or one for each along a leading axis."""
        if not self.functional:
            return BlindEncoder()
        make = lambda k: self.encoder.build(spec.obs_dim, (*self.actor_hidden, spec.act_dim), k)
        return make(key) if self.encoder.shared else ensembles.stack(make, self.critic_count, key)

    def _head(self, spec: EnvSpec, code: int, **how: Any) -> ValueHead:
        hidden = {"state_action_hidden": self.state_action_hidden, "joint_hidden": self.joint_hidden}
        sizes = (spec.obs_dim, spec.act_dim, code, self.state_action_code)
        return ValueHead(*sizes, **hidden, layer_norm=self.layer_norm, **how)

    def _prior(self, spec: EnvSpec, key: PRNGKeyArray) -> Prior:
        width = self.joint_hidden[-1] if self.joint_hidden else self.state_action_code
        return Prior(partial(self._head, spec, 0), width, scale=self.prior_scale, key=key)


def _probing_replay(state: FACState, batch: Transition) -> FACState:
    """The same state; before the first critic update, with states of its batch as probes."""
    critics, first = state.critics.net, state.critics.updates == 0
    probes = critics.encoder.probes
    seen = jnp.broadcast_to(batch.obs[jnp.arange(probes.shape[-2]) % len(batch.obs)], probes.shape)
    critics = eqx.tree_at(lambda each: each.encoder.probes, critics, jnp.where(first, seen, probes))
    params = pack_like(state.critics.params, critics)
    return dataclasses.replace(state, critics=dataclasses.replace(state.critics, params=params))
