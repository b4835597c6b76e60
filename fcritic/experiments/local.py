"""Runs an experiment on this machine, one configuration after the other, each in a process of its own."""

from collections.abc import Callable
import signal
import subprocess
import sys
import time

from fcritic.envs import task_spec
from fcritic.errors import UsageError
from fcritic.experiments.progress import RunProgress
from fcritic.runs.directory import RunDirectory
from fcritic.training.console import duration
from fcritic.training.cost import DAY, estimated_seconds, require_agreed
from fcritic.training.loop import FREE_FIELDS

POLL = 0.2
"""Seconds between looks at a process."""
PATIENCE = 120.0
"""Seconds that a run which was asked to stop may take to save."""


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
    """Trains what is not finished until the budget is spent; names of runs that failed, with the reason.

    A run that is stopped by the end of the budget is saved and continues with the next call.
    """
    failed = []
    waiting = [each for each in todo if each.state != "finished"]
    for number, each in enumerate(waiting, start=1):
        if budget.left <= 0:
            say(f"the budget is spent; {len(waiting) - number + 1} runs are left, the same command continues")
            break
        say(f"{number} of {len(waiting)}: {each.run.name}, {each.frames_left:,} frames to go")
        started = time.monotonic()
        if fault := run_one(each, budget):
            failed.append(f"{each.run.name}: {fault}")
            say(f"{each.run.name} failed: {fault}")
            continue
        now = RunDirectory(each.path).newest_frame()
        spent = time.monotonic() - started
        rest = sum(other.frames_left for other in waiting[number:]) + max(0, each.run.steps - now)
        if now > each.frame:
            left = duration(rest * spent / (now - each.frame))
            say(f"  at frame {now:,} after {duration(spent)}; {left} left at this pace")
    return failed


def run_one(each: RunProgress, budget: Budget) -> str:
    """Trains one configuration in a process; what went wrong, or nothing."""
    config = each.run.config()
    with RunDirectory.create_or_open(each.path, config.to_json(), each.run.command(), FREE_FIELDS):
        pass  # it now holds its configuration, so `resume` is all that is needed
    command = [sys.executable, "-m", "fcritic.experiments.child", str(each.path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            _wait(process, budget)
        except BaseException:  # Ctrl-C: let it save
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
            raise
        told = (process.stderr.read() if process.stderr else "").strip().splitlines()
    # One that was asked to stop before it could listen is ended by the signal itself; it had nothing to save.
    if process.returncode in (0, 128 + signal.SIGTERM, -signal.SIGTERM):
        return ""
    return told[-1].removeprefix("fcritic: ") if told else f"exit code {process.returncode}"


def _wait(process: subprocess.Popen, budget: Budget) -> None:
    asked = None
    while process.poll() is None:
        if asked is None and budget.left <= 0:
            process.send_signal(signal.SIGTERM)
            asked = time.monotonic()
        if asked is not None and time.monotonic() - asked > PATIENCE:
            process.kill()
        time.sleep(POLL)


def parse_budget(text: str | None) -> float | None:
    """Seconds in ``25m``, ``1.5h``, ``90s`` or ``90``."""
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
