"""Worker processes that hang, die or are killed for real: named, replaced, and never left behind."""

import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from sick_vectors import SICK, TASK, actions, assert_same_elsewhere, assert_true_transitions, plan, play
from worker_vectors import make, pids, random_actions

from fcritic import envs
from fcritic.errors import EnvironmentFault

__all__ = ["make", "plan"]


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
vector = envs.make_vector("benchmarks.attacks.sick:Walk-v0", seeds=[0], envs=2, processes=2, timeout=60.0)
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
