"""The paper's main figure, 4 environments, 500,000 frames: is the functional agent better than SAC+ and TD3+?"""

from fcritic.study.comparison import Better, Comparison
from fcritic.study.spec import Run

TASKS = ("cheetah-run", "hopper-hop")
METHODS = ("fac-shared", "fac", "sac+", "td3+")


def figure(name: str, envs: int, steps: int) -> Comparison:
    """The paper's figure with so many environments, to so many frames."""
    return Comparison(
        name,
        f"Is the functional agent better than SAC+ and TD3+, with {envs} environments and to {steps:,} frames?",
        tuple(Run(method, task, envs=envs, steps=steps) for task in TASKS for method in METHODS),
        reference="sac+",
        claims=tuple(
            Better(f"{ours} is better than {theirs}", ours, theirs, "paper", "fig:exp_dmc")
            for ours in ("fac", "fac-shared")
            for theirs in ("sac+", "td3+")
        ),
    )


STUDY = figure("figure-2", 4, 500_000)
