"""Commands of `fcritic`, each in a process of its own that is forked from one in which everything is imported.

    python -m benchmarks.attacks.fork_server

A start of Python with all imports takes seconds, a fork a hundredth of one, and what is run is the same: the entry
point with its arguments, environment, folder and exit code. Nothing that starts threads has run before the fork.
Time, memory and processes of each are watched, and what goes beyond the limits is killed.
"""

import atexit
from collections.abc import Iterable, Iterator
import dataclasses
import gc
import importlib
import json
import os
from pathlib import Path
import pkgutil
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from typing import Any, NoReturn, Self

from benchmarks import own_environment

LIMITS = {"seconds": 20.0, "megabytes": 2048.0, "processes": 40.0}
"""What one command may take."""

PATIENCE = 10
"""So many times the seconds by the clock, however busy the machine is."""

LOOK_EVERY = 0.05

ENTRY = "fcritic.__main__:main"
"""What the command `fcritic` calls."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    """The exit code, or minus the number of the signal that ended it."""
    killed: str
    """What it had too much of when it was killed, or nothing."""
    seconds: float
    """By the clock, without those in which other processes kept it off the cores."""
    cpu_seconds: float
    megabytes: float
    """The most memory that it had at a time, with its child processes."""
    left: int
    """Processes of it that lived on."""
    imported: tuple[str, ...]
    """Those of the watched modules that it had imported."""
    said: str
    """Its standard output."""
    complained: str
    """Its standard error."""


class ForkServer:
    """The client's side: starts the server and has it run commands, one at a time."""

    def __init__(self, scratch: Path):
        self._scratch = scratch
        scratch.mkdir(parents=True, exist_ok=True)
        cache = {"JAX_COMPILATION_CACHE_DIR": scratch / "jax", "MPLCONFIGDIR": scratch / "matplotlib"}
        variables = {name: str(folder) for name, folder in cache.items()}
        variables |= {"JAX_PLATFORMS": "cpu", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.attacks.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=own_environment() | variables,
        )

    def run(
        self,
        args: Iterable[str],
        folder: Path,
        variables: dict[str, str],
        watched: Iterable[str] = (),
        entry: str = ENTRY,
        limits: dict[str, float] = LIMITS,
    ) -> Ended:
        """Runs one command to its end; `watched` are modules that it should not import."""
        streams = {name: str(self._scratch / name) for name in ("out", "err", "imported")}
        request = {"args": list(args), "folder": str(folder), "variables": variables, "entry": entry}
        request |= streams | {"watched": list(watched), "limits": limits}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the fork server has ended")
        text = lambda name: Path(streams[name]).read_bytes().decode(errors="backslashreplace")
        imported = tuple(text("imported").split())
        return Ended(**json.loads(line), imported=imported, said=text("out"), complained=text("err"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.stdin.close()
        self._process.wait()


def _serve() -> None:
    """Imports everything, then forks a child for each request."""
    _import_everything()
    gc.collect()
    gc.freeze()  # a collection in a child would copy the pages of all that is imported
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(request)
        print(json.dumps(_watch(child, request["limits"])), flush=True)


def _import_everything() -> None:
    import fcritic

    for module in pkgutil.walk_packages(fcritic.__path__, "fcritic."):
        if not module.name.endswith(("__main__", ".cluster")):  # Ray starts threads
            importlib.import_module(module.name)
    for name in ("dm_control.suite", "tensorboardX.event_file_writer", "tensorboardX.summary", "gymnasium.vector"):
        importlib.import_module(name)
    from jax._src import xla_bridge  # JAX has threads from then on, of which a fork has none

    if xla_bridge.backends_are_initialized():
        raise RuntimeError("an import has initialised JAX")


def _become(request: dict[str, Any]) -> NoReturn:
    """In the child: does what a shell does before it starts a command, then runs it to its exit."""
    os.setsid()
    for name, target, flags in (
        (os.devnull, 0, os.O_RDONLY),
        (request["out"], 1, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (request["err"], 2, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        opened = os.open(name, flags, 0o600)
        os.dup2(opened, target)
        os.close(opened)
    Path(request["imported"]).write_text("")
    os.environ |= request["variables"]
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]  # as `python -m fcritic` has it
    sys.argv = ["fcritic", *request["args"]]
    module, _, name = request["entry"].partition(":")
    code = 1
    try:
        getattr(importlib.import_module(module), name)()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    # As Python ends, but without taking a large process apart object by object.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    found = sorted(set(request["watched"]) & sys.modules.keys())
    Path(request["imported"]).write_text("\n".join(found))
    os._exit(code)


def _watch(child: int, limits: dict[str, float]) -> dict[str, Any]:
    """Waits for a child, kills what takes too much, and what is left of it in the end."""
    started, killed, most, waited = time.monotonic(), "", 0.0, 0.0
    ended = select.poll()
    ended.register(handle := os.pidfd_open(child), select.POLLIN)
    while not ended.poll(LOOK_EVERY * 1000):
        tree = list(_tree(child))
        megabytes = sum(map(_resident, tree))
        most, waited = max(most, megabytes), max(waited, *map(_waited, tree))
        elapsed = time.monotonic() - started
        taken = {
            "seconds": max(elapsed - waited, elapsed / PATIENCE),
            "megabytes": megabytes,
            "processes": len(tree),
        }
        over = [name for name, most_of_it in limits.items() if taken[name] > most_of_it]
        if over and not killed:
            killed = over[0]
            _end(child)
    os.close(handle)
    _, status, used = os.wait4(child, 0)
    seconds = time.monotonic() - started - waited
    return {
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "code": os.waitstatus_to_exitcode(status),
        "killed": killed,
        "seconds": round(seconds, 2),
        "megabytes": round(max(most, used.ru_maxrss / 1024), 1),
        "left": 0 if killed else _end(child),
    }


def _end(session: int) -> int:
    """Kills the processes of a session; how many there were."""
    found = [int(name) for name in os.listdir("/proc") if name.isdecimal() and _session(int(name)) == session]
    for process in found:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return len(found)


def _session(process: int) -> int:
    try:
        state, _, _, session = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return -1
    return -1 if state == "Z" else int(session)


def _tree(process: int) -> Iterator[int]:
    """A process and all that it has started."""
    yield process
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _tree(int(child))


def _waited(process: int) -> float:
    """The most seconds for which a thread of a process could have run but had no core."""
    try:
        threads = Path(f"/proc/{process}/task").iterdir()
        return max(int((each / "schedstat").read_text().split()[1]) for each in threads) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _resident(process: int) -> float:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, IndexError):
        return 0.0


if __name__ == "__main__":
    _serve()
