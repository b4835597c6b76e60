"""Recipes: the names used in the figures, each a handful of changed fields over its algorithm."""

import dataclasses
from typing import Any, TypeVar

from fcritic.agents.base import AbstractAgent
from fcritic.agents.fac import FAC
from fcritic.agents.sac import SAC
from fcritic.agents.td3 import TD3
from fcritic.errors import UsageError, did_you_mean
from fcritic.networks.actor_encoder import EncoderConfig

Kind = TypeVar("Kind", bound=type[AbstractAgent])

ALGORITHMS: dict[str, type[AbstractAgent]] = {"FAC": FAC, "SAC": SAC, "TD3": TD3}
"""The class of each algorithm, by the name that `config.json` holds; `register` adds others."""

SMALL = FAC(
    members=4,
    actor_hidden=(64, 64),
    state_action_hidden=(64, 64),
    state_action_code=32,
    joint_hidden=(64, 64),
    learning_rate=1e-3,
    batch_size=128,
    critic_steps=2,
    encoder=EncoderConfig(probes=32, depth=1, code=32, width=32, shared=True),
)

PLUS: dict[str, Any] = {
    "critics": 10,
    "critic_steps": 10,
    "layer_norm": True,
    "subset": 1,
    "actor_value": "mean",
}
"""The paper's additions to a baseline that make it strong."""

RECIPES: dict[str, tuple[AbstractAgent, str]] = {
    "fac": (FAC(), "the paper's agent: 10 actors, 10 functional critics, an encoder for each critic"),
    "fac-shared": (
        FAC(encoder=EncoderConfig(shared=True)),
        "the same with one encoder for all critics: a tenth of the encodings per critic update",
    ),
    "fac-small": (SMALL, "4 small actors and critics that learn in minutes on a laptop's CPU"),
    "fac-first-term": (
        FAC(second_term=0.0),
        "ablation: without the second term of the gradient, through the policy input",
    ),
    "fac-plain": (
        FAC(functional=False),
        "ablation: critics that ignore the policy, each learning on its own actor",
    ),
    "sac": (SAC(), "soft actor-critic: twin critics, learned temperature, one update per iteration"),
    "sac+": (
        SAC(**PLUS),
        "SAC with 10 critics, layer norm, random targets and 10 critic updates per actor update",
    ),
    "td3": (TD3(), "twin critics, smoothed targets, an actor updated every second time, exploration noise"),
    "td3+": (
        TD3(**PLUS, actor_delay=1, targets_with_actor=False),
        "TD3 with 10 critics, layer norm, random targets and 10 critic updates per actor update",
    ),
    "fac-unpaired": (FAC(pairing="mean"), "ablation: every actor climbs the mean of all critics"),
}
"""Name -> (agent, one line of description)."""


def register(kind: Kind) -> Kind:
    """Adds your algorithm, so that its runs can be read, and returns it, as a decorator does.

    It is kept for this program alone: whoever loads a run of it registers the class first.
    """
    if "__dataclass_fields__" not in vars(kind):  # of its own, not inherited
        raise UsageError(f"{kind.__name__} is not a dataclass; put @dataclasses.dataclass(frozen=True) above it")
    known = ALGORITHMS.get(kind.__name__, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):  # a cell may be run again
        raise UsageError(f"there is an algorithm {kind.__name__} in {known.__module__}; give yours another name")
    ALGORITHMS[kind.__name__] = kind
    return kind


def find_recipe(name: str) -> AbstractAgent:
    """Returns the agent of a recipe."""
    if name not in RECIPES:
        hint = did_you_mean(name, RECIPES) or f"; known are {', '.join(RECIPES)}"
        raise UsageError(f"unknown recipe '{name}'{hint}")
    return RECIPES[name][0]


def changed_fields(agent: AbstractAgent) -> dict[str, object]:
    """Returns the fields in which an agent differs from its algorithm's defaults."""
    default = type(agent)()
    return {
        field.name: getattr(agent, field.name)
        for field in dataclasses.fields(agent)
        if getattr(agent, field.name) != getattr(default, field.name)
    }
