"""How far critics are off about the actors that they are paired with: values beside what followed, in one episode.

Beside an evaluation of an agent that measures its trust, whose coverage C bounds this error.
"""

from functools import partial
from typing import Any

import jax
from jax import vmap
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
import numpy as np

from fcritic import ensembles
from fcritic.agents.fac import FAC
from fcritic.agents.losses import encode_all
from fcritic.config import TrainConfig
from fcritic.training.device import SEED_AXES, Learning, TrainState
from fcritic.training.evaluate import Evaluator

STATES = 64
"""Of an episode, at most."""


class Auditor(Evaluator):
    """Plays one episode of every actor, in environments of its own that are kept between the times."""

    def __init__(self, config: TrainConfig):
        super().__init__(config, 1)

    def audit(self, learning: Learning, state: TrainState, frame: int) -> list[dict[str, Any]]:
        """What belongs to each seed's row of behaviour; nothing where trust is not measured."""
        agent = self._config.agent
        if not (isinstance(agent, FAC) and agent.trust.measure):
            return []
        policies = vmap(agent.evaluation_policies)(state.agent)
        played = self.play(policies, state.normalizer, f"value error {frame}", path=True)
        assert played.path is not None
        followed = returns_to_go(played.path.reward, agent.discount)
        chosen = seen_to_the_end(played.lengths, played.path.ended, len(followed))
        places = np.unique(np.linspace(0, len(followed) - 1, STATES).astype(int))
        values = np.asarray(_values(learning, state, np.moveaxis(played.path.obs[places], 0, 2)), float)
        off = np.where(chosen[places], np.moveaxis(values, 2, 0) - followed[places], np.nan)
        told = {
            "value_error": np.sqrt(np.nanmean(off**2, axis=0)),
            "value_bias": np.nanmean(off, axis=0),
            "value_measured": np.nanmean(np.where(chosen[places], followed[places], np.nan), axis=0),
        }
        return [
            {name: float(each[seed].mean()) for name, each in told.items()}
            | {f"{name}_by_actor": each[seed].tolist() for name, each in told.items()}
            for seed in range(len(values))
        ]


def returns_to_go(
    reward: Float[np.ndarray, "steps ..."], discount: float | Float[np.ndarray, " steps"]
) -> Float[np.ndarray, "steps ..."]:
    """Returns the discounted rewards from each step to the end: G_t = r_t + gamma_t G_{t+1}."""
    found, after = np.empty(reward.shape), np.zeros(reward.shape[1:])
    for step, gamma in reversed(list(enumerate(np.broadcast_to(discount, len(reward))))):
        found[step] = after = reward[step] + gamma * after
    return found


def seen_to_the_end(
    lengths: Float[np.ndarray, "..."], ended: Bool[np.ndarray, "..."], steps: int
) -> Bool[np.ndarray, "steps ..."]:
    """Which steps were followed for long enough: all of an episode that ended, else those of its first half."""
    followed = np.where(ended, lengths, np.ceil(lengths / 2))
    return np.arange(steps).reshape(-1, *[1] * lengths.ndim) < followed


@partial(jax.jit, static_argnums=0)
def _values(
    learning: Learning, state: TrainState, obs: Float[Array, "seeds actors states obs"]
) -> Float[Array, "seeds actors states"]:
    """The value of each state to the actor that met it, by the critic with its index."""

    def one_seed(state: TrainState, obs: Float[Array, "actors states obs"]) -> Array:
        obs = state.normalizer(obs) if learning.normalize else obs
        policies, critics = state.agent.actors.net, state.agent.valued_by
        actors = jnp.arange(ensembles.size(policies))
        own = actors % ensembles.size(critics.head)
        heads, codes = ensembles.member(critics.head, own), encode_all(critics, policies)[own, actors]
        each = lambda head, code, policy, obs: vmap(lambda seen: head(code, seen, policy(seen)))(obs)
        return vmap(each)(heads, codes, policies, obs)

    return vmap(one_seed, in_axes=(SEED_AXES, 0))(state, obs)
