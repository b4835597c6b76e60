"""Environments in worker processes: the same numbers, states and trainings as in one process."""

import dataclasses
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import safetensors.numpy
from sick_vectors import TASK, actions, assert_same_elsewhere, plan, play
from test_train import BASELINES, config, stop_after  # noqa: F401 (config is a fixture)
from worker_vectors import make, pids, random_actions

from fcritic import envs
from fcritic.agents.recipes import find_recipe
from fcritic.api.trust import trust_task
from fcritic.config import TrainConfig
from fcritic.errors import UsageError
from fcritic.runs.fingerprint import fingerprint
from fcritic.training.loop import FREE_FIELDS, train

__all__ = ["make", "plan"]

TASKS = [("ball_in_cup-catch", 100, 1), ("Pendulum-v1", 20, 2), ("probe-both", 1, 3), (TASK, 1, 9)]


@pytest.mark.parametrize("task, repeat, processes", TASKS)
def test_numbers_and_states_are_those_of_one_process(task, repeat, processes, make):
    local = make(task, action_repeat=repeat)
    spread = make(task, action_repeat=repeat, processes=processes)
    assert len(set(pids(spread))) == min(processes, 4)
    assert (spread.spec, spread.shape) == (local.spec, local.shape)
    np.testing.assert_array_equal(local.obs, spread.obs)
    acts = random_actions(local, 26)
    assert_same_elsewhere(play(local, acts[:13]), play(spread, acts[:13]), sick=())
    here, there = local.state(), spread.state()
    assert list(here) == list(there)
    for name, value in here.items():
        assert value.dtype == there[name].dtype
        np.testing.assert_array_equal(value, there[name])
    other_way = make(task, seeds=(7, 8), action_repeat=repeat)
    stored = safetensors.numpy.load(safetensors.numpy.save(there))
    assert other_way.restore(stored) == 0 and spread.restore(here) == 0
    expected = play(local, acts[13:])
    assert_same_elsewhere(expected, play(other_way, acts[13:]), sick=())
    assert_same_elsewhere(expected, play(spread, acts[13:]), sick=())


def test_those_that_cannot_tell_their_state_and_restarts(make):
    local, spread = (
        make("benchmarks.attacks.sick:Forgetful-v0"),
        make("benchmarks.attacks.sick:Forgetful-v0", processes=2),
    )
    play(local, actions(3))
    state = local.state()
    assert not any(name.startswith("env/") for name in state)
    assert local.restore(state) == spread.restore(state) == 4
    assert_same_elsewhere(play(local, actions(5)), play(spread, actions(5)), sick=())
    for vector in (local, spread):
        vector.restart(envs.copy_seeds([5, 6], 2, "again"))
    built = make("benchmarks.attacks.sick:Forgetful-v0", seeds=(5, 6), salt="again")
    expected = play(built, actions(8))
    assert_same_elsewhere(expected, play(local, actions(8)), sick=())
    assert_same_elsewhere(expected, play(spread, actions(8)), sick=())


def test_workers_are_light_and_printing_harms_nothing(make, plan, capfd):
    plan("print", place=None)
    vector, reference = make(processes=1), make()
    assert_same_elsewhere(play(vector, actions(5)), play(reference, actions(5)), sick=())
    maps = Path(f"/proc/{pids(vector)[0]}/maps").read_text()
    assert "numpy" in maps and "jaxlib" not in maps
    vector.close()
    assert "sss" in capfd.readouterr().err


def test_what_cannot_be_built_is_refused_in_one_line(make, monkeypatch):
    gymnasium.register("OnlyHere-v0", "benchmarks.attacks.sick:Walk")
    for task, says in [("CartPole-v1", "Discrete"), ("OnlyHere-v0", "unknown task.*module:Name-v0")]:
        with pytest.raises(UsageError, match=says) as caught:
            make(task, processes=2)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="env-processes must be at least 0"):
        TrainConfig.of("sac", env_processes=-1)
    with pytest.raises(UsageError, match="env-timeout must be at least"):
        TrainConfig.of("sac", env_timeout=0.0)


def test_a_training_may_change_between_modes(config, tmp_path, monkeypatch):  # noqa: F811
    """Bit for bit the same run, evaluations included."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    trust_task(TASK)
    assert {"env_processes", "env_timeout", "on_fault"} <= FREE_FIELDS
    agent = dataclasses.replace(find_recipe("sac"), **BASELINES)
    short = {"steps": 240, "warmup": 40, "eval_every": 50, "log_every": 40, "save_every": 120}
    config = dataclasses.replace(config, agent=agent, task=TASK, action_repeat=1, **short)
    whole = train(config, tmp_path / "whole", quiet=True)
    spread = dataclasses.replace(config, env_processes=2, on_fault="skip", env_timeout=30.0)
    stop_after(30, spread, tmp_path / "parts")
    parts = train(config, tmp_path / "parts", quiet=True)
    assert fingerprint(whole.path) == fingerprint(parts.path)
