"""Can the agent be made better than SAC+? More updates, the mean of critics, fewer members."""

from fcritic.study.comparison import Comparison
from fcritic.study.spec import Run
from studies.training.ablated import with_fields

_THREE = {"cycles": 3}
_BEST = _THREE | {"members": 5, "pairing": "mean"}
_CROWD = _THREE | {"pairing": "mean", "members": 2, "critics": 10}

_CHANGES = {
    "G = 10": {"critic_steps": 10},
    "3 rounds": _THREE,
    "3 rounds, mean of critics": _THREE | {"pairing": "mean"},
    "3 rounds, n = 5": _THREE | {"members": 5},
    "3 rounds, n = 5, mean of critics": _BEST,
    "3 rounds, 2 actors, 10 critics, mean of critics": _CROWD,
    "3 rounds, 64 probes": _THREE | {"encoder.probes": 64},
    "3 rounds, wide start, first term": _THREE | {"actor_last_scale": 0.3, "second_term": 0.0},
}

STUDY = Comparison(
    "improve",
    "Can the agent be made better than SAC+?",
    (
        Run("fac-shared", "cheetah-run", steps=200_000),
        Run("sac+", "cheetah-run", steps=200_000),
        *(
            Run("fac-shared", "cheetah-run", steps=200_000, label=label, options=with_fields(changes))
            for label, changes in _CHANGES.items()
        ),
    ),
    reference="sac+",
)
