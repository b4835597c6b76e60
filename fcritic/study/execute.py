"""How far the trainings of a study are, and what trains the rest: here, one process after the other."""

from collections.abc import Callable
import dataclasses
from pathlib import Path
import signal
import subprocess
import sys
import time
from typing import Literal

from fcritic.api.trust import trust_config
from fcritic.envs import task_spec
from fcritic.errors import UsageError
from fcritic.runs.directory import RunDirectory
from fcritic.runs.journal import last_line
from fcritic.study.spec import Run
from fcritic.training.console import duration
from fcritic.training.cost import DAY, estimated_seconds, require_agreed
from fcritic.training.loop import FREE_FIELDS

POLL = 0.2
"""Seconds between looks at a process."""
SILENCE = 20.0
"""Seconds between two lines on a training."""
PATIENCE = 120.0
"""Seconds that a run which was asked to stop may take to save."""


State = Literal["waiting", "begun", "finished"]


@dataclasses.dataclass(frozen=True)
class RunProgress:
    """One run and how far it is, from its folder alone."""

    run: Run
    path: Path
    frame: int
    """Of its newest checkpoint."""

    @property
    def state(self) -> State:
        """Whether it still has to be trained."""
        if self.frame >= self.run.steps:
            return "finished"
        return "begun" if self.frame else "waiting"

    @property
    def frames_left(self) -> int:
        """Frames until it is finished."""
        return max(0, self.run.steps - self.frame)

    def to_json(self) -> dict[str, str | int]:
        """Plain values."""
        head = {"run": self.run.name, "method": self.run.method, "panel": self.run.panel, "state": self.state}
        return head | {"frame": self.frame, "steps": self.run.steps, "command": self.run.command()}


def progress(runs: tuple[Run, ...], folder: Path, only: tuple[str, ...] = ()) -> list[RunProgress]:
    """All runs, or those that have one of the words in `only` as method, as task or in their name."""
    found = []
    for run in runs:
        if not only or any(word in (run.method, run.task) or word in run.name for word in only):
            path = folder / run.name
            found.append(RunProgress(run, path, RunDirectory(path).newest_frame()))
    return found


class Budget:
    """Time that may be spent, counted from now."""

    def __init__(self, seconds: float | None):
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds, perhaps infinitely many."""
        return float("inf") if self._end is None else self._end - time.monotonic()


def require_agreed_runs(todo: list[RunProgress], budget: Budget, yes: bool) -> None:
    """Refuses runs that are estimated to take more than a day together, unless a budget or their user allows it."""
    seconds = 0.0
    for each in todo if budget.left > DAY and not yes else ():
        config = each.run.config()
        begun = each.frame // config.frames_per_iteration
        seconds += estimated_seconds(config, task_spec(config.task), begun) or 0.0
        require_agreed(seconds, f"{each.run.name}, with the runs before it,", yes)


def run_all(todo: list[RunProgress], budget: Budget, say: Callable[[str], None]) -> list[str]:
    """Trains the unfinished runs until the budget is spent; returns the names of runs that failed, with the reason.

    A run that the end of the budget stops is saved and continues with the next call.
    """
    failed = []
    waiting = [each for each in todo if each.state != "finished"]
    for number, each in enumerate(waiting, start=1):
        if budget.left <= 0:
            say(f"the budget is spent; {len(waiting) - number + 1} runs are left, the same command continues")
            break
        say(f"{number} of {len(waiting)}: {each.run.name}, {each.frames_left:,} frames to go")
        started = time.monotonic()
        if fault := run_one(each, budget, say):
            failed.append(f"{each.run.name}: {fault}")
            say(f"{each.run.name} failed: {fault}")
            continue
        now = RunDirectory(each.path).newest_frame()
        spent = time.monotonic() - started
        rest = sum(other.frames_left for other in waiting[number:]) + max(0, each.run.steps - now)
        if now > each.frame:
            left = f"; {duration(rest * spent / (now - each.frame))} left at this pace" if rest else ""
            say(f"  at frame {now:,} after {duration(spent)}{left}")
    return failed


def begin(each: RunProgress) -> None:
    """Writes the run's configuration into its folder, so that `resume` is all that it needs."""
    made = each.run.config()
    trust_config(made)  # the user named the study that names its code
    config = made.to_json()
    RunDirectory.create_or_open(each.path, config, each.run.command(), FREE_FIELDS).close()


def run_one(each: RunProgress, budget: Budget, say: Callable[[str], None]) -> str:
    """Trains one configuration in a process, and says now and then how far it is; returns its fault, or nothing."""
    begin(each)
    return resume(each.path, budget, _Teller(each, say).look)


class _Teller:
    """Says how far a training is that runs in another process, by its journal."""

    def __init__(self, each: RunProgress, say: Callable[[str], None]):
        config = each.run.config()
        self._learns = config.warmup_iterations * config.frames_per_iteration
        self._steps, self._journal, self._say = each.run.steps, RunDirectory(each.path).journal, say
        self._begun = self._spoken = time.monotonic()
        self._learned: tuple[float, int] | None = None

    def look(self) -> None:
        """A line, unless the last one is recent."""
        now = time.monotonic()
        if now < self._spoken + SILENCE:
            return
        self._spoken = now
        frame = (last_line(self._journal) or {"env_steps": 0})["env_steps"]
        line = f"  {frame:,} of {self._steps:,} frames after {duration(now - self._begun)}"
        if self._learned is None or frame < self._learned[1]:
            self._learned = (now, frame) if frame > self._learns else None  # warm-up is no measure of what follows
        elif frame > self._learned[1]:
            line += (
                f"; {duration((self._steps - frame) * (now - self._learned[0]) / (frame - self._learned[1]))} left"
            )
        self._say(line)


def resume(path: Path, budget: Budget, look: Callable[[], None] = lambda: None) -> str:
    """Continues the run in a folder, in a process that ends with this one; returns its fault, or nothing.

    `look` is called all the while.
    """
    command = [sys.executable, "-m", "fcritic.cli.child", str(path)]
    # In a session of its own: Ctrl-C reaches this process alone, which asks the other one, once, to save and stop.
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        try:
            _wait(process, budget, look)
        except BaseException:  # Ctrl-C: let it save
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
            raise
        told = (process.stderr.read() if process.stderr else "").strip().splitlines()
    # A process that was asked to stop before it could listen is ended by the signal itself; it had nothing to save.
    if process.returncode in (0, 128 + signal.SIGTERM, -signal.SIGTERM):
        return ""
    return told[-1].removeprefix("fcritic: ") if told else f"exit code {process.returncode}"


def _wait(process: subprocess.Popen, budget: Budget, look: Callable[[], None]) -> None:
    asked = None
    while process.poll() is None:
        look()
        if asked is None and budget.left <= 0:
            process.send_signal(signal.SIGTERM)
            asked = time.monotonic()
        if asked is not None and time.monotonic() - asked > PATIENCE:
            process.kill()
        time.sleep(POLL)


def parse_budget(text: str | None) -> float | None:
    """The seconds in ``25m``, ``1.5h``, ``90s`` or ``90``."""
    if text is None:
        return None
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        seconds = float(number) * units[unit]
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"--budget must be a time such as 25m, 1.5h or 90s, not '{text}'")
    return seconds
