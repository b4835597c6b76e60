"""The functional policy evaluator: one critic Q(policy, s, a) learns from logged data to value many policies.

It is fitted Q evaluation with the policy as an input. Each update draws policies and, for each of them, a few
logged transitions (the product set of Algorithm 5, sampled), and moves Q(pi, s, a) toward equation (13),
y = r + gamma Q_tar(pi, s', pi(s')). A policy enters by what it does: its actions at probe states, taken from the
data, make its code; its actions at the logged next states make its targets. A policy that comes later is valued by
one pass through the critic, without training. What the critic then says is corrected: in the features of its last
hidden layer, in which values are linear, the Bellman equation of the policy on logged rows is solved in closed form
(`fcritic.agents.bellman`), which is where Algorithm 2 would end with these features.

`fqe` fits one critic of the same form for each policy instead, on the same data, as it is usually done, and `blind`
one critic that does not see the policy. Everything here is numbers; `fcritic.offline` reads data and policies.
"""

import dataclasses
from functools import partial
import math
from typing import Literal, NamedTuple

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray
import optax

from fcritic import ensembles
from fcritic.agents.base import Learner
from fcritic.agents.bellman import BellmanEquation, bellman_equation
from fcritic.errors import UsageError, require_at_least
from fcritic.networks.actor_encoder import BehaviourEncoder
from fcritic.networks.mlp import MLP, Exact
from fcritic.randomness import apart

Method = Literal["functional", "fqe", "blind"]
Metrics = dict[str, Float[Array, ""]]


class Rows(NamedTuple):
    """Logged transitions as the critics see them: observations normalised, rewards centred and scaled."""

    obs: Float[Array, "rows obs"]
    act: Float[Array, "rows act"]
    reward: Float[Array, " rows"]
    discount: Float[Array, " rows"]
    next_obs: Float[Array, "rows obs"]


class Problem(NamedTuple):
    """All that a fit learns from."""

    rows: Rows
    end_value: Float[Array, ""]
    """What it is worth to have ended. Centred rewards lack their mean at every step, also after the end."""
    probes: Float[Array, "policies probes act_and_deviation"]
    """The policies' mean actions at the probe states, and their standard deviations there."""
    next_act: Float[Array, "policies rows act"]
    """Their actions at the logged next states; one draw each where they are stochastic."""
    row_pool: Int[Array, "critics pool"]
    """The rows from which each member of the ensemble learns."""
    policy_pool: Int[Array, "critics known"]
    """The policies from which it learns."""


class Critic(eqx.Module):
    """Q(pi, s, a): an encoder of the policy's behaviour, and a network of its code, the state and the action."""

    encoder: BehaviourEncoder | None
    """None where the critic does not see the policy."""
    head: MLP

    def codes(self, probes: Float[Array, "policies probes _"]) -> Float[Array, "policies code"]:
        """Returns the codes of policies, which are empty where the critic does not see them."""
        return jnp.zeros((len(probes), 0)) if self.encoder is None else self.encoder(probes)


def inputs(
    codes: Float[Array, "policies code"],
    obs: Float[Array, "policies batch obs"],
    act: Float[Array, "policies batch act"],
) -> tuple[Float[Array, "policies _ _"], ...]:
    """Returns the parts that a head takes for Q(pi_j, s_jb, a_jb); a code serves all rows of its policy."""
    return (codes[:, None], obs, act) if codes.shape[-1] else (obs, act)


def values(head: MLP, codes: Array, obs: Array, act: Array) -> Float[Array, "policies batch"]:
    """Returns Q(pi_j, s_jb, a_jb)."""
    return head(*inputs(codes, obs, act))[..., 0]


class Fitted(eqx.Module):
    """The learned part of one member, or of all along a leading axis."""

    critic: Learner
    target: MLP
    """The delayed head; codes are the online encoder's, as in equation (12)."""


