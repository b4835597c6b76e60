import importlib
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from fcritic import envs
from fcritic.envs.dm_control_patches import put_off
from fcritic.envs.dmc import DMCEnv, dmc_tasks, load_suite
from fcritic.errors import UsageError
from fcritic.types import EnvSpec

TASKS = ["cartpole-swingup", "cheetah-run", "hopper-hop", "finger-spin", "ball_in_cup-catch"]


def actions(env, count, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, env.spec.act_dim)).astype(np.float32)


def rollout(env, acts):
    """Every number an environment gives, over as many episodes as the actions last."""
    trace = []
    for act in acts:
        step = env.step(act)
        trace.append(np.concatenate([step.obs, [step.reward, step.discount, step.last]]))
        if step.last:
            trace.append(env.reset())
    return trace


def assert_same(one, other):
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


def plain(task, seed):
    domain, name = task.split("-")
    return load_suite().load(domain, name, task_kwargs={"random": np.random.RandomState(seed)})


def flat(observation):
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float32)


@pytest.mark.parametrize("task", [*TASKS, "finger-turn_hard", "manipulator-bring_ball"])
def test_equals_plain_dm_control(task):
    env, reference = envs.make(task, seed=7), plain(task, seed=7)
    for _ in range(2):  # two episodes: the random state must go on in the same way
        np.testing.assert_array_equal(env.reset(), flat(reference.reset().observation))
        for act in actions(env, 60):
            step, expected = env.step(act), reference.step(act)
            np.testing.assert_array_equal(step.obs, flat(expected.observation))
            assert step.obs.dtype == np.float32 and step.obs.shape == (env.spec.obs_dim,)
            assert (step.reward, step.discount, step.last) == (expected.reward, expected.discount, False)


def test_known_sizes():
    assert envs.task_spec("cheetah-run") == EnvSpec(obs_dim=17, act_dim=6)
    assert envs.task_spec("hopper-hop") == EnvSpec(obs_dim=15, act_dim=4)


def test_actions_are_rescaled_to_uneven_bounds_and_clipped():
    env = envs.make("quadruped-walk", seed=0)
    bounds = env._env.action_spec()
    assert not (np.all(bounds.minimum == -1) and np.all(bounds.maximum == 1))
    env.reset()
    for action, control in [(-1, bounds.minimum), (1, bounds.maximum), (5, bounds.maximum)]:
        env.step(np.full(env.spec.act_dim, action, np.float32))
        np.testing.assert_allclose(env._env.physics.data.ctrl, control, atol=1e-12)
    env.step(np.zeros(env.spec.act_dim, np.float32))
    np.testing.assert_allclose(env._env.physics.data.ctrl, (bounds.minimum + bounds.maximum) / 2, atol=1e-12)


@pytest.mark.parametrize("repeat, steps", [(1, 1000), (4, 250), (3, 334)])
def test_action_repeat_sums_rewards_over_1000_frames(repeat, steps):
    env, reference = DMCEnv("cartpole", "swingup", seed=3, action_repeat=repeat), plain("cartpole-swingup", 3)
    np.testing.assert_array_equal(env.reset(), flat(reference.reset().observation))
    frames = 0
    for count, act in enumerate(actions(env, steps), start=1):
        step, expected = env.step(act), 0.0
        for _ in range(repeat):
            frame = reference.step(act)
            expected += frame.reward
            frames += 1
            if frame.last():
                break
        assert step.reward == expected
        np.testing.assert_array_equal(step.obs, flat(frame.observation))
        assert step.last == (count == steps)
        assert step.discount == 1.0  # also at the time limit
    assert frames == 1000


def test_termination_has_discount_zero_and_ends_the_repeat():
    env = DMCEnv("lqr", "lqr_2_1", seed=0, action_repeat=5)
    env.reset()
    env._env.physics.data.qpos[:] = 0.0
    env._env.physics.data.qvel[:] = 0.0
    env._env.physics.forward()
    step = env.step(np.zeros(1, np.float32))
    assert step.last and step.discount == 0.0
    assert env._env._step_count == 1


def test_step_needs_a_reset():
    env = envs.make("cartpole-balance", seed=0, action_repeat=500)
    with pytest.raises(RuntimeError, match=r"cartpole-balance.*reset"):
        env.step(np.zeros(1))
    env.reset()
    assert not env.step(np.zeros(1)).last
    assert env.step(np.zeros(1)).last
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.zeros(1))


@pytest.mark.parametrize("task", [*TASKS, "reacher-hard", "fish-swim", "lqr-lqr_2_1"])
def test_restore_is_exact_in_mid_episode_and_beyond_it(task):
    env = envs.make(task, seed=1, action_repeat=20)
    for _ in range(2):  # so that the random state before this reset is not that of the construction
        env.reset()
    acts = actions(env, 60)
    rollout(env, acts[:43])
    state = {name: value.copy() for name, value in env.state().items()}
    assert all(isinstance(value, np.ndarray) and value.dtype != object for value in state.values())
    expected = rollout(env, acts[43:])
    assert expected[6][-1] == 1  # 50 steps make an episode
    other = envs.make(task, seed=2, action_repeat=20)
    other.reset()
    rollout(other, acts[:5])
    other.restore(state)
    assert_same(rollout(other, acts[43:]), expected)
    other.restore(state)  # and again, backwards in time
    assert_same(rollout(other, acts[43:48]), expected[:5])


