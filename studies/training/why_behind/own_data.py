"""How much does an actor lose when others collect the data that it learns from?"""

from fcritic.study.comparison import Comparison
from studies.training.ablated import Changes, shallow

_COLLECTORS: dict[str, Changes] = {
    "5 of 5 collect": {},
    "1 of 5 collects": {"explore.actors": 1},
    "4 of 5 collect": {"explore.actors": 4},
    "1 of 5 collects, mean": {"explore.actors": 1, "pairing": "mean"},
    "10 of 10 collect": {"members": 10},
    "1 of 10 collects": {"members": 10, "explore.actors": 1},
    "1 alone": {"members": 1},
}

STUDY = Comparison(
    "own-data",
    "How much does an actor lose when others collect the data that it learns from?",
    tuple(shallow(label, changes, episodes=3) for label, changes in _COLLECTORS.items()),
    reference="shallow, 5 of 5 collect",
)
