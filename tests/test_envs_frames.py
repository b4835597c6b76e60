"""Environments of the control suite by shorter ways than dm_control's own: the same numbers, bit for bit."""

import numpy as np
import pytest

from fcritic import envs
from fcritic.envs.dmc import FRAME_LIMIT, dmc_tasks, load_suite


def reference(task: str, seed: int):
    domain, name = task.split("-")
    return load_suite().load(domain, name, task_kwargs={"random": np.random.RandomState(seed)})


def flat(observation) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float32)


WHOLE = [
    "cheetah-run",
    "walker-walk",
    "acrobot-swingup",
    "reacher-hard",
    "fish-swim",
    "point_mass-hard",
    "lqr-lqr_2_1",
]
"""With one and several substeps, both integrators, models that are changed at each reset, and a task that ends."""


@pytest.mark.parametrize("task", WHOLE)
def test_whole_episodes_are_those_of_dm_control(task):
    """The second environment is made of a copied model; the first has been played before."""
    envs.make(task, seed=1).reset()
    env, other = envs.make(task, seed=7), reference(task, 7)
    other._step_limit = min(other._step_limit, FRAME_LIMIT)
    bounds, draw = other.action_spec(), np.random.default_rng(0)
    for _ in range(2):
        np.testing.assert_array_equal(env.reset(), flat(other.reset().observation))
        last = False
        while not last:
            act = draw.uniform(-1, 1, bounds.shape).astype(np.float32)
            step, expected = env.step(act), other.step(env.units.actions.scale(act))
            np.testing.assert_array_equal(step.obs, flat(expected.observation))
            assert (step.reward, step.discount) == (expected.reward, expected.discount)
            last = expected.last()
            assert step.last is last


def test_repeated_frames_add_up_to_those_of_dm_control():
    env, other = envs.make("hopper-hop", seed=7, action_repeat=3), reference("hopper-hop", 7)
    env.reset(), other.reset()
    draw, lasts = np.random.default_rng(0), 0
    while not lasts:  # 1000 is no multiple of 3
        act = draw.uniform(-1, 1, 4).astype(np.float32)
        step, frames = env.step(act), []
        while len(frames) < 3 and not (frames and frames[-1].last()):
            frames.append(other.step(act))
        np.testing.assert_array_equal(step.obs, flat(frames[-1].observation))
        assert step.reward == sum(frame.reward for frame in frames)
        lasts += step.last
        assert step.last is frames[-1].last()


def test_no_task_of_the_suite_does_more_in_a_frame_than_is_done_here():
    from dm_control.suite.base import Task

    for task in dmc_tasks():
        if task.startswith("dog"):  # the same class for all of them, and seconds to build each
            continue
        env = reference(task, 0)
        assert type(env.task).before_step is Task.before_step, task
        assert type(env.task).after_step is Task.after_step, task
        assert env.physics.legacy_step and not env._flat_observation and not env.task.visualize_reward, task


def test_an_unstable_simulation_is_refused_as_dm_control_does():
    from dm_control.rl.control import PhysicsError

    own, plain, messages = envs.make("cheetah-run", seed=0), reference("cheetah-run", 0), []
    for env, physics in ((own, own._env.physics), (plain, plain.physics)):
        env.reset()
        physics.data.qpos[0] = np.nan
        with pytest.raises(PhysicsError) as caught:
            env.step(np.zeros(6))
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and "mjWARN_BADQ" in messages[0]


@pytest.mark.parametrize("task", ["cheetah-run", "reacher-hard", "lqr-lqr_2_1"])
def test_each_environment_has_a_model_of_its_own_like_one_compiled_for_it(task):
    first, second = envs.make(task, seed=3), envs.make(task, seed=3)
    models = [env._env.physics.model for env in (first, second)]
    compiled = reference(task, 3).physics.model
    assert models[0].to_bytes() == models[1].to_bytes() == compiled.to_bytes()
    models[0].body_mass[:] = 7.0
    first.reset()
    assert models[1].to_bytes() == compiled.to_bytes() == envs.make(task, seed=3)._env.physics.model.to_bytes()


# The rest
