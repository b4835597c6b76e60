"""What the noise of a baseline is worth: taken from TD3+, and given to the functional agent."""

from typing import Any

from fcritic.experiments.shallow import MEAN_OF_CRITICS, shallow
from fcritic.experiments.spec import Claim, Experiment, Run

_EXPLORE = {"exploration_noise": 0.2}
_FIVE = MEAN_OF_CRITICS | {"members": 5}
_FLAT = {"state_action_hidden": (256,), "joint_hidden": (256,)}


def _changed(recipe: str, label: str, changes: dict[str, Any], episodes: int) -> Run:
    """A run of a recipe with some fields of its agent changed."""
    options = [(f"agent.{name}", value) for name, value in changes.items()]
    options += [("eval_every", 20_000), ("eval_episodes", episodes)]
    return Run(recipe, "cheetah-run", steps=200_000, label=f"{recipe}, {label}", options=tuple(options))


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
