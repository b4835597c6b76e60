"""Environments in worker processes: the same numbers, and processes that hang, die or are killed for real."""

import dataclasses
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import gymnasium
import numpy as np
import pytest
import safetensors.numpy
from test_env_faults import SICK, TASK, actions, assert_same_elsewhere, assert_true_transitions, plan, play
from test_train import BASELINES, config, stop_after  # noqa: F401 (config is a fixture)

from fcritic import envs
from fcritic.agents.recipes import find_recipe
from fcritic.config import TrainConfig
from fcritic.errors import EnvironmentFault, UsageError
from fcritic.fingerprint import fingerprint
from fcritic.train import FREE_FIELDS, train

__all__ = ["plan"]


@pytest.fixture
def make():
    """Builds vectors that are closed when the test is over."""
    made = []

    def build(task=TASK, *, seeds=(0, 1), count=2, **options):
        made.append(envs.make_vector(task, seeds=list(seeds), envs=count, **options))
        return made[-1]

    yield build
    for vector in made:
        vector.close()


def pids(vector):
    return vector._group.pids


def random_actions(vector, count, seed=0):
    shape = (count, *vector.shape, vector.spec.act_dim)
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def gone(pid, within=5.0):
    """Whether the process has ended, or does so soon."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


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
        make("fcritic.reliability.sick:Forgetful-v0"),
        make("fcritic.reliability.sick:Forgetful-v0", processes=2),
    )
    play(local, actions(3))
    state = local.state()
    assert not any(name.startswith("env/") for name in state)
    assert local.restore(state) == spread.restore(state) == 4
    assert_same_elsewhere(play(local, actions(5)), play(spread, actions(5)), sick=())
    for vector in (local, spread):
        vector.restart(envs.copy_seeds([5, 6], 2, "again"))
    built = make("fcritic.reliability.sick:Forgetful-v0", seeds=(5, 6), salt="again")
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


HARD = {
    "die": "its process ended with exit code 7",
    "segfault": "its process was killed by SIGSEGV",
    "stuck": "no answer within 1.3 s; its process was killed",
}
SOFT = {"raise": "step raised ValueError: joint fell off", "hang": "step took longer than 0.3 s"}


@pytest.mark.parametrize("what", [*HARD, *SOFT])
def test_a_fault_in_a_worker_is_named_and_one_can_go_back(what, make, plan, monkeypatch):
    plan(what, at=6)
    vector = make(processes=1, timeout=0.3)
    play(vector, actions(4))
    state = vector.state()
    says = rf"{TASK} \(seed index 1, environment 0\): {(HARD | SOFT)[what]} at step 5, \d steps into"
    with pytest.raises(EnvironmentFault, match=says):
        play(vector, actions(4, seed=1))
    monkeypatch.delenv("FCRITIC_SICK")
    if what in SOFT:  # the process lives and still has its plan
        return
    assert vector.restore(state) == 0
    healthy = make()
    play(healthy, actions(4))
    assert_same_elsewhere(play(healthy, actions(5, seed=1)), play(vector, actions(5, seed=1)), sick=())


@pytest.mark.parametrize("what", SOFT)
def test_a_soft_fault_is_skipped_without_harm_to_its_worker(what, make, plan):
    healthy = make()
    first = healthy.obs
    expected = play(healthy, actions(20))
    plan(what)
    results = []
    for processes in (0, 1):
        vector = make(processes=processes, timeout=0.3, on_fault="skip")
        before = pids(vector) if processes else None
        results.append(play(vector, actions(20)))
        assert_same_elsewhere(expected, results[-1])
        assert_true_transitions(results[-1], first)
        (fault,) = vector.take_faults()
        assert (fault[:2], fault.step) == (SICK, 3) and SOFT[what] in fault.what
        assert not processes or pids(vector) == before
    assert_same_elsewhere(*results, sick=())  # the sick one, too, is the same in both


@pytest.mark.parametrize("what", HARD)
def test_a_dead_worker_is_replaced_and_costs_its_environments_an_episode(what, make, plan):
    healthy = make()
    first = healthy.obs
    expected = play(healthy, actions(20))
    plan(what)
    vector = make(processes=2, timeout=0.3, on_fault="skip")
    before = pids(vector)
    begun = time.monotonic()
    rows = play(vector, actions(20))
    assert time.monotonic() - begun < 5.0 + 1.3
    assert_same_elsewhere(expected, rows, sick=((1, 0), (1, 1)))
    assert_true_transitions(rows, first)
    faults = vector.take_faults()
    assert [fault[:2] for fault in faults] == [(1, 0), (1, 1)]
    assert HARD[what] in faults[0].what and "because of another environment in it" in faults[1].what
    assert pids(vector)[0] == before[0] and pids(vector)[1] != before[1] and gone(before[1])
    np.testing.assert_array_equal(vector.state()["faults"], [[0, 0], [1, 1]])


@pytest.mark.parametrize("when", ["before a step", "before a save"])
def test_a_killed_worker_is_replaced_within_five_seconds(when, make):
    task = "cheetah-run" if when == "before a step" else TASK
    vector = make(task, processes=2, on_fault="skip", seeds=(0,))
    acts = random_actions(vector, 3)
    vector.step(acts[0])
    os.kill(pids(vector)[1], signal.SIGKILL)
    begun = time.monotonic()
    if when == "before a save":
        state = vector.state()
        np.testing.assert_array_equal(vector.fresh, [[False, True]])
        other = make(task, seeds=(0,))
        assert other.restore(state) == 0
        np.testing.assert_array_equal(other.step(acts[1])[0].next_obs, vector.step(acts[1])[0].next_obs)
    else:
        transition, episodes = vector.step(acts[1])
        assert np.isfinite(transition.next_obs).all() and not episodes
    assert time.monotonic() - begun < 5.0
    (fault,) = vector.take_faults()
    assert fault[:3] == (0, 1, f"{task} (seed index 0, environment 1): its process was killed by SIGKILL")


def test_killing_stops_the_run_unless_it_is_told_to_skip(make):
    vector = make(processes=2)
    os.kill(pids(vector)[0], signal.SIGKILL)
    with pytest.raises(
        EnvironmentFault, match=r"\(seed index 0, environment 0\): its process was killed by SIGKILL"
    ):
        vector.step(actions(1)[0])


def test_patience_with_a_worker_that_always_dies_ends(make, plan):
    vector = make(processes=4, on_fault="skip")
    plan("die", place=None)
    os.kill(pids(vector)[2], signal.SIGKILL)  # its successors get the plan
    with pytest.raises(EnvironmentFault, match=r"\(seed index 1, environment 0\).*exit code 7.*for the 3rd time"):
        vector.step(actions(1)[0])


def test_closing_and_forgetting_end_the_processes(make):
    closed, forgotten = make(processes=2), envs.make_vector(TASK, seeds=[0], envs=2, processes=2)
    numbers = [*pids(closed), *pids(forgotten)]
    closed.close()
    del forgotten
    assert all(gone(pid, 2.0) for pid in numbers)


PARENT = """
import sys, time, numpy as np
from fcritic import envs
vector = envs.make_vector("fcritic.reliability.sick:Walk-v0", seeds=[0], envs=2, processes=2, timeout=60.0)
print(*vector._group.pids, flush=True)
if sys.argv[1] == "busy":
    vector.step(np.zeros((1, 2, 1)))
