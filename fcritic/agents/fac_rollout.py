"""How actors collect data: who acts in an episode, and with what noise (lines 7 and 8 of `alg-nn`)."""

from typing import TYPE_CHECKING, NamedTuple

import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fcritic.agents.action_noise import draw_noise, remembered_noise, with_noise
from fcritic.agents.fac_state import Policies
from fcritic.kernels.packing import unpack
from fcritic.types import EnvSpec

if TYPE_CHECKING:
    from fcritic.agents.fac import FAC


class Explorer(NamedTuple):
    """What an environment remembers of its episode where actors explore with noise."""

    actor: Int[Array, ""]
    noise: Float[Array, " act"]


RolloutMemory = Int[Array, ""] | Explorer
"""The rollout actor's index, with its noise where there is some."""


def draw_actor(agent: "FAC", key: PRNGKeyArray) -> Int[Array, ""]:
    """One of the actors that collect data."""
    return jax.random.randint(key, (), 0, agent.collectors)


def begin_rollout(agent: "FAC", spec: EnvSpec, key: PRNGKeyArray) -> RolloutMemory:
    """An actor for the episode; no noise yet."""
    actor = draw_actor(agent, key)
    return Explorer(actor, jnp.zeros(spec.act_dim)) if agent.exploration_noise else actor


def rollout_action(
    agent: "FAC", policies: Policies, memory: RolloutMemory, obs: Float[Array, " obs"], key: PRNGKeyArray
) -> tuple[Float[Array, " act"], RolloutMemory]:
    """The rollout actor's action, without noise unless that is asked for."""
    index = memory.actor if isinstance(memory, Explorer) else memory
    if agent.per_step_actor:
        index = draw_actor(agent, key)
    # Computing all actors and picking one is cheaper than gathering one actor's weights.
    act = vmap(lambda one: one(obs))(unpack(policies))[index]
    act = with_noise(act, draw_noise(agent.action_noise, act.shape, key))
    if not isinstance(memory, Explorer):
        return act, memory
    noise = remembered_noise(memory.noise, agent.exploration_noise, agent.exploration_memory, key)
    return with_noise(act, noise), Explorer(memory.actor, noise)
