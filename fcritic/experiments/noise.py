"""What the noise of a baseline is worth: taken from TD3+, given to the functional agent, and on hopper-hop."""

from typing import Any

from fcritic.experiments.shallow import MEAN_OF_CRITICS, shallow
from fcritic.experiments.spec import Claim, Experiment, Run

_EXPLORE = {"explore.noise": 0.2}
_HELD_OFF = {"actor_reach": 1.0}
_FIVE = MEAN_OF_CRITICS | {"members": 5}
_FLAT = {"state_action_hidden": (256,), "joint_hidden": (256,)}
_ALL = "all changes"


def _changed(
    recipe: str,
    label: str,
    changes: dict[str, Any],
    episodes: int,
    task: str = "cheetah-run",
    steps: int = 200_000,
) -> Run:
    """A run of a recipe with some fields of its agent changed."""
    options = [(f"agent.{name}", value) for name, value in changes.items()]
    options += [("eval_every", 20_000), ("eval_episodes", episodes)]
    return Run(recipe, task, steps=steps, label=f"{recipe}, {label}", options=tuple(options))


def _hopper(label: str, changes: dict[str, Any]) -> Run:
    """To 500,000 frames: SAC+ finds the hop after 160,000 to 260,000."""
    return _changed("fac-shared", label, changes, 1, "hopper-hop", 500_000)


NOISE = Experiment(
    "noise",
    "is it noise that the agent lacks? td3+ without it, the functional agent with it, sac+ with deep critics",
    (
        Run("td3+", "cheetah-run"),
        _changed("td3+", "no noise", {"noise_scale": 0.0, "smoothing_scale": 0.0}, 5),
        _changed("td3+", "noise to explore only", {"smoothing_scale": 0.0}, 5),
        _changed("td3+", "smoothing only", {"noise_scale": 0.0}, 5),
        Run("fac-shared", "cheetah-run"),
        _changed("fac-shared", "explores with noise", _EXPLORE, 1),
        _changed("fac-shared", "3 rounds, n = 5, mean, explores with noise", _FIVE | _EXPLORE, 1),
        shallow("3 rounds, mean", MEAN_OF_CRITICS, steps=200_000),
        shallow("3 rounds, mean, explores with noise", MEAN_OF_CRITICS | _EXPLORE, steps=200_000),
        _changed("sac+", "critics as deep as functional ones", {"critic_hidden": (256, 256, 64, 256, 256)}, 5),
        shallow("3 rounds, mean, flat heads", MEAN_OF_CRITICS | _FLAT),
    ),
    reference="td3+",
    claims=(
        Claim("td3+ needs its noise", "td3+", "td3+, no noise"),
        Claim("fac-shared needs noise to explore", "fac-shared, explores with noise", "fac-shared"),
    ),
)

HOPPER = Experiment(
    "hopper",
    "what finds the hop? noise to explore, actors held off their bounds, the mean of 5 critics with 3 rounds, all",
    (
        *(Run(recipe, "hopper-hop") for recipe in ("fac-shared", "sac+", "td3+")),
        _hopper("explores with noise", _EXPLORE),
        _hopper("held off the bounds", _HELD_OFF),
        _hopper("3 rounds, n = 5, mean", _FIVE),
        _hopper(_ALL, _FIVE | _EXPLORE | _HELD_OFF),
    ),
    reference="fac-shared",
    claims=tuple(
        Claim(f"with all changes the functional agent is better than {other}", f"fac-shared, {_ALL}", other)
        for other in ("fac-shared", "sac+", "td3+")
    ),
)
