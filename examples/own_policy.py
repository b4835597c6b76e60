"""A functional critic alone, in someone else's JAX code: it learns to value your own policy class.

The problem has a known answer. A point moves as s' = 0.9 s + 0.5 a and pays s^2 + 0.1 a^2 per step. The policies
are a = -k s, each a plain dict {"k": ...}. The critic sees policies with random gains k and learns from random
transitions by temporal differences; then it is asked for the value of gains that it never met.

    python examples/own_policy.py
"""

import argparse

import jax
import jax.numpy as jnp
import optax

from fcritic import EncoderConfig, FunctionalCritic, FunctionPolicy, ValueHead
from fcritic.agents.losses import critic_loss, td_target
from fcritic.ensembles import polyak
from fcritic.types import Transition

DISCOUNT, DRIFT, PUSH, EFFORT = 0.9, 0.9, 0.5, 0.1
POLICIES, BATCH = 16, 64


def layers(params, obs):
    """What the critic's encoder sees of a policy: here nothing but its action."""
    return (-params["k"] * obs,)


def policy_of(gain):
    """A policy from its parameters."""
    return FunctionPolicy(layers, {"k": gain})


def exact_value(gain, obs, act):
    """The solution of Bellman's equation: V(s) = -p s^2 with p = (1 + 0.1 k^2) / (1 - 0.9 (0.9 - 0.5 k)^2)."""
    cost = (1 + EFFORT * gain**2) / (1 - DISCOUNT * (DRIFT - PUSH * gain) ** 2)
    return -(obs**2 + EFFORT * act**2) - DISCOUNT * cost * (DRIFT * obs + PUSH * act) ** 2


def new_critic(key):
    """An encoder that reads the last layer, and a head."""
    encoder_key, head_key = jax.random.split(key)
    encoder = EncoderConfig(probes=8, depth=1, width=16, code=8, layers=(-1,)).build(1, (1,), encoder_key)
    sizes = {"state_action_hidden": (32,), "joint_hidden": (32,), "layer_norm": False}
    return FunctionalCritic(encoder, ValueHead(1, 1, 8, 16, key=head_key, **sizes))


def learn(steps, key):
    """Policy evaluation of many policies at once."""
    critic_key, key = jax.random.split(key)
    critic, optimiser = new_critic(critic_key), optax.adam(optax.cosine_decay_schedule(3e-3, steps))

    def step(carry, key):
        critic, delayed, state = carry
        gain_key, obs_key, act_key = jax.random.split(key, 3)
        gains = jax.random.uniform(gain_key, (POLICIES,))
        obs, act = (jax.random.uniform(k, (BATCH, 1), minval=-1.0) for k in (obs_key, act_key))
        policies, moved = jax.vmap(policy_of)(gains), DRIFT * obs + PUSH * act
        reward = -(obs**2 + EFFORT * act**2)[:, 0]
        batch = Transition(obs, act, reward, jnp.ones(BATCH), moved)
        next_act = jax.vmap(lambda policy: jax.vmap(policy)(moved))(policies)

        def loss(critic):
            codes = jax.vmap(critic.encode)(policies)
            goal = td_target(delayed, codes, next_act, batch, DISCOUNT)
            return critic_loss(critic.head, codes, batch, goal)[0]

        updates, state = optimiser.update(jax.grad(loss)(critic), state)
        critic = optax.apply_updates(critic, updates)
        return (critic, polyak(delayed, critic.head, 0.02), state), None

    start = (critic, critic.head, optimiser.init(critic))
    return jax.jit(lambda keys: jax.lax.scan(step, start, keys)[0][0])(jax.random.split(key, steps))


def main(steps=4000):
    """Learns, then compares values and slopes with the exact ones; returns both mean errors."""
    critic = learn(steps, jax.random.key(0))
    obs, act = jnp.array([0.8]), jnp.array([-0.3])
    value = lambda gain: critic(policy_of(gain), obs, act)
    truth = lambda gain: exact_value(gain, obs, act)[0]
    gains = jnp.linspace(0.05, 0.95, 7)
    rows = [jax.jit(jax.vmap(f))(gains) for f in (value, truth, jax.grad(value), jax.grad(truth))]
    print("gain k   value   exact   slope in k   exact")
    for gain, *row in zip(gains, *rows, strict=True):
        print("{:6.2f} {:7.3f} {:7.3f} {:12.3f} {:7.3f}".format(gain, *row))
    errors = [float(jnp.abs(rows[i] - rows[i + 1]).mean() / jnp.abs(rows[i + 1]).mean()) for i in (0, 2)]
    print(f"mean error of the value {errors[0]:.1%}, of its slope {errors[1]:.1%}")
    return errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=4000)
    main(parser.parse_args().steps)
