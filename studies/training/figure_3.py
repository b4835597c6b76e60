"""The paper's ablation of the baseline: what do the heuristics of SAC+ bring to SAC?"""

from fcritic.study.comparison import Better, Comparison
from fcritic.study.spec import Run

STUDY = Comparison(
    "figure-3",
    "What do the heuristics of SAC+ bring to SAC?",
    tuple(Run(method, task) for task in ("cheetah-run", "hopper-hop") for method in ("sac+", "sac")),
    reference="sac",
    claims=(Better("sac+ is better than sac", "sac+", "sac", "paper", "fig:exp_sac_ablate"),),
)
