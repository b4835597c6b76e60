"""The actors of a run that are to be seen."""

import dataclasses
from typing import Any

from jaxtyping import Float
import numpy as np

from fcritic import ensembles
from fcritic.config import TrainConfig
from fcritic.disk import Place
from fcritic.envs import task_spec
from fcritic.errors import UsageError
from fcritic.training.replay import Normalizer
from fcritic.training.saving import Progress, load_policies, load_state
from fcritic.view.cast import Values, critic_values


@dataclasses.dataclass(frozen=True)
class Actor:
    """A policy with what it needs to act."""

    policy: Any
    normalizer: Normalizer
    normalize: bool


class Cast:
    """All actors of one seed of a checkpoint, and their critics where these belong to them."""

    def __init__(self, config: TrainConfig, checkpoint: Place, seed: int | None, best: bool):
        self.config, self.best = config, best
        self.seed = config.seed if seed is None else seed
        index = self.seed - config.seed
        if not 0 <= index < config.seeds:
            last = config.seed + config.seeds - 1
            allowed = f"{config.seed}, the only seed" if config.seeds == 1 else f"{config.seed} to {last}"
            raise UsageError(f"--seed must be {allowed} of this run, not {self.seed}")
        spec = task_spec(config.task)
        self._agent = None
        if best:
            policies, normalizers, facts = load_policies(config, checkpoint, True, spec)
            self._policies, self.frame = ensembles.member(policies, index), int(facts["best"]["frame"][index])
        else:
            state, facts = load_state(config, checkpoint, spec)
            normalizers, self._agent = state.normalizer, ensembles.member(state.agent, index)
            self._policies = config.agent.evaluation_policies(self._agent)
            self.frame = Progress.of(facts).iteration * config.frames_per_iteration
        self._normalizer = ensembles.member(normalizers, index)

    @property
    def size(self) -> int:
        """How many actors there are."""
        return ensembles.size(self._policies)

    def actor(self, index: int) -> Actor:
        """One of the actors."""
        if not 0 <= index < self.size:
            allowed = "0, the only actor" if self.size == 1 else f"0 to {self.size - 1}"
            raise UsageError(f"--actor must be {allowed} of this run, not {index}")
        return Actor(ensembles.member(self._policies, index), self._normalizer, self.config.normalize)

    def values(self, index: int, obs: Float[np.ndarray, "states obs"]) -> Values | None:
        """What the critics say along an episode of an actor, or None where they are those of later actors."""
        if self._agent is None:
            return None
        seen = np.asarray(self._normalizer(obs)) if self.config.normalize else obs
        return critic_values(self.config.agent, self._agent, index, seen)
