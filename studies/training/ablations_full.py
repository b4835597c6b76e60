"""Every ablation that the paper lacks, on the paper's agent; choose some with --only."""

from fcritic.study.comparison import Better, Comparison
from fcritic.study.spec import Run
from studies.training.ablated import Changes, ablations, with_fields


def _agent(label: str, changes: Changes, envs: int = 4) -> Run:
    return Run("fac-shared", "cheetah-run", envs, steps=200_000, label=label, options=with_fields(changes))


STUDY = Comparison(
    "ablations-full",
    "Which parts of the agent matter, at the paper's scale? Its input, its second gradient term, its pairs, its "
    "encoder, its numbers of members and of critic updates; and environments with as many updates per frame.",
    (
        _agent("", {}),
        *ablations(_agent, ratios=(1, 2, 5), members=(1, 2, 5)),
        *(_agent(f"{envs} rounds", {"cycles": envs}, envs) for envs in (1, 2, 4)),
    ),
    reference="fac-shared",
    claims=(
        Better("the policy as an input helps", "fac-shared", "plain critics"),
        Better("the second gradient term helps", "fac-shared", "without the second term", "paper"),
        Better("one critic update per actor update is worse than three", "fac-shared", "G = 1", "paper"),
    ),
)
