"""What the replay of a run says of its actors, and of policies on slices through them."""

import math
from typing import Any, NamedTuple

import jax
from jaxtyping import Float
import numpy as np

from fcritic.agents.fac import FAC
from fcritic.api.load import TrainedAgent
from fcritic.runs.directory import RunDirectory
from fcritic.training.behaviour import trust
from fcritic.training.device import SEED_AXES, Learning, TrainState
from fcritic.training.knowledge import correction
from fcritic.training.saving import Checkpoints, learning_of

CHUNK = 27
"""Policies whose equations are in memory at one time."""


class Replayed(NamedTuple):
    """A training as it stood, with its replay."""

    learning: Learning
    state: TrainState
    """Of one seed, along an axis of one."""
    frame: int

    @staticmethod
    def of(agent: TrainedAgent) -> "Replayed | None":
        """Returns the training of an agent; None without a replay."""
        directory = RunDirectory.open_existing(agent.directory)
        if directory.is_exported():
            return None
        learning = learning_of(agent.config, agent.spec)
        found = Checkpoints(directory, agent.config, learning).load()[0]
        if found is None or not int(found.snapshot.state.replay.written):
            return None
        place = agent.config.seed_numbers.index(agent.seed)
        own = lambda axis, part: part if axis is None else jax.tree.map(lambda leaf: leaf[place : place + 1], part)
        state = jax.tree.map(own, SEED_AXES, found.snapshot.state, is_leaf=lambda axis: axis is None)
        return Replayed(learning, state, agent.frame)

    def trust(self) -> dict[str, Any]:
        """Returns C over its least, what lies outside of the data, and Delta of every actor."""
        measured = trust(self.learning, self.state, self.frame)
        finite = lambda values: [value if math.isfinite(value) else None for value in values.tolist()]
        names = ("trust", "outside", "drift", "drift_printed")
        each = {name: finite(measured[f"{name}_by_actor"][0]) for name in names}
        agent = self.learning.agent
        assert isinstance(agent, FAC)  # others are refused before
        return each | {"rows": agent.trust.rows, "states": agent.trust.states}

    def correction(
        self, policies: Any, obs: Float[np.ndarray, "starts obs"], count: int
    ) -> Float[np.ndarray, " policies"]:
        """Returns how the critics' mean value of each policy at these states changes by what the replay says."""
        parts = []
        for start in range(0, count, CHUNK):
            index = np.minimum(np.arange(start, start + CHUNK), count - 1)  # the last one fills up
            part = jax.tree.map(lambda leaf, index=index: leaf[index][None], policies)
            starts = np.broadcast_to(obs, (1, CHUNK, *obs.shape))
            parts.append(correction(self.learning, self.state, part, starts, np.uint32(self.frame % 2**31))[0])
        return np.concatenate(parts)[:count]
