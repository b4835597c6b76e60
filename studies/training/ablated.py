"""The ablations that the paper lacks, of an agent of any size, and the cheap agent that several studies share."""

from collections.abc import Callable, Iterable
from typing import Any

from fcritic.study.spec import Run

Changes = dict[str, Any]
"""Fields of an agent."""

_PARTS: dict[str, Changes] = {
    "plain critics": {"functional": False},
    "without the second term": {"second_term": 0.0},
    "mean of critics": {"pairing": "mean"},
    "own encoders": {"encoder.shared": False},
    "probe tokens": {"encoder.tokens": "probes"},
    "frozen probes": {"encoder.train_probes": False},
}
"""Parts of the agent that are taken out or replaced, one at a time."""


def ablations(
    agent: Callable[[str, Changes], Run], ratios: Iterable[int], members: Iterable[int]
) -> tuple[Run, ...]:
    """Every ablation of an agent: its parts, other ratios of critic to actor updates, other numbers of members."""
    changes = _PARTS | {f"G = {ratio}": {"critic_steps": ratio} for ratio in ratios}
    changes |= {f"n = {count}": {"members": count} for count in members}
    return tuple(agent(label, fields) for label, fields in changes.items())


def with_fields(changes: Changes) -> tuple[tuple[str, Any], ...]:
    """Fields of an agent as options of a run."""
    return tuple((f"agent.{name}", value) for name, value in changes.items())


SHALLOW: Changes = {"members": 5, "encoder.depth": 1, "encoder.probes": 64}
"""Makes `fac-shared` cheap: 19.9 instead of 123.6 GFLOP per iteration on cheetah-run (`fcritic describe`)."""
_EPISODES = {1: 5, 2: 3}  # per actor and evaluation, by members: about as many in all as five actors have

MEAN_OF_CRITICS: Changes = {"cycles": 3, "pairing": "mean"}
"""Three rounds of updates, in which actors climb the mean of all critics."""


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
    often = (("eval_every", 20_000), ("eval_episodes", episodes or _EPISODES.get(fields["members"], 1)))
    return Run(
        "fac-shared", task, envs, steps=steps, label=f"shallow, {label}", options=with_fields(fields) + often
    )
