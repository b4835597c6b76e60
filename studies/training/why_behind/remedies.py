"""What keeps the cheaper agent behind SAC+: exploration, targets, critics or actions at their bounds?"""

from fcritic.study.comparison import Comparison
from fcritic.study.spec import Run
from studies.training.ablated import MEAN_OF_CRITICS, Changes, shallow

_NOISE: Changes = {"action_noise": 0.2}
_CROWD: Changes = MEAN_OF_CRITICS | {"members": 2, "critics": 10}

_REMEDIES: dict[str, Changes] = {
    "3 rounds, mean": MEAN_OF_CRITICS,
    "3 rounds, mean, noise": MEAN_OF_CRITICS | _NOISE,
    "3 rounds, mean, mean target": MEAN_OF_CRITICS | {"targets": "mean"},
    "3 rounds, noise": {"cycles": 3} | _NOISE,
    "3 rounds, noise, plain critics": {"cycles": 3, "functional": False} | _NOISE,
    "3 rounds, mean, reach": MEAN_OF_CRITICS | {"actor_reach": 1.0},
    "3 rounds, mean, reach, first term": MEAN_OF_CRITICS | {"actor_reach": 1.0, "second_term": 0.0},
    "3 rounds, 2 actors, 10 critics, noise": _CROWD | _NOISE,
    "3 rounds, 1 actor, 10 critics, noise": _CROWD | _NOISE | {"members": 1},
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
        shallow("3 rounds, mean, noise", _REMEDIES["3 rounds, mean, noise"], "hopper-hop", steps=500_000),
    ),
    reference="sac+",
)
