"""Soft actors with functional critics: targets, steps of actors and temperatures, and what they leave alone."""

import dataclasses

import equinox as eqx
import jax
from jax import vmap
import jax.numpy as jnp
import numpy as np
import pytest
from quick_programs import actor_step, critic_step, quick_jit

import fcritic
from fcritic import ensembles, randomness
from fcritic.agents.cloud import Cloud
from fcritic.agents.fac import Explore
from fcritic.agents.fsac import FSAC
from fcritic.agents.losses import encode_all, functional_critic_loss
from fcritic.agents.sac import sampled
from fcritic.agents.steering import Trust
from fcritic.envs import task_spec
from fcritic.errors import UsageError
from fcritic.networks.actor_encoder import EncoderConfig
from fcritic.networks.critics import FunctionalCritic
from fcritic.training.loop import train
from fcritic.training.saving import load_state

KEY = jax.random.key(3)
SOFT = FSAC(
    members=2,
    critics=3,
    subset=2,
    batch_size=5,
    actor_hidden=(8, 6),
    state_action_hidden=(),
    state_action_code=4,
    joint_hidden=(6,),
    encoder=EncoderConfig(kind="behaviour", probes=5, code=4, width=8, shared=True),
)


def same(a, b) -> bool:
    return all(bool((x == y).all()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def awake(spec, agent=SOFT):
    """A state whose values are not near zero, and whose temperatures differ."""
    state = agent.init(spec, jax.random.key(0))
    wake = lambda tree: jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(KEY, leaf.shape), tree)
    critics = dataclasses.replace(state.critics, params=wake(state.critics.params))
    logs = dataclasses.replace(state.log_temperatures, params=jnp.log(jnp.array([0.5, 2.0])))
    return dataclasses.replace(state, critics=critics, targets=wake(state.targets), log_temperatures=logs)


def test_the_loss_is_the_loop_over_critics_with_the_least_target_of_the_subset(spec, batch):
    state, gamma, subset = awake(spec), 0.97, (0, 2)
    critics, policies = state.critics.params, state.actors.params
    keys = jax.random.split(KEY, 2)
    next_act, log_prob = vmap(sampled, in_axes=(0, None, 0))(policies, batch.next_obs, keys)
    bonus = -jnp.array([0.5, 2.0])[:, None] * log_prob
    value = quick_jit(lambda critic, policy, s, a: critic(policy, s, a))
    total = 0.0
    for i in range(3):
        online = FunctionalCritic(critics.encoder, ensembles.member(critics.head, i))
        errors = []
        for j in range(2):
            policy = ensembles.member(policies, j)
            for b in range(5):
                row = jax.tree.map(lambda leaf, b=b: leaf[b], batch)
                delayed = [FunctionalCritic(critics.encoder, ensembles.member(state.targets, k)) for k in subset]
                least = min(float(value(each, policy, row.next_obs, next_act[j, b])) for each in delayed)
                y = row.reward + gamma * row.discount * (least + bonus[j, b])
                errors.append(float((y - value(online, policy, row.obs, row.act)) ** 2))
        total += np.mean(errors)
    loss = quick_jit(functional_critic_loss, static_argnums=5)
    found, _ = loss(critics, state.targets, policies, next_act, batch, gamma, bonus, jnp.array(subset))
    np.testing.assert_allclose(found, total, rtol=1e-4)


def test_a_temperature_rises_where_its_own_actor_has_too_little_entropy(spec, batch):
    """Deviations e^-6 and 1: the first actor has less entropy than -5, about -9, and the second more."""
    state = awake(spec)
    last = lambda actors: (actors.params.network.layers[-1].weight, actors.params.network.layers[-1].bias)
    bias = jnp.array([[0.0, 0.0, -6.0, -6.0], [0.0, 0.0, 0.0, 0.0]])
    actors = eqx.tree_at(last, state.actors, (0 * last(state.actors)[0], bias))
    agent = dataclasses.replace(SOFT, entropy_per_dimension=-2.5)
    after, metrics = actor_step(agent, dataclasses.replace(state, actors=actors), batch, KEY)
    moved = np.asarray(after.log_temperatures.params - state.log_temperatures.params)
    assert moved[0] > 1e-4 and moved[1] < -1e-4
    assert metrics["temperature"] == pytest.approx(1.25)


def test_steps_touch_what_they_should(spec, batch):
    state = awake(spec)
    after, _ = critic_step(SOFT, state, batch, KEY)
    assert same(after.actors, state.actors) and same(after.log_temperatures, state.log_temperatures)
    assert not same(after.critics.params, state.critics.params) and not same(after.targets, state.targets)
    after, _ = actor_step(SOFT, state, batch, KEY)
    assert same(after.critics, state.critics) and same(after.targets, state.targets)
    assert not same(after.actors.params, state.actors.params)


def test_an_actor_does_not_hear_of_another(spec, batch):
    state = awake(spec)
    shaken = jax.tree.map(lambda leaf: leaf.at[1].add(0.1), state.actors.params)
    other = dataclasses.replace(state, actors=dataclasses.replace(state.actors, params=shaken))
    one, two = (actor_step(SOFT, each, batch, KEY)[0].actors.params for each in (state, other))
    first = lambda tree: ensembles.member(tree, 0)
    assert same(first(one), first(two)) and not same(one, two)


def test_the_second_term_is_left_out_by_its_weight(spec, batch):
    state = awake(spec)
    gradient = lambda weight: actor_step(dataclasses.replace(SOFT, second_term=weight), state, batch, KEY)[1]
    assert abs(gradient(1.0)["actor_grad_norm"] - gradient(0.0)["actor_grad_norm"]) > 1e-4


def test_an_episode_is_played_by_one_actor_that_draws_its_actions(spec):
    state, obs = awake(spec), jnp.array([0.1, -0.2, 0.3])
    policies = SOFT.rollout_policy(state)
    keys = jax.random.split(KEY, 3)
    acts = [SOFT.act(policies, jnp.int32(1), obs, key)[0] for key in keys]
    assert float(jnp.abs(acts[0] - acts[1]).max()) > 1e-3
    noise = jax.random.normal(jax.random.split(keys[0])[0], (2,))
    expected = ensembles.member(state.actors.params, 1).sample(obs, noise)[0]
    np.testing.assert_allclose(acts[0], expected, rtol=1e-5)


def test_a_name_says_nothing_of_what_its_actor_does_now(spec, batch):
    """With other actors in the state, values of the same actions are the same; with other names they are not."""
    agent = dataclasses.replace(SOFT, names=True)
    state = awake(spec, agent)
    critics, shaken = state.valued_by, jax.tree.map(lambda leaf: leaf + 0.1, state.actors.params)
    codes = quick_jit(encode_all)(critics, state.known_by)
    assert float(jnp.abs(codes[:, 0] - codes[:, 1]).max()) > 1e-2  # it names its actor
    moved = dataclasses.replace(state, actors=dataclasses.replace(state.actors, params=shaken))
    assert same(moved.known_by, state.known_by)
    loss = quick_jit(functional_critic_loss, static_argnums=5)
    next_act = 0.1 * jnp.ones((2, 5, 2))
    given = (critics, state.targets, state.known_by, next_act, batch, SOFT.discount)
    expected, _ = loss(*given, None, jnp.array([0, 1, 2]))
    after, metrics = critic_step(dataclasses.replace(agent, subset=3), frozen(state, next_act), batch, KEY)
    np.testing.assert_allclose(metrics["critic_loss"], expected / 3, rtol=1e-4)
    assert same(after.names, state.names)
    slope = lambda weight: actor_step(dataclasses.replace(agent, second_term=weight), state, batch, KEY)[0].actors
    assert same(slope(0.0), slope(1.0))  # no gradient goes through a name


def frozen(state, next_act):
    """The state with actors that take these actions almost surely, without pay for entropy."""
    last = lambda actors: (actors.params.network.layers[-1].weight, actors.params.network.layers[-1].bias)
    bias = jnp.concatenate([jnp.arctanh(next_act[:, 0]), jnp.full((2, 2), -20.0)], axis=-1)
    actors = eqx.tree_at(last, state.actors, (0 * last(state.actors)[0], bias))
    logs = dataclasses.replace(state.log_temperatures, params=jnp.full(2, -30.0))
    return dataclasses.replace(state, actors=actors, log_temperatures=logs)


def test_plain_critics_of_soft_actors_learn_one_value_on_the_mean_of_their_targets(spec, batch):
    agent = dataclasses.replace(SOFT, functional=False)
    state, gamma, subset = awake(spec, agent), 0.97, (0, 2)
    critics, nothing = state.critics.params, jnp.zeros(0)
    next_act = jax.random.uniform(KEY, (2, 5, 2), minval=-1.0)
    bonus = jnp.array([[0.5], [-1.0]]) * jnp.ones((2, 5))
    value = quick_jit(lambda head, s, a: head(nothing, s, a))
    total = 0.0
    for i in range(3):
        for b in range(5):
            row = jax.tree.map(lambda leaf, b=b: leaf[b], batch)
            future = [
                min(float(value(ensembles.member(state.targets, k), row.next_obs, next_act[j, b])) for k in subset)
                + float(bonus[j, b])
                for j in range(2)
            ]
            y = row.reward + gamma * row.discount * np.mean(future)
            total += float((y - value(ensembles.member(critics.head, i), row.obs, row.act)) ** 2) / 5
    loss = quick_jit(functional_critic_loss, static_argnums=(5, 8))
    given = (critics, state.targets, state.actors.params, next_act, batch, gamma, bonus, jnp.array(subset), "mean")
    np.testing.assert_allclose(loss(*given)[0], total, rtol=1e-4)
    after, _ = critic_step(agent, state, batch, KEY)
    assert not same(after.critics.params, state.critics.params)
    after, _ = actor_step(agent, state, batch, KEY)
    assert not same(after.actors.params, state.actors.params)


@pytest.mark.parametrize("control", [{"names": True}, {"functional": False}])
def test_controls_are_continued_exactly(control, tmp_path):
    sizes = {"actor_hidden": (8,), "joint_hidden": (8,), "batch_size": 8, "critics": 2, "members": 2}
    encoder, cloud = {"probes": 4, "code": 4, "width": 8}, {"policies": 0, "bank": 0}
    often = {"steps": 120, "warmup": 40, "eval_every": 60}
    config = fcritic.configure(
        "fsac-small", "probe-both", encoder=encoder, cloud=cloud, **sizes, **often, **control
    )
    whole = train(config, tmp_path / "whole", quiet=True)
    train(dataclasses.replace(config, steps=71), tmp_path / "parts", quiet=True)
    parts = train(config, tmp_path / "parts", quiet=True)
    states = [load_state(config, run.latest_checkpoint())[0].agent for run in (whole, parts)]
    assert same(*states)
    if not control.get("names"):
        return
    first = config.agent.init(task_spec(config.task), randomness.apart(randomness.stream(0))[0])
    assert same(ensembles.member(states[0].names, 0), first.actors.params)
    agent = fcritic.load(whole.path)
    with pytest.raises(UsageError, match="know actors by name"):
        agent.value(0, np.zeros(1, np.float32))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"functional": False, "names": True}, "leave out --names"),
        ({"names": True, "cloud": Cloud(policies=2)}, "leave out --cloud.policies"),
        ({"names": True, "trust": Trust(measure=True)}, "and --trust"),
        ({"functional": False, "cloud": Cloud(policies=2)}, "leave --cloud.policies at 0"),
        ({"pairing": "fixed", "critics": 2, "subset": 1}, "leave --pairing at mean"),
        ({"explore": Explore(noise=0.1)}, "leave out --explore.noise"),
        ({"subset": 4}, "--subset must be 1 to 3"),
        ({"initial_temperature": 0.0}, "--initial-temperature must be above 0"),
        ({"log_std_range": (1.0, 1.0)}, "--log-std-range must be two numbers"),
        ({"cloud": Cloud(policies=2), "encoder": EncoderConfig(probes=2)}, "use --encoder.kind behaviour"),
    ],
)
def test_what_cannot_be_is_refused(changes, said):
    with pytest.raises(UsageError) as refused:
        dataclasses.replace(SOFT, **changes)
    assert said in str(refused.value)
