"""The paper's claims and every ablation on networks of 64 units, for a machine without a GPU."""

from fcritic.experiments.shallow import ABLATED, Changes
from fcritic.experiments.spec import Claim, Experiment, Run

_EPISODES = {1: 4, 2: 2}
"""Per actor and evaluation, by members: where they are few, as many in all as four actors have."""
_BASELINE: Changes = {
    "critics": 4,
    "critic_steps": 2,
    "actor_hidden": (64, 64),
    "critic_hidden": (64, 64),
    "learning_rate": 1e-3,
    "batch_size": 128,
}
"""Makes a baseline as large as `fac-small`, with as many updates."""


def _small(recipe: str, label: str, changes: Changes, envs: int = 2) -> Run:
    """To 60,000 frames, 4 of them per decision: minutes on two cores, and SAC+ of this size runs."""
    members = changes.get("members", 4) if recipe == "fac-small" else 1
    options = [(f"agent.{name}", value) for name, value in changes.items()]
    options += [("action_repeat", 4), ("warmup", 4000)]
    options += [("eval_every", 10_000), ("eval_episodes", _EPISODES.get(members, 1))]
    return Run(recipe, "cheetah-run", envs, steps=60_000, label=f"small, {label}", options=tuple(options))


_ABLATIONS: dict[str, Changes] = {
    "as it is": {},
    "G = 1": {"critic_steps": 1},
    "G = 3": {"critic_steps": 3},
    **ABLATED,
    "n = 1": {"members": 1},
    "n = 2": {"members": 2},
    "explores with noise": {"explore.noise": 0.2},
    "held off the bounds": {"actor_reach": 1.0},
    "mean of critics, noise, held off": {"pairing": "mean", "explore.noise": 0.2, "actor_reach": 1.0},
    "G = 5": {"critic_steps": 5},
    "n = 8": {"members": 8},
}

LAPTOP = Experiment(
    "laptop",
    "the paper's claims and every ablation on small networks, on a CPU (cheetah-run, action repeat 4)",
    (
        *(_small("fac-small", label, changes) for label, changes in _ABLATIONS.items()),
        _small("sac+", "sac+", _BASELINE),
        _small("td3+", "td3+", _BASELINE),
        # with twice the environments: half the updates per frame, as in the paper's comparison, then as many
        _small("fac-small", "as it is", {}, envs=4),
        _small("sac+", "sac+", _BASELINE, envs=4),
        _small("fac-small", "2 rounds", {"cycles": 2}, envs=4),
        _small("sac+", "sac+, 2 rounds", _BASELINE | {"cycles": 2}, envs=4),
    ),
    reference="small, as it is",
    claims=tuple(
        Claim(text, f"small, {better}", f"small, {worse}")
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
