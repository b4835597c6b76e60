"""Critics that say what they are told to, and small networks, for the tests of SAC, TD3 and their ensembles."""

import equinox as eqx
import jax
import jax.numpy as jnp

from fcritic import ensembles
from fcritic.agents import critic_ensemble

KEY = jax.random.key(11)
SMALL = {"actor_hidden": (8,), "critic_hidden": (9,), "batch_size": 5}


class Fixed:
    """Critics whose values do not depend on the input: what they say is known."""

    def __init__(self, monkeypatch, numbers):
        table = jnp.array(numbers, jnp.float32)

        def values(critics, obs, act):
            chosen = table[critics.network.layers[-1].bias[:, 0].astype(int)]
            return jnp.broadcast_to(chosen[:, None], (chosen.shape[0], obs.shape[0]))

        monkeypatch.setattr(critic_ensemble, "values", values)

    @staticmethod
    def number(critics):
        """Writes each critic's index where `values` looks for it."""
        count = ensembles.size(critics)
        where = lambda c: c.network.layers[-1].bias
        return eqx.tree_at(where, critics, jnp.arange(count, dtype=jnp.float32)[:, None])