@dataclasses.dataclass(frozen=True)
class EvaluatorConfig:
    """How policies are valued from logs."""

    method: Method = "functional"
    """`functional`: one critic for all policies; `fqe`: one for each; `blind`: one that does not see the policy."""
    discount: float = 0.99
    """Discount factor per action, gamma."""
    members: int = 4
    """Critics in the ensemble; each learns from its own part of the data and of the policies (fqe: always 1)."""
    steps: int = 8_000
    """Updates of each critic, at most."""
    settled: float = 0.005
    """Early stopping: the learning rate begins its final decay once values, averaged over policies, change by less
    than this share of their range from one fifth of the updates to the next; 0: never."""
    policies_per_update: int = 32
    """Policies drawn for each update (fqe: its one)."""
    rows_per_policy: int = 16
    """Transitions drawn for each of them (fqe: as many times `policies_per_update` / 2, so 256)."""
    share: float = 0.8
    """Share of the policies that each member learns from; the rest tests how well it generalises."""
    probes: int = 64
    """States of the data; the critic knows a policy by its actions there."""
    encoder_hidden: tuple[int, ...] = (256,)
    """Hidden layers between those actions and the code."""
    code: int = 64
    """Numbers in a policy's code."""
    hidden: tuple[int, ...] = (128, 128)
    """Hidden layers of the critic; the last one holds the features of the trust metric."""
    learning_rate: float = 1e-3
    """Learning rate of Adam; it falls to a twentieth along a cosine over the last quarter of a fit."""
    tau: float = 0.05
    """Target update rate; a slow target takes long to bring values to their level."""
    correct: bool = True
    """Correct each value by the solution of the policy's Bellman equation in the critics' features (fqe: never)."""

    def __post_init__(self) -> None:
        counts = ("members", "steps", "policies_per_update", "rows_per_policy", "probes", "code")
        require_at_least(1, **{name: getattr(self, name) for name in counts})
        for name in ("encoder_hidden", "hidden"):
            require_at_least(1, **{name: min(getattr(self, name), default=0)})
        if not 0 <= self.discount < 1:
            raise UsageError(f"--discount must be in [0, 1), not {self.discount:g}")
        if not (self.settled >= 0 and math.isfinite(self.settled)):
            raise UsageError(f"--settled must be 0 or above, not {self.settled:g}")
        for name in ("share", "tau"):
            if not 0 < getattr(self, name) <= 1:
                raise UsageError(f"--{name} must be above 0 and at most 1, not {getattr(self, name):g}")
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise UsageError(f"--learning-rate must be above 0, not {self.learning_rate:g}")

    @property
    def batch(self) -> tuple[int, int]:
        """Policies and rows of one update of one critic."""
        if self.method == "fqe":
            return 1, self.policies_per_update * self.rows_per_policy // 2
        return self.policies_per_update, self.rows_per_policy

    def critics(self, policies: int) -> int:
        """Returns how many critics there are for so many policies."""
        return policies if self.method == "fqe" else self.members

    def td_rows(self, policies: int, updates: int) -> int:
        """Returns the number of transitions that so many updates of each critic use."""
        drawn, rows = self.batch
        return self.critics(policies) * updates * drawn * rows

    def init(self, obs_dim: int, act_dim: int, critics: int, key: PRNGKeyArray) -> Fitted:
        """Returns critics that have not learned yet, stacked."""

        def one(key: PRNGKeyArray) -> Fitted:
            encoder_key, head_key = apart(key)
            encoder, code = None, 0
            if self.method == "functional":
                encoder = BehaviourEncoder(self.probes, act_dim, self.encoder_hidden, self.code, key=encoder_key)
                code = self.code
            head = MLP(code + obs_dim + act_dim, self.hidden, 1, key=head_key, layer_norm=True, last=Exact)
            return Fitted(Learner.start(Critic(encoder, head), optax.adam(self.learning_rate)), head)

        return ensembles.stack(one, critics, key)

    def update(
        self,
        fitted: Fitted,
        problem: Problem,
        row_pool: Int[Array, " pool"],
        policy_pool: Int[Array, " known"],
        rate: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[Fitted, Metrics]:
        """Returns one critic after one update with this step of Adam, and its metrics."""
        policy_key, row_key = jax.random.split(key)
        policies, rows = self.batch
        drawn = policy_pool[jax.random.randint(policy_key, (policies,), 0, len(policy_pool))]
        where = row_pool[jax.random.randint(row_key, (policies, rows), 0, len(row_pool))]
        batch = ensembles.member(problem.rows, where)
        probes, next_act = problem.probes[drawn], problem.next_act[drawn[:, None], where]
        online = fitted.critic.net
        next_value = values(fitted.target, online.codes(probes), batch.next_obs, next_act)
        after = batch.discount * next_value + (1 - batch.discount) * problem.end_value
        goal = jax.lax.stop_gradient(batch.reward + self.discount * after)

        def loss(critic: Critic) -> tuple[Float[Array, ""], Float[Array, "policies rows"]]:
            error = goal - values(critic.head, critic.codes(probes), batch.obs, batch.act)
            return jnp.mean(error**2), error

        grads, error = jax.grad(loss, has_aux=True)(online)
        critic = fitted.critic.apply(grads, optax.adam(rate))
        target = ensembles.polyak(fitted.target, critic.net.head, self.tau)
        return Fitted(critic, target), {"loss": jnp.mean(error**2), "residual": jnp.mean(error)}

    @partial(jax.jit, static_argnames=("self", "count"))
    def learn(
        self,
        fitted: Fitted,
        problem: Problem,
        key: PRNGKeyArray,
        first: Int[Array, ""] | int,
        rate: Float[Array, ""] | float,
        count: int,
    ) -> tuple[Fitted, Metrics]:
        """Returns all critics after `count` updates, of which the first has the number `first`; mean metrics."""

        def step(fitted: Fitted, number: Int[Array, ""]) -> tuple[Fitted, dict[str, Float[Array, " critics"]]]:
            keys = jax.random.split(jax.random.fold_in(key, number), len(problem.row_pool))
            one = vmap(self.update, in_axes=(0, None, 0, 0, None, 0))
            return one(fitted, problem, problem.row_pool, problem.policy_pool, jnp.float32(rate), keys)

        fitted, metrics = jax.lax.scan(step, fitted, first + jnp.arange(count))
        return fitted, jax.tree.map(jnp.mean, metrics)


@jax.jit
def start_values(
    critics: Critic,
    probes: Float[Array, "policies probes _"],
    obs: Float[Array, "starts obs"],
    act: Float[Array, "policies starts act"],
) -> Float[Array, "critics policies"]:
    """Returns each critic's mean of Q(pi, s, pi(s)) over the first states of episodes."""
    everywhere = jnp.broadcast_to(obs, (len(probes), *obs.shape))
    return vmap(lambda one: values(one.head, one.codes(probes), everywhere, act).mean(axis=1))(critics)


@jax.jit
def own_start_values(
    critics: Critic, obs: Float[Array, "starts obs"], act: Float[Array, "policies starts act"]
) -> Float[Array, " policies"]:
    """Returns the value of each policy by the critic that is its own, as `fqe` has them."""
    empty = jnp.zeros((1, 0))
    return vmap(lambda one, own: values(one.head, empty, obs[None], own[None]).mean())(critics, act)


@jax.jit
def equations_of(
    critics: Critic,
    described: Float[Array, "probes act_and_deviation"],
    logged: Rows,
    next_act: Float[Array, "rows act"],
    starts: Float[Array, "starts obs"],
    first_act: Float[Array, "starts act"],
    discount: Float[Array, ""],
    end_value: Float[Array, ""],
) -> BellmanEquation:
    """Returns a policy's Bellman equation in each critic's features, from its actions at next and first states."""
    reward = logged.reward + discount * (1 - logged.discount) * end_value

    def of_critic(one: Critic) -> BellmanEquation:
        code = one.codes(described[None])
        phi = lambda obs, act: one.head.features(*inputs(code, obs[None], act[None]))[0]
        here, there, first = phi(logged.obs, logged.act), phi(logged.next_obs, next_act), phi(starts, first_act)
        return bellman_equation(here, there, reward, discount * logged.discount, first, one.head.weights)

    return vmap(of_critic)(critics)
