"""Every recipe learns every probe: values and actions with known answers, all probes at once.

The probes run as the seeds of one training, so that a recipe is compiled once. Sizes are shrunk, the
switches that make the recipe what it is stay.
"""

import dataclasses

import jax
from jax import vmap
import jax.numpy as jnp
import numpy as np
import pytest

from fcritic import envs
from fcritic.agents.fac import FAC
from fcritic.agents.fsac import FSAC
from fcritic.agents.losses import encode_all
from fcritic.agents.recipes import RECIPES, find_recipe
from fcritic.agents.sac import SAC
from fcritic.envs.toy import PROBES, ProbeEnv
from fcritic.training.device import Device, Learning
from fcritic.training.warmup import uniform_actions

DISCOUNT = 0.8


def shrunk(recipe: str):
    """The recipe with networks that train in seconds.

    What is not named here stays, `cycles` and `actor_delay` too: an iteration of a recipe with many cycles takes so
    many times as long. An algorithm with plain critics subclasses `CriticEnsembleAgent` and needs no line here.
    """
    agent = find_recipe(recipe)
    small = {"batch_size": 32, "discount": DISCOUNT, "learning_rate": 3e-3, "tau": 0.05, "actor_hidden": (16, 16)}
    soft = {"initial_temperature": 0.1, "temperature_learning_rate": 1e-2}
    if isinstance(agent, FAC):
        encoder = dataclasses.replace(agent.encoder, probes=8, depth=1, width=16, code=8)
        heads = {"state_action_hidden": (16,), "state_action_code": 8, "joint_hidden": (16,)}
        few: dict = {"members": 2, "critic_steps": min(agent.critic_steps, 2)}
        if isinstance(agent, FSAC):
            few |= soft | {"critics": 2}
        if agent.cloud.policies:
            few["cloud"] = dataclasses.replace(agent.cloud, policies=4, rows=8, bank=4)
        return dataclasses.replace(agent, encoder=encoder, **few, **heads, **small)
    if isinstance(agent, SAC):  # few steps: the temperature must fall soon, or values hold much entropy
        small |= soft
    few = {"critics": min(agent.critics, 4), "critic_steps": min(agent.critic_steps, 3), "critic_hidden": (16, 16)}
    return dataclasses.replace(agent, **few, **small)


def train(agent, iterations=700, warm=100):
    vector = envs.VectorEnv([[ProbeEnv(name, seed=0), ProbeEnv(name, seed=1)] for name in PROBES])
    learning = Learning(agent, vector.spec, envs=2, capacity=2000, normalize=False, recency=8.0)
    state = learning.start(list(range(len(PROBES))))
    streams, device = np.asarray(state.keys), Device(learning, state)
    for iteration in range(iterations):
        actions = device.act(vector.obs, vector.fresh, iteration)
        if iteration < warm:
            actions = uniform_actions(streams, iteration, (1, 2, 1))[0]
        step, _ = vector.step(np.asarray(actions))
        device.store(step) if iteration < warm else device.learn(step, iteration)
    return jax.tree.map(np.asarray, device.state.agent)


def shown(name: str) -> list[np.ndarray]:
    """Every observation that a probe can show before its end."""
    env, seen = ProbeEnv(name, seed=0), {}
    for _ in range(20):
        obs, last = env.reset(), False
        while not last:
            seen[float(obs[0])] = obs
            obs, _, _, last = env.step(np.zeros(1, np.float32))
    return list(seen.values())


def critic_values(agent, learned, obs, act):
    """What is held of an action in each actor's opinion: by its own critic, or by the mean of the ensemble."""
    if not isinstance(agent, FAC):
        return vmap(lambda critic: critic(obs, act))(learned.critics.params).mean(keepdims=True)
    critics, policies = learned.critics.params, learned.actors.params
    if isinstance(agent, FSAC):
        value = vmap(vmap(lambda head, code: head(code, obs, act), in_axes=(None, 0)))
        return value(critics.head, encode_all(critics, policies)).mean(axis=0)
    if agent.functional:
        pairs = jnp.arange(agent.members)
        codes = encode_all(critics, policies)[pairs, pairs]
    else:
        codes = jnp.zeros((agent.members, 0))
    return vmap(lambda head, code: head(code, obs, act))(critics.head, codes)


# By what they are when shrunk: `fac-small` is then `fac-shared`.
NAMES = {agent: [name for name in RECIPES if shrunk(name) == agent] for agent in map(shrunk, RECIPES)}
LATER = {"fac-first-term", "fac-plain", "fac-unpaired", "fsac-small", "sac+", "td3"}
"""Those that differ from another one in a switch: `make test-all` trains them, `make test` all others."""


def case(agent) -> object:
    names = NAMES[agent]
    return pytest.param(agent, id=" and ".join(names), marks=[pytest.mark.long] if {*names} <= LATER else [])


@pytest.mark.parametrize("agent", [*map(case, NAMES)])
def test_every_recipe_learns_every_probe(agent):
    learned_all = train(agent)
    act = jax.jit(vmap(lambda policy, obs: policy(obs), in_axes=(0, None)))
    guess = jax.jit(lambda learned, obs, action: critic_values(agent, learned, obs, action))
    for index, name in enumerate(PROBES):
        learned = jax.tree.map(lambda leaf, index=index: leaf[index], learned_all)
        env, policies = ProbeEnv(name, seed=0), agent.evaluation_policies(learned)
        reward = lambda obs, action, env=env: env.probe.reward(float(obs[0]), float(action[0]))
        for obs in shown(name):
            for member, action in enumerate(np.asarray(act(policies, obs))):
                where = (name, obs, member, action)
                assert reward(obs, env.best_policy(obs)) - reward(obs, action) < 0.1, where
                own = lambda o, policies=policies, member=member: np.asarray(act(policies, o))[member]
                truth, held = (
                    env.action_value(own, obs, action, DISCOUNT),
                    float(guess(learned, obs, action)[member]),
                )
                assert abs(held - truth) < 0.15 + 0.05 * abs(truth), (*where, held, truth)
