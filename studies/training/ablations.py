"""Every ablation that the paper lacks, on an agent with a sixth of the arithmetic."""

from fcritic.study.comparison import Better, Comparison
from studies.training.ablated import ablations, shallow

STUDY = Comparison(
    "ablations",
    "Which parts of the agent matter? Every ablation that the paper lacks, on a cheaper agent: n = 5, one layer in "
    "the encoder, 64 probes.",
    (
        shallow("as it is", {}),
        *ablations(shallow, ratios=(1, 2, 5), members=(1, 2, 10)),
        # Three critic updates per frame, whatever the environments: the paper's comparison lets them fall.
        *(shallow(f"{envs} rounds", {"cycles": envs}, envs=envs) for envs in (1, 2, 4)),
    ),
    reference="shallow, as it is",
    claims=(
        Better("the policy as an input helps", "shallow, as it is", "shallow, plain critics"),
        Better("the second gradient term helps", "shallow, as it is", "shallow, without the second term"),
        Better("one critic update per actor update is worse than three", "shallow, as it is", "shallow, G = 1"),
    ),
)
