"""Small agents for the pendulum, with observations for them."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic import envs
from fcritic.agents.recipes import find_recipe
from fcritic.api.load import TrainedAgent
from fcritic.config import TrainConfig
from fcritic.networks.actor_encoder import EncoderConfig
from fcritic.training.replay import Normalizer

ENCODER = EncoderConfig(probes=5, depth=1, code=4, width=8, heads=2)
SIZES = {"members": 3, "batch_size": 5, "actor_hidden": (8, 6), "encoder": ENCODER}
HEADS = {"state_action_hidden": (7,), "state_action_code": 4, "joint_hidden": (6,)}
TASK = "Pendulum-v1"  # observations of 3 numbers, torques between -2 and 2


def agent_of(kind: str):
    if kind in ("sac", "td3"):
        return dataclasses.replace(find_recipe(kind), actor_hidden=(8,), critic_hidden=(9,))
    encoder = dataclasses.replace(ENCODER, shared=kind == "shared")
    return dataclasses.replace(
        find_recipe("fac"), **SIZES | HEADS | {"encoder": encoder, "functional": kind != "plain"}
    )


def untrained(kind: str) -> TrainedAgent:
    """As one that was loaded, but with first parameters and a normaliser that changes a lot."""
    config = TrainConfig(agent_of(kind), task=TASK)
    spec, units = envs.task_units(TASK)
    state = config.agent.init(spec, jax.random.key(1))
    seen = Normalizer(jnp.array([0.1, -0.2, 0.5]), jnp.array([0.3, 0.5, 9.0]), jnp.int32(7))
    policies = config.agent.evaluation_policies(state)
    return TrainedAgent(policies, state.critics.params, seen, seen, config, spec, units, 0, 0, Path())


@pytest.fixture
def obs():
    return np.random.default_rng(0).uniform(-1, 1, (4, 3)).astype(np.float32)
