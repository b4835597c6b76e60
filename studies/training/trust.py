"""Is one critic update per actor update enough where the trust metrics steer the actors? Small networks."""

from fcritic.study.comparison import Better, Comparison
from fcritic.study.spec import Run
from studies.training.ablated import Changes, with_fields

TASKS = {"Pendulum-v1": (30_000, 1), "cartpole-swingup": (60_000, 4), "reacher-easy": (60_000, 4)}
TASKS |= {"walker-walk": (60_000, 4), "cheetah-run": (60_000, 4)}
"""Frames, and frames for each decision."""
REST: Changes = {"trust.rest_above": 2.0}
"""Data of the actor's own have 1, and up to 2 where a batch has few more rows than the features have directions."""
REGION: Changes = {"trust.region": 1.0}
ONE: Changes = {"critic_steps": 1}
VARIANTS: dict[str, Changes] = {
    "two to one": {"critic_steps": 2},
    "one to one": ONE,
    "one to one, rests": ONE | REST,
    "one to one, region": ONE | REGION,
    "one to one, rests and region": ONE | REST | REGION,
}


def _run(task: str, label: str, changes: Changes) -> Run:
    frames, repeat = TASKS[task]
    options = (*with_fields({"trust.measure": True} | changes), ("eval_every", frames // 10))
    options += (("warmup", frames // 15),)
    options += (("action_repeat", repeat),) if repeat > 1 else ()
    return Run("fac-small", task, envs=2, seeds=8, steps=frames, label=f"trust, {label}", options=options)


STUDY = Comparison(
    "trust",
    "Is one critic update per actor update enough where the trust metrics steer the actors?",
    tuple(_run(task, label, changes) for task in TASKS for label, changes in VARIANTS.items()),
    reference="trust, two to one",
    claims=(
        Better("two to one is better than one to one", "trust, two to one", "trust, one to one"),
        *(
            Better(f"{how} helps at one to one", f"trust, one to one, {label}", "trust, one to one")
            for label, how in (
                ("rests", "rest above a bound of coverage"),
                ("region", "a trust region of Delta"),
                ("rests and region", "both together"),
            )
        ),
    ),
)