sys.stdin.read()
"""


@pytest.mark.parametrize("doing", ["idle", "busy"])
def test_workers_survive_ctrl_c_and_die_with_their_parent(doing, monkeypatch):
    if doing == "busy":
        monkeypatch.setenv("FCRITIC_SICK", "*,0,stuck")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    parent = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.signal(2, signal.SIG_IGN)\n" + PARENT, doing],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    for number in (signal.SIGINT, signal.SIGTERM):
        for worker in workers:
            os.kill(worker, number)
    os.killpg(parent.pid, signal.SIGINT)
    time.sleep(0.3)
    assert not any(gone(worker, 0.02) for worker in workers)
    parent.kill()
    parent.communicate()
    assert all(gone(worker, 2.0) for worker in workers)


def test_what_cannot_be_built_is_refused_in_one_line(make, monkeypatch):
    gymnasium.register("OnlyHere-v0", "fcritic.reliability.sick:Walk")
    for task, says in [("CartPole-v1", "Discrete"), ("OnlyHere-v0", "unknown task.*module:Name-v0")]:
        with pytest.raises(UsageError, match=says) as caught:
            make(task, processes=2)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="env-processes must be at least 0"):
        TrainConfig.of("sac", env_processes=-1)
    with pytest.raises(UsageError, match="env-timeout must be at least"):
        TrainConfig.of("sac", env_timeout=0.0)


def test_a_training_may_change_between_modes(config, tmp_path):  # noqa: F811
    """Bit for bit the same run, evaluations included."""
    assert {"env_processes", "env_timeout", "on_fault"} <= FREE_FIELDS
    agent = dataclasses.replace(find_recipe("sac"), **BASELINES)
    short = {"steps": 240, "warmup": 40, "eval_every": 50, "log_every": 40, "save_every": 120}
    config = dataclasses.replace(config, agent=agent, task=TASK, action_repeat=1, **short)
    whole = train(config, tmp_path / "whole", quiet=True)
    spread = dataclasses.replace(config, env_processes=2, on_fault="skip", env_timeout=30.0)
    stop_after(30, spread, tmp_path / "parts")
    parts = train(config, tmp_path / "parts", quiet=True)
    assert fingerprint(whole.path) == fingerprint(parts.path)
