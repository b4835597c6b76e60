"""An experiment on a real Ray cluster of two nodes, of which one is killed in the middle."""

import dataclasses
import os
import threading
import time

import pytest

from fcritic.errors import UsageError
from fcritic.experiments import cluster, local
from fcritic.experiments.catalog import EXPERIMENTS
from fcritic.experiments.progress import progress
from fcritic.experiments.spec import Experiment
from fcritic.fingerprint import fingerprint
from fcritic.runs import RunDirectory

ray = pytest.importorskip("ray", reason="Ray is an extra: pip install 'fcritic[cluster]'")

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ab" * 32}
RUN = EXPERIMENTS["quick"].runs[0]


@pytest.fixture
def experiment(monkeypatch):
    """Two runs that last a while, known by name as the catalogue's are."""
    options = (*RUN.options, ("eval_every", 10**6), ("log_every", 10**5))
    runs = tuple(dataclasses.replace(RUN, label=label, steps=12_000, options=options) for label in ("one", "two"))
    made = Experiment("for-a-test", "two runs", runs)
    monkeypatch.setitem(EXPERIMENTS, made.name, made)
    return made


def test_a_node_is_lost_and_its_run_goes_on_elsewhere(tmp_path):
    """The same end, bit for bit, as on this machine without a cluster."""
    environment = {"PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    program = f"import test_cluster; test_cluster.lose_a_node({str(tmp_path)!r})"
    import subprocess
    import sys

    told = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | LOOPBACK | environment | {"RAY_worker_niceness": "0"},
        cwd=os.path.dirname(__file__),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    assert "lost a node" in told.stdout
    (todo,) = progress(Experiment("x", "y", (RUN,)), tmp_path / "here")
    assert local.run_one(todo, local.Budget(None)) == ""
    assert fingerprint(tmp_path / "runs" / RUN.name) == fingerprint(tmp_path / "here" / RUN.name)


def lose_a_node(folder):
    """In a process of its own, since Ray's settings are for a whole process."""
    from pathlib import Path

    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    victim = nodes.add_node(num_cpus=1)
    runs = Path(folder) / "runs"

    def kill_when_begun():
        while not RunDirectory(runs / RUN.name).newest_frame():
            time.sleep(0.05)
        nodes.add_node(num_cpus=1)
        nodes.remove_node(victim, allow_graceful=False)
        print("lost a node", flush=True)

    threading.Thread(target=kill_when_begun, daemon=True).start()
    todo = progress(Experiment("x", "y", (RUN,)), runs)
    failed = cluster.run_all(todo, local.Budget(None), print, nodes.address, cluster.Needs(1, 0))
    nodes.shutdown()
    assert failed == [], failed


def test_what_no_node_has_is_refused(tmp_path, monkeypatch):
    class Nodes:
        nodes = staticmethod(lambda: [{"Alive": True, "Resources": {"CPU": 2.0}}])

    cluster._require_room(Nodes, cluster.Needs(2, 0))
    with pytest.raises(UsageError, match="no node has 1 CPUs and 1 GPUs"):
        cluster._require_room(Nodes, cluster.Needs(1, 1))


def test_a_node_that_sees_another_folder_says_so(tmp_path):
    told = cluster._train("quick", RUN.name, 0, str(tmp_path / "run"), str(tmp_path / "no" / "marker"))
    assert "name a shared folder with --dir" in told and not (tmp_path / "run").exists()
