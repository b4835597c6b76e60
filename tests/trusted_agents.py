"""A small agent that measures its trust, and rows for it."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from fcritic.agents.recipes import find_recipe
from fcritic.agents.steering import Trust
from fcritic.types import EnvSpec, Transition

SPEC = EnvSpec(3, 2)
SMALL = {
    "members": 2,
    "actor_hidden": (4,),
    "state_action_hidden": (6,),
    "state_action_code": 5,
    "joint_hidden": (7,),
    "batch_size": 8,
    "critic_steps": 1,
}
TRUST = Trust(measure=True, rows=40, states=5)


def agent_of(recipe: str = "fac-small", **options):
    agent = find_recipe(recipe)
    soft = (
        {"critics": 2, "cloud": dataclasses.replace(agent.cloud, policies=0, bank=0)}
        if recipe != "fac-small"
        else {}
    )
    return dataclasses.replace(agent, **SMALL | soft | {"trust": TRUST} | options)


def rows(seed: int) -> Transition:
    draw = np.random.default_rng(seed)
    obs, act = draw.normal(size=(40, 3)), draw.uniform(-1, 1, (40, 2))
    single = lambda each: jnp.asarray(each, jnp.float32)
    return Transition(single(obs), single(act), jnp.zeros(40), jnp.ones(40), single(obs))
