"""A study on a real Ray cluster of two nodes, of which one is killed in the middle."""

import os
from pathlib import Path
import signal
import subprocess
import sys
import threading
import time

import pytest

from fcritic.errors import UsageError
from fcritic.runs.directory import RunDirectory
from fcritic.runs.fingerprint import fingerprint
from fcritic.study import cluster, execute
from fcritic.study.catalog import load
from fcritic.study.execute import progress

ray = pytest.importorskip("ray", reason="Ray is an extra: pip install 'fcritic[cluster]'")

LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "ab" * 32,
    "RAY_worker_niceness": "0",
}
RUN = load("quick")[0].runs[0]


def test_a_node_is_lost_and_its_run_goes_on_elsewhere(tmp_path):
    """The same end, bit for bit, as on this machine without a cluster."""
    told = subprocess.run(
        [sys.executable, "-c", f"import test_cluster; test_cluster.lose_a_node({str(tmp_path)!r})"],
        env=os.environ | LOOPBACK | {"PYTHONPATH": str(Path(__file__).parents[1])},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    assert "lost a node" in told.stdout
    (todo,) = progress((RUN,), tmp_path / "here")
    assert execute.run_one(todo, execute.Budget(None), print) == ""
    assert fingerprint(tmp_path / "runs" / RUN.name) == fingerprint(tmp_path / "here" / RUN.name)


def lose_a_node(folder):
    """In a process of its own, since Ray's settings are for a whole process."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        nodes.add_node(num_cpus=1)
    runs = Path(folder) / "runs"
    threading.Thread(target=kill_the_node_of, args=(runs / RUN.name,), daemon=True).start()
    failed = cluster.run_all(
        progress((RUN,), runs), execute.Budget(None), print, nodes.address, cluster.Needs(1, 0)
    )
    nodes.shutdown()
    assert failed == [], failed


def kill_the_node_of(run):
    """Waits for the first checkpoint, then kills the daemon of the node that trains, as a power cut would."""
    while not RunDirectory(run).newest_frame():
        time.sleep(0.02)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if str(run).encode() in path.read_bytes() and b"fcritic.cli.child" in path.read_bytes():
            ancestor = int(path.parent.name)
            while name_of(ancestor) != "raylet":
                ancestor = int(facts_of(ancestor)[1])
            os.kill(ancestor, signal.SIGKILL)
            print("lost a node", flush=True)
            return


def name_of(number):
    return Path(f"/proc/{number}/comm").read_text().strip()


def facts_of(number):
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()


def test_an_own_agent_and_an_own_task_train_on_a_node(tmp_path):
    """Whose home knows no trusted code, in another folder than that of the names."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "mine.py").write_text(MINE)
    told = subprocess.run(
        [sys.executable, "-m", "fcritic", "experiment", "run", "mine.py", "--on", "ray", "--dir", "runs", "--json"],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "XDG_CONFIG_HOME": str(tmp_path / "home")},
        cwd=here,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    (run,) = (here / "runs").glob("*/")
    stored = RunDirectory.open_existing(run)
    assert stored.newest_frame() == 60 and stored.config["algorithm"] == "mine.py:Mine"


MINE = """
import dataclasses
import gymnasium
from fcritic.agents.td3 import TD3
from fcritic.study.comparison import Comparison
from fcritic.study.spec import Run

@dataclasses.dataclass(frozen=True)
class Mine(TD3):
    boldness: float = 0.5

def make():
    return gymnasium.make("Pendulum-v1", max_episode_steps=10)

SMALL = {"agent.actor_hidden": (8,), "agent.critic_hidden": (9,), "agent.batch_size": 5, "warmup": 20}
RUN = Run("mine.py:Mine", "mine.py:make", 1, 1, 60, options=tuple(SMALL.items()))
STUDY = Comparison("mine", "Does it run?", (RUN,))
"""


def test_a_node_has_names_of_code_from_the_folder_of_the_study(tmp_path, monkeypatch):
    """And its own list of what is trusted, for the process that it starts."""
    from fcritic.study.spec import Run

    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cluster, "resume", lambda path, _: os.getcwd())
    run = Run("mine.py:Mine", "mine.py:make", 1, 1, 60)
    (tmp_path / "marker").touch()
    told = cluster._train(str(tmp_path / "run"), str(tmp_path / "marker"), str(tmp_path / "here"), run)
    trusted = (tmp_path / "home" / "fcritic" / "trusted-tasks").read_text()
    assert told == str(tmp_path / "here") and {"mine.py:make", "mine.py:Mine"} == {
        line.rpartition("/")[2] for line in trusted.splitlines()
    }


def test_what_no_node_has_is_refused(tmp_path, monkeypatch):
    class Nodes:
        nodes = staticmethod(lambda: [{"Alive": True, "Resources": {"CPU": 2.0}}])

    cluster._require_room(Nodes, cluster.Needs(2, 0))
    with pytest.raises(UsageError, match="no node has 1 CPUs and 1 GPUs"):
        cluster._require_room(Nodes, cluster.Needs(1, 1))


def test_a_node_that_sees_another_folder_says_so(tmp_path):
    told = cluster._train(str(tmp_path / "run"), str(tmp_path / "no" / "marker"), str(tmp_path), RUN)
    assert "name a shared folder with --dir" in told and not (tmp_path / "run").exists()
