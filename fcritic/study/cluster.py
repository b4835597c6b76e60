"""Trains the runs of a study on a Ray cluster: a task per run, continued elsewhere when a node is lost.

A node gets the path of a run's folder, which holds its configuration, and resumes it.


Ray is an extra (`pip install 'fcritic[cluster]'`) and is imported nowhere else. Without an address a cluster is
started on this machine, bound to loopback, with a token that only this process and its workers know.
"""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import os
from pathlib import Path
import secrets
import socket
import time
from typing import Any

from fcritic.api.trust import trust_config
from fcritic.errors import UsageError
from fcritic.runs.directory import RunDirectory
from fcritic.study.execute import Budget, RunProgress, begin, resume
from fcritic.study.spec import Run
from fcritic.training.console import duration

RETRIES = 5
"""How often a run is continued on another node before it counts as failed."""
POLL = 1.0


@dataclasses.dataclass(frozen=True)
class Needs:
    """What one run takes of a node."""

    cpus: float = 1.0
    gpus: float = 0.0


def run_all(
    todo: list[RunProgress], budget: Budget, say: Callable[[str], None], address: str | None, needs: Needs
) -> list[str]:
    """As `execute.run_all`, but on a cluster: runs side by side, as many as the nodes have room for."""
    waiting = [each for each in todo if each.state != "finished"]
    ray = _connect(address, say)
    try:
        _require_room(ray, needs)
        task = ray.remote(num_cpus=needs.cpus, num_gpus=needs.gpus, max_retries=RETRIES)(_train)
        marker = _marker_in(waiting[0].path.parent if waiting else Path.cwd())
        for each in waiting:
            begin(each)
        places = str(marker), os.getcwd()
        jobs = {task.remote(str(each.path.resolve()), *places, each.run): each for each in waiting}
        return _watch(ray, jobs, budget, say)
    finally:
        ray.shutdown()


@contextlib.contextmanager
def worker(
    folder: Path, address: str | None, needs: Needs, say: Callable[[str], None]
) -> Iterator[tuple[Callable[[Path, Any], str], int]]:
    """A function that continues a run of this folder on a node until its budget is spent; how many fit at once."""
    ray = _connect(address, say)
    try:
        _require_room(ray, needs)
        task = ray.remote(num_cpus=needs.cpus, num_gpus=needs.gpus, max_retries=RETRIES)(_train)
        places = str(_marker_in(folder)), os.getcwd()

        def work(path: Path, budget: Any) -> str:
            config = RunDirectory(path).config
            job = task.remote(str(path.resolve()), *places, Run(config["recipe"], config["task"]))
            asked = False
            while not ray.wait([job], timeout=POLL)[0]:
                if not asked and budget.left <= 0:
                    ray.cancel(job)  # a KeyboardInterrupt there, which lets the run save
                    asked = True
            return "" if asked else _outcome(ray, job)

        total = ray.cluster_resources()
        shares = [(total.get("CPU", 0), needs.cpus), (total.get("GPU", 0), needs.gpus)]
        yield work, max(1, int(min(has / need for has, need in shares if need)))
    finally:
        ray.shutdown()


def _connect(address: str | None, say: Callable[[str], None]) -> Any:
    """Ray, connected. A cluster of our own is authenticated and listens on loopback only."""
    if address is None:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray's switch for loopback, on Linux too
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise UsageError("--on ray needs Ray; install it with: pip install 'fcritic[cluster]'") from error
    own = {"num_cpus": os.cpu_count(), "include_dashboard": False} if address is None else {"address": address}
    try:
        ray.init(log_to_driver=False, logging_level="warning", **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"no Ray cluster at {address}: {reason:.200}; start one or leave --address out") from error
    say(f"Ray {ray.__version__} with {len(ray.nodes())} nodes: {_resources(ray)}")
    return ray


def _resources(ray: Any) -> str:
    total = ray.cluster_resources()
    return f"{total.get('CPU', 0):g} CPUs, {total.get('GPU', 0):g} GPUs"


def _require_room(ray: Any, needs: Needs) -> None:
    """Refuses what no node could ever run: Ray would wait for one."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(node.get("CPU", 0) >= needs.cpus and node.get("GPU", 0) >= needs.gpus for node in nodes):
        raise UsageError(
            f"no node has {needs.cpus:g} CPUs and {needs.gpus:g} GPUs; lower --cpus or --gpus, or add a node"
        )


def _marker_in(folder: Path) -> Path:
    """A file that shows a node whether it sees the same folder."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / ".fcritic-shared"
    marker.touch()
    return marker


def _train(path: str, marker: str, here: str, run: Run) -> str:
    """On a node: continues the run in a folder from its last checkpoint; returns its fault, or nothing.

    `here` is the folder in which the user has named the study: names of own code begin there.
    """
    if not Path(marker).exists():
        return f"{socket.gethostname()} does not see {Path(marker).parent}; name a shared folder with --dir"
    if ":" in run.recipe + run.task:
        if Path(here).is_dir():
            os.chdir(here)
        trust_config(run.config())  # this node may have another home than the one where the study was named
    return resume(Path(path), Budget(None))


def _watch(ray: Any, jobs: dict[Any, RunProgress], budget: Budget, say: Callable[[str], None]) -> list[str]:
    """Waits for all tasks, or asks them to save and end when the budget is spent."""
    failed, started = [], time.monotonic()
    pending = list(jobs)
    while pending:
        done, pending = ray.wait(pending, timeout=min(POLL, max(budget.left, 0.01)))
        for job in done:
            if fault := _outcome(ray, job):
                failed.append(f"{jobs[job].run.name}: {fault}")
            outcome = f"failed: {fault}" if fault else f"done after {duration(time.monotonic() - started)}"
            say(f"{jobs[job].run.name} {outcome}; {len(pending)} left")
        if pending and budget.left <= 0:
            say(f"the budget is spent; {len(pending)} runs are saved, the same command continues")
            for job in pending:
                ray.cancel(job)  # a KeyboardInterrupt there, which lets the run save
            ray.wait(pending, num_returns=len(pending), timeout=120)
            break
    return failed


def _outcome(ray: Any, job: Any) -> str:
    try:
        return ray.get(job)
    except ray.exceptions.RayError as error:
        return " ".join(str(error).split())[:200]
