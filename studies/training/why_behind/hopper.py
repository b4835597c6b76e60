"""What finds the hop? Noise to explore, actors held off their bounds, the mean of five critics, or all of them."""

from fcritic.study.comparison import Better, Comparison
from fcritic.study.spec import Run
from studies.training.ablated import Changes
from studies.training.why_behind.noise import EXPLORE, FIVE, changed

_HELD_OFF: Changes = {"actor_reach": 1.0}
_ALL = "all changes"


def _hopper(label: str, changes: Changes) -> Run:
    """To 500,000 frames: SAC+ finds the hop after 160,000 to 260,000."""
    return changed("fac-shared", label, changes, 1, "hopper-hop", 500_000)


STUDY = Comparison(
    "hopper",
    "What finds the hop: noise to explore, actors held off their bounds, the mean of 5 critics, or all?",
    (
        *(Run(recipe, "hopper-hop") for recipe in ("fac-shared", "sac+", "td3+")),
        _hopper("explores with noise", EXPLORE),
        _hopper("held off the bounds", _HELD_OFF),
        _hopper("3 rounds, n = 5, mean", FIVE),
        _hopper(_ALL, FIVE | EXPLORE | _HELD_OFF),
    ),
    reference="fac-shared",
    claims=tuple(
        Better(f"with all changes the functional agent is better than {other}", f"fac-shared, {_ALL}", other)
        for other in ("fac-shared", "sac+", "td3+")
    ),
)
