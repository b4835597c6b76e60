"""`fcritic doctor`: what this machine has, what is broken, what mends it."""

import dataclasses
import json

from fcritic.cli.parsing import parse
from fcritic.startup.backend import prepare
from fcritic.startup.doctor import Finding, examine


@dataclasses.dataclass(frozen=True)
class DoctorOptions:
    """Looks at versions, devices, disk and graphics; then trains, kills, continues and compares."""

    self_test: bool = True
    """Also train for half a minute, kill it, continue it and compare."""
    json: bool = False
    """Print JSON."""


def doctor(args: list[str]) -> int:
    """`fcritic doctor`: 0 if nothing that training needs is broken, else 1."""
    options = parse(DoctorOptions, args, "doctor")
    prepare()
    findings = examine(options.self_test, (lambda finding: None) if options.json else _show)
    healthy = all(finding.status != "broken" for finding in findings)
    if options.json:
        print(
            json.dumps({"healthy": healthy, "findings": [dataclasses.asdict(each) for each in findings]}, indent=2)
        )
    else:
        print("healthy" if healthy else "not healthy: mend what is broken")
    return 0 if healthy else 1


def _show(finding: Finding) -> None:
    print(f"{finding.status:<7} {finding.name}: {finding.found}", flush=True)
    if finding.repair:
        print(f"        -> {finding.repair}", flush=True)
