"""The ablations on an agent with a sixth of the arithmetic: five members, one layer in the encoder, 64 probes.

19.9 instead of 123.6 GFLOP per iteration on cheetah-run (`fcritic describe`).
"""

from typing import Any

from fcritic.experiments.spec import Claim, Experiment, Run

Changes = dict[str, Any]

SHALLOW: Changes = {"members": 5, "encoder.depth": 1, "encoder.probes": 64}
"""What makes `fac-shared` cheap."""
_EPISODES = {1: 5, 2: 3}  # per actor and evaluation, by members: about as many in all as five actors have


def shallow(
    label: str,
    changes: Changes,
    task: str = "cheetah-run",
    envs: int = 4,
    steps: int = 100_000,
    episodes: int | None = None,
) -> Run:
    """A run of the cheap agent with some fields changed."""
    fields = SHALLOW | changes
    options = [(f"agent.{name}", value) for name, value in fields.items()]
    options += [("eval_every", 20_000), ("eval_episodes", episodes or _EPISODES.get(fields["members"], 1))]
    return Run("fac-shared", task, envs, steps=steps, label=f"shallow, {label}", options=tuple(options))


ABLATED: dict[str, Changes] = {
    "plain critics": {"functional": False},
    "without the second term": {"second_term": 0.0},
    "mean of critics": {"pairing": "mean"},
    "own encoders": {"encoder.shared": False},
    "probe tokens": {"encoder.tokens": "probes"},
    "frozen probes": {"encoder.train_probes": False},
}
"""What is taken from an agent of any size, or put in its place."""

_ABLATIONS: dict[str, Changes] = {
    "as it is": {},
    **ABLATED,
    **{f"n = {count}": {"members": count} for count in (1, 2, 10)},
    **{f"G = {ratio}": {"critic_steps": ratio} for ratio in (1, 2, 5)},
}

ABLATIONS = Experiment(
    "ablations",
    "every ablation that the paper lacks, on a cheaper agent: n = 5, one layer in the encoder, 64 probes",
    (
        *(shallow(label, changes) for label, changes in _ABLATIONS.items()),
        # three critic updates per frame, whatever the environments: the paper's comparison lets them fall
        *(shallow(f"{envs} rounds", {"cycles": envs}, envs=envs) for envs in (1, 2, 4)),
    ),
    reference="shallow, as it is",
    claims=(
        Claim("the policy as an input helps", "shallow, as it is", "shallow, plain critics"),
        Claim("the second gradient term helps", "shallow, as it is", "shallow, without the second term"),
        Claim("one critic update per actor update is worse than three", "shallow, as it is", "shallow, G = 1"),
    ),
)

MEAN_OF_CRITICS: Changes = {"cycles": 3, "pairing": "mean"}
"""Three rounds of updates, in which actors climb the mean of all critics."""

_REMEDIES: dict[str, Changes] = {
    "3 rounds, mean": MEAN_OF_CRITICS,
    "3 rounds, mean, reach": MEAN_OF_CRITICS | {"actor_reach": 1.0},
    "3 rounds, mean, reach, first term": MEAN_OF_CRITICS | {"actor_reach": 1.0, "second_term": 0.0},
}

REMEDIES = Experiment(
    "remedies",
    "what keeps the cheaper agent behind sac+: exploration, targets, critics or actions at their bounds?",
    (
        Run("sac+", "cheetah-run", steps=500_000),
        Run("td3+", "cheetah-run", steps=500_000),
        *(shallow(label, changes, steps=200_000) for label, changes in _REMEDIES.items()),
        Run("sac+", "hopper-hop", steps=500_000),
        Run("td3+", "hopper-hop", steps=500_000),
    ),
    reference="sac+",
)

_COLLECTORS: dict[str, Changes] = {
    "5 of 5 collect": {},
    "1 of 5 collects": {"explore.actors": 1},
    "4 of 5 collect": {"explore.actors": 4},
    "1 of 5 collects, mean": {"explore.actors": 1, "pairing": "mean"},
    "10 of 10 collect": {"members": 10},
    "1 of 10 collects": {"members": 10, "explore.actors": 1},
    "1 alone": {"members": 1},
}

OWN_DATA = Experiment(
    "own-data",
    "how much does an actor lose when others collect the data that it learns from?",
    tuple(shallow(label, changes, episodes=3) for label, changes in _COLLECTORS.items()),
    reference="shallow, 5 of 5 collect",
)
