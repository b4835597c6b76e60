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
    "3 rounds, n = 5, mean of critics, mean target": _BEST | {"targets": "mean"},
    "3 rounds, n = 5, mean of critics, noise 0.2": _BEST | {"action_noise": 0.2},
    "3 rounds, 2 actors, 10 critics, mean of critics": _CROWD,
    "3 rounds, 2 actors, 10 critics, mean of critics, noise 0.2": _CROWD | {"action_noise": 0.2},
    "3 rounds, 64 probes": _THREE | {"encoder.probes": 64},
    "3 rounds, wide start, first term": _THREE | {"actor_last_scale": 0.3, "second_term": 0.0},
    "3 rounds, weak second term, both states": _THREE | {"second_term": 0.1, "actor_states": "both"},
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
