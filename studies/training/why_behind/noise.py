"""Is it noise that the agent lacks? TD3+ without it, the functional agent with it, SAC+ with deep critics."""

from fcritic.study.comparison import Better, Comparison
from fcritic.study.spec import Run
from studies.training.ablated import MEAN_OF_CRITICS, Changes, shallow, with_fields

EXPLORE: Changes = {"explore.noise": 0.2}
FIVE: Changes = MEAN_OF_CRITICS | {"members": 5}
_FLAT: Changes = {"state_action_hidden": (256,), "joint_hidden": (256,)}


def changed(
    recipe: str, label: str, changes: Changes, episodes: int, task: str = "cheetah-run", steps: int = 200_000
) -> Run:
    """A run of a recipe with some fields of its agent changed."""
    options = (*with_fields(changes), ("eval_every", 20_000), ("eval_episodes", episodes))
    return Run(recipe, task, steps=steps, label=f"{recipe}, {label}", options=options)


STUDY = Comparison(
    "noise",
    "Is it noise that the agent lacks? TD3+ without it, the functional agent with it, SAC+ with deep critics.",
    (
        Run("td3+", "cheetah-run"),
        changed("td3+", "no noise", {"noise_scale": 0.0, "smoothing_scale": 0.0}, 5),
        changed("td3+", "noise to explore only", {"smoothing_scale": 0.0}, 5),
        changed("td3+", "smoothing only", {"noise_scale": 0.0}, 5),
        Run("fac-shared", "cheetah-run"),
        changed("fac-shared", "explores with noise", EXPLORE, 1),
        changed("fac-shared", "3 rounds, n = 5, mean, explores with noise", FIVE | EXPLORE, 1),
        shallow("3 rounds, mean", MEAN_OF_CRITICS, steps=200_000),
        shallow("3 rounds, mean, explores with noise", MEAN_OF_CRITICS | EXPLORE, steps=200_000),
        changed("sac+", "critics as deep as functional ones", {"critic_hidden": (256, 256, 64, 256, 256)}, 5),
        shallow("3 rounds, mean, flat heads", MEAN_OF_CRITICS | _FLAT),
    ),
    reference="td3+",
    claims=(
        Better("td3+ needs its noise", "td3+", "td3+, no noise"),
        Better("fac-shared needs noise to explore", "fac-shared, explores with noise", "fac-shared"),
    ),
)
