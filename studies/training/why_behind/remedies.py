"""What keeps the cheaper agent behind SAC+: exploration, targets, critics or actions at their bounds?"""

from fcritic.study.comparison import Comparison
from fcritic.study.spec import Run
from studies.training.ablated import MEAN_OF_CRITICS, Changes, shallow

_REMEDIES: dict[str, Changes] = {
    "3 rounds, mean": MEAN_OF_CRITICS,
    "3 rounds, mean, reach": MEAN_OF_CRITICS | {"actor_reach": 1.0},
    "3 rounds, mean, reach, first term": MEAN_OF_CRITICS | {"actor_reach": 1.0, "second_term": 0.0},
}

STUDY = Comparison(
    "remedies",
    "What keeps the cheaper agent behind SAC+: exploration, targets, critics or actions at their bounds?",
    (
        Run("sac+", "cheetah-run"),
        Run("td3+", "cheetah-run"),
        *(shallow(label, changes, steps=200_000) for label, changes in _REMEDIES.items()),
        Run("sac+", "hopper-hop"),
        Run("td3+", "hopper-hop"),
    ),
    reference="sac+",
)
