"""TD3 with another target, and a study of what it does.

fcritic train --recipe examples/mean_target.py:MeanTarget --task Pendulum-v1 --pessimism 0.5
fcritic experiment run examples/mean_target.py
"""

import dataclasses
import os

from fcritic.agents.critic_ensemble import values
from fcritic.agents.td3 import TD3
from fcritic.study.comparison import Better, Comparison
from fcritic.study.spec import Run


@dataclasses.dataclass(frozen=True)
class MeanTarget(TD3):
    """TD3 that bootstraps from a mixture of its critics' mean and minimum, without smoothing."""

    pessimism: float = 0.0
    """Weight of the minimum (TD3: 1)."""

    def next_value(self, state, batch, key):
        """Returns (1 - p) mean_i Q_i(s', a') + p min_i Q_i(s', a')."""
        every = values(state.targets, batch.next_obs, state.target_actor(batch.next_obs))
        return (1 - self.pessimism) * every.mean(axis=0) + self.pessimism * every.min(axis=0)


HALF = MeanTarget(pessimism=0.5)  # a recipe: numbers of an agent under a name of its own

_ON = {"task": "Pendulum-v1", "envs": 1, "seeds": 4, "steps": 20_000}
_HERE = os.path.relpath(__file__)
STUDY = Comparison(
    "mean-target",
    "Does a less pessimistic target learn the pendulum better?",
    (Run("td3", **_ON), Run(f"{_HERE}:MeanTarget", **_ON, label="mean"), Run(f"{_HERE}:HALF", **_ON, label="half")),
    claims=(Better("the mean of the critics is a better target than the minimum", "mean", "td3"),),
)
