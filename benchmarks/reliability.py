"""`fcritic bench reliability`: attacks on this very installation, and how many it withstood."""

from collections.abc import Callable
import dataclasses
import functools
import json
from pathlib import Path
import time
from typing import Any

from benchmarks.attacks import command_lines, determinism, disks, environments, forgeries, memory, stops, strangers
from fcritic.errors import UsageError, cannot_write, did_you_mean
from fcritic.runs.versions import versions
from fcritic.startup import kills
from fcritic.startup.backend import prepare

Check = Callable[[int, Callable[[str], None]], dict]

CHECKS: dict[str, tuple[Check, int, int, str]] = {
    "stops": (stops.check, 20, 1, "random stop points per recipe, continued bit for bit"),
    "kills": (kills.check, 200, 3, "kills -9 at random moments, each continued, to the same end"),
    "forgeries": (forgeries.check, 10_000, 100, "mutated runs and a hostile corpus, always one clear error"),
    "strangers": (
        strangers.check,
        100_000,
        60,
        "commands on a stranger's run, nothing outside of its folder changes",
    ),
    "disks": (disks.check, 1000, 3, "disk full, read-only or broken at every call that changes it"),
    "memory": (memory.check, 100, 5, "trainings in one process, and a long one, without growth"),
    "determinism": (determinism.check, 2, 2, "fresh processes per recipe with the same seed, the same hashes"),
    "environments": (environments.check, 200, 20, "sick environments, and random episodes in every autoreset mode"),
    "command-lines": (command_lines.check, 5000, 100, "random command lines, exit code 0 or 2"),
}
"""Name -> check, how often in full, how often with --quick, what it shows."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Is anything ever lost? Stops, kills, forged files, failing disks, sick environments; takes hours."""

    only: tuple[str, ...] = ()
    """Some of: stops kills forgeries strangers disks memory determinism environments command-lines."""
    count: int | None = None
    """How often each is tried, instead of its own number."""
    quick: bool = False
    """Try each a few times only."""
    out: str | None = None
    """File to keep the report in; results of checks that are not run again stay in it."""
    finished: str | None = None
    """File of the commands of `strangers` that are done; a check that was stopped goes on behind them."""
    json: bool = False
    """Print JSON."""


def measure(options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    """The report; each check is added to the file as soon as it is done."""
    for name in options.only:
        if name not in CHECKS:
            hint = did_you_mean(name, CHECKS) or f"; known are {', '.join(CHECKS)}"
            raise UsageError(f"unknown check '{name}'{hint}")
    if options.count is not None and options.count < 1:
        raise UsageError(f"--count must be at least 1, not {options.count}")
    prepare()
    report: dict[str, Any] = {"versions": versions(), "checks": _kept(options.out)}
    for name in options.only or CHECKS:
        check, full, few, what = CHECKS[name]
        if name == "strangers" and options.finished:
            check = functools.partial(strangers.check, finished=Path(options.finished))
        started = time.monotonic()
        say(f"{name}: {what}")
        result = check(options.count or (few if options.quick else full), say)
        result |= {"what": what, "seconds": round(time.monotonic() - started, 1), "commit": versions().get("git")}
        report["checks"][name] = result
        report["passed"] = all(each["passed"] == each["of"] for each in report["checks"].values())
        if options.out:
            _keep(Path(options.out), report)
    return report


def _kept(out: str | None) -> dict[str, Any]:
    """The checks of an earlier report in the same place."""
    try:
        report = json.loads(Path(out).read_text(encoding="utf-8")) if out else {}
        return {name: result for name, result in report.get("checks", {}).items() if name in CHECKS}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"{out} is no report of this bench; choose another --out") from error


def _keep(path: Path, report: dict) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise cannot_write("the report", path, error) from error


def report_text(report: dict) -> str:
    """The report for a person: one line per check."""
    lines = [
        f"{name:<14} {result['passed']:>6} of {result['of']:<6} {result['what']} ({result['seconds']:.0f} s)"
        for name, result in report["checks"].items()
    ]
    lost = [name for name, result in report["checks"].items() if result["passed"] != result["of"]]
    return "\n".join([*lines, f"not withstood: {', '.join(lost)}" if lost else "all withstood"])
