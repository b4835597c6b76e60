"""The paper's claims and every ablation on small networks, on a CPU (cheetah-run, action repeat 4)."""

from fcritic.study.comparison import Better, Comparison
from fcritic.study.spec import Run
from studies.training.ablated import Changes, ablations, with_fields

_EPISODES = {1: 4, 2: 2}
"""Per actor and evaluation, by members: where they are few, as many in all as four actors have."""
BASELINE: Changes = {
    "critics": 4,
    "critic_steps": 2,
    "actor_hidden": (64, 64),
    "critic_hidden": (64, 64),
    "learning_rate": 1e-3,
    "batch_size": 128,
}
"""Makes a baseline as large as `fac-small`, with as many updates."""
_ALL = {"pairing": "mean", "explore.noise": 0.2, "actor_reach": 1.0}


def _small(label: str, changes: Changes, recipe: str = "fac-small", envs: int = 2) -> Run:
    """To 60,000 frames, 4 of them per decision: minutes on two cores, and SAC+ of this size runs."""
    members = changes.get("members", 4) if recipe == "fac-small" else 1
    options = (("action_repeat", 4), ("warmup", 4000), ("eval_every", 10_000))
    options += (("eval_episodes", _EPISODES.get(members, 1)),)
    options = with_fields(changes) + options
    return Run(recipe, "cheetah-run", envs, steps=60_000, label=f"small, {label}", options=options)


STUDY = Comparison(
    "laptop",
    "Do the paper's claims hold on small networks, and which parts of the agent matter there?",
    (
        _small("as it is", {}),
        *ablations(_small, ratios=(1, 3, 5), members=(1, 2, 8)),
        _small("explores with noise", {"explore.noise": 0.2}),
        _small("held off the bounds", {"actor_reach": 1.0}),
        _small("mean of critics, noise, held off", _ALL),
        _small("sac+", BASELINE, "sac+"),
        _small("td3+", BASELINE, "td3+"),
        # With twice the environments: half the updates per frame, as in the paper's comparison, then as many.
        _small("as it is", {}, envs=4),
        _small("sac+", BASELINE, "sac+", envs=4),
        _small("2 rounds", {"cycles": 2}, envs=4),
        _small("sac+, 2 rounds", BASELINE | {"cycles": 2}, "sac+", envs=4),
    ),
    reference="small, as it is",
    claims=tuple(
        Better(text, f"small, {better}", f"small, {worse}")
        for text, better, worse in (
            ("the small agent is better than sac+ of its size", "as it is", "sac+"),
            ("the small agent is better than td3+ of its size", "as it is", "td3+"),
            ("one critic update per actor update is worse than two", "as it is", "G = 1"),
            ("three critic updates are better than two", "G = 3", "as it is"),
            ("the policy as an input helps", "as it is", "plain critics"),
            ("the second gradient term helps", "as it is", "without the second term"),
            ("fixed pairs are better than the mean of critics", "as it is", "mean of critics"),
        )
    ),
)
