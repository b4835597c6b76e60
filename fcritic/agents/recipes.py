"""Recipes: the names used in the figures, each a handful of changed fields over its algorithm."""

import dataclasses
from typing import Any, TypeVar

from fcritic import code
from fcritic.agents.base import AbstractAgent
from fcritic.agents.cloud import Cloud
from fcritic.agents.fac import FAC
from fcritic.agents.fsac import FSAC
from fcritic.agents.sac import SAC
from fcritic.agents.td3 import TD3
from fcritic.errors import UsageError, did_you_mean
from fcritic.networks.actor_encoder import EncoderConfig

Kind = TypeVar("Kind", bound=type[AbstractAgent])

ALGORITHMS: dict[str, type[AbstractAgent]] = {"FAC": FAC, "FSAC": FSAC, "SAC": SAC, "TD3": TD3}
"""The class of each algorithm, by the name that `config.json` holds; `register` and `find_recipe` add others."""

_OURS = tuple(ALGORITHMS.values())

Recipe = str | AbstractAgent | type[AbstractAgent]

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

SOFT = FSAC(
    members=4,
    critics=10,
    critic_steps=10,
    second_term=0.0,
    state_action_hidden=(),
    encoder=EncoderConfig(kind="behaviour", probes=64, code=32, width=256, shared=True, probe_scale=1.0),
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
    "fsac": (SOFT, "4 soft actors with a temperature each, 10 functional critics that see what an actor does"),
    "fsac-small": (
        dataclasses.replace(
            SOFT,
            critics=4,
            critic_steps=2,
            learning_rate=1e-3,
            tau=0.01,
            batch_size=128,
            actor_hidden=(64, 64),
            joint_hidden=(64, 64),
            encoder=dataclasses.replace(SOFT.encoder, probes=32, width=128),
            cloud=Cloud(policies=16, rows=16, bank=32, every=100),
        ),
        "the same in small, for a laptop's CPU; its critics learn on past actors and mixtures too",
    ),
    "fac-unpaired": (FAC(pairing="mean"), "ablation: every actor climbs the mean of all critics"),
}
"""Name -> (agent, one line of description)."""


def register(kind: Kind) -> Kind:
    """Adds your algorithm, so that its runs can be read, and returns it, as a decorator does.

    It is kept for this program alone: whoever loads a run of it registers the class first.
    """
    _require_dataclass(kind)
    known = ALGORITHMS.get(kind.__name__, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):  # a cell may be run again
        raise UsageError(f"there is an algorithm {kind.__name__} in {known.__module__}; give yours another name")
    ALGORITHMS[kind.__name__] = kind
    return kind


def find_recipe(name: str) -> AbstractAgent:
    """Returns the agent of a recipe; runs the code of one that is your own, ``path/to/file.py:Name``."""
    if ":" in name:
        return _own_recipe(name)
    if name not in RECIPES:
        if (file := code.unnamed(name, "agent")) is not None:
            raise file
        hint = did_you_mean(name, RECIPES) or f"; known are {', '.join(RECIPES)}"
        raise UsageError(f"unknown recipe '{name}'{hint}")
    return RECIPES[name][0]


def named_recipe(recipe: Recipe) -> tuple[str, AbstractAgent]:
    """The name and the agent of a recipe that is given in Python; a class that has no place is registered."""
    if isinstance(recipe, str):
        return recipe, find_recipe(recipe)
    kind = recipe if isinstance(recipe, type) else type(recipe)
    if not issubclass(kind, AbstractAgent):
        raise UsageError(f"a recipe is a name, an agent or its class, not {recipe!r:.60}")
    agent = recipe() if isinstance(recipe, type) else recipe
    if kind in _OURS:
        return kind.__name__.lower(), agent
    if kind not in ALGORITHMS.values():
        _require_dataclass(kind)
        ALGORITHMS[code.name_of(kind) or register(kind).__name__] = kind
    return algorithm_of(kind), agent


def algorithm_of(kind: type[AbstractAgent], recipe: str = "") -> str:
    """The name of an algorithm's class in `config.json`; of several the recipe's."""
    names = [name for name, known in ALGORITHMS.items() if known is kind]
    if not names:
        raise UsageError(
            f"{kind.__name__} is not a registered algorithm, so a run of it could not be loaded; "
            f"register it before training: fcritic.register({kind.__name__})"
        )
    return recipe if recipe in names else names[0]


def about(recipe: str) -> str:
    """A line that describes a recipe."""
    if recipe in RECIPES:
        return RECIPES[recipe][1]
    lines = (type(find_recipe(recipe)).__doc__ or "").strip().splitlines()
    return lines[0] if lines else "your own"


def _own_recipe(name: str) -> AbstractAgent:
    code.require_name(name, "recipe")
    found = code.find(name)
    if found is None:
        raise code.missing(name, (AbstractAgent,))
    if isinstance(found, type) and issubclass(found, AbstractAgent):
        _require_dataclass(found)
    if callable(found):
        try:
            found = found()
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(f"{name} cannot make its agent: {code.told(error)}") from error
    if not isinstance(found, AbstractAgent):
        raise UsageError(
            f"{name} is a {type(found).__name__}; name an agent, its class or a function that makes it"
        )
    if type(found) not in _OURS:
        _require_dataclass(type(found))
        ALGORITHMS[name] = type(found)
    return found


def _require_dataclass(kind: type) -> None:
    if "__dataclass_fields__" not in vars(kind):  # of its own, not inherited
        raise UsageError(f"{kind.__name__} is not a dataclass; put @dataclasses.dataclass(frozen=True) above it")