def test_restore_is_exact_on_every_task():
    inexact = []
    for task in dmc_tasks():
        env = envs.make(task, seed=1)
        env.reset()
        acts = actions(env, 12)
        rollout(env, acts[:5])
        state = env.state()
        expected = [*rollout(env, acts[5:]), env.reset(), *rollout(env, acts[:3])]
        env.restore(state)  # after another episode has moved targets and random numbers on
        again = [*rollout(env, acts[5:]), env.reset(), *rollout(env, acts[:3])]
        if not all(np.array_equal(*pair) for pair in zip(again, expected, strict=True)):
            inexact.append(task)
        env.close()
    assert not inexact


def test_restore_of_a_finished_episode():
    env, other = (DMCEnv("finger", "spin", seed=seed, action_repeat=500) for seed in (0, 1))
    env.reset()
    rollout_end = [env.step(np.ones(2)) for _ in range(2)]
    assert rollout_end[-1].last
    other.restore(env.state())
    with pytest.raises(RuntimeError, match="call reset"):
        other.step(np.ones(2))
    np.testing.assert_array_equal(other.reset(), env.reset())


def test_restore_of_an_environment_before_its_first_episode():
    env, other = (envs.make("finger-spin", seed=seed) for seed in (0, 1))
    other.restore(env.state())
    np.testing.assert_array_equal(other.reset(), env.reset())


def test_saving_a_state_changes_nothing():
    one, other = (envs.make("hopper-hop", seed=0) for _ in range(2))
    assert_same([one.reset()], [other.reset()])
    acts = actions(one, 20)
    expected = rollout(one, acts)
    trace = []
    for act in acts:
        other.state()
        trace += rollout(other, [act])
    assert_same(trace, expected)


def test_tasks_are_listed_without_those_that_need_a_renderer():
    tasks = dmc_tasks()
    assert {"cheetah-run", "ball_in_cup-catch", "cartpole-swingup_sparse"} <= set(tasks)
    assert len(tasks) == 50 and "quadruped-escape" not in tasks


@pytest.mark.parametrize(
    "task, says",
    [
        ("cheeta-run", "did you mean cheetah-run"),
        ("cheetah_run", "did you mean cheetah-run"),
        ("Cheetah-Run", "did you mean cheetah-run"),
        ("cartpole-swing", "it has cartpole-balance, .*cartpole-swingup,"),
        ("quadruped-escape", "needs a renderer"),
        ("xyzzy", "names like cheetah-run"),
    ],
)
def test_wrong_names_are_answered_in_one_line(task, says):
    with pytest.raises(UsageError, match=says) as caught:
        envs.make(task, seed=0)
    assert "\n" not in str(caught.value)
    domain, dash, name = task.partition("-")
    if dash:
        with pytest.raises(UsageError, match=says):
            DMCEnv(domain, name, seed=0)


def test_without_the_suite_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dm_control", None)  # as where it is not installed
    says = re.escape(f"run {sys.executable} -m pip install --no-deps dm_control==1.0.50")
    for build in (lambda: envs.make("cheetah-run", seed=0), lambda: DMCEnv("cheetah", "run", seed=0)):
        with pytest.raises(UsageError, match=says):
            build()
    with pytest.raises(UsageError, match=rf"unknown task 'probe-bot'.*{says}.*did you mean probe-both?"):
        envs.make("probe-bot", seed=0)
    with pytest.raises(UsageError, match=r"did you mean Pendulum-v1\?$"):
        envs.make("Pendulum-v11", seed=0)
    for task in ("probe-both", "Pendulum-v1", "trap", "deepsea-10"):
        envs.make(task, seed=0).close()


def in_a_new_process(code, **environ):
    kept = {name: value for name, value in os.environ.items() if name not in ("MUJOCO_GL", "DISPLAY")}
    return subprocess.run([sys.executable, "-c", code], env=kept | environ, capture_output=True, text=True)


def test_import_is_lazy_quiet_and_without_gl():
    code = """
import os, sys
from fcritic import envs
assert "dm_control" not in sys.modules and "gymnasium" not in sys.modules
env = envs.make("cheetah-run", seed=0)
env.reset()
assert "gymnasium" not in sys.modules and "MUJOCO_GL" not in os.environ
assert not {"glfw", "OpenGL", "scipy.ndimage"} & set(sys.modules)
from dm_control.suite import quadruped
zoom = quadruped.ndimage.zoom  # there for the one task that draws with it
import scipy.ndimage
assert zoom is scipy.ndimage.zoom and type(scipy.ndimage) is type(os)
"""
    done = in_a_new_process(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_module_that_is_put_off_may_be_used_meanwhile(tmp_path, monkeypatch):
    (tmp_path / "drawn_late.py").write_text("value = 3")
    monkeypatch.syspath_prepend(tmp_path)
    with put_off("drawn_late"):
        assert importlib.import_module("drawn_late").value == 3  # through the stand-in


def test_a_renderer_that_does_not_load_is_named():
    code = """
from fcritic import envs, errors
try:
    envs.make("cheetah-run", seed=0)
except errors.UsageError as error:
    print(error)
"""
    done = in_a_new_process(code, MUJOCO_GL="nonsense")
    assert done.stdout.startswith("MUJOCO_GL=nonsense does not work here") and done.stdout.count("\n") == 1
