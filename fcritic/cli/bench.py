"""`fcritic bench NAME`: measurements on this machine."""

from collections.abc import Callable
import json
from pathlib import Path
import sys
from typing import Any

from fcritic.bench import loop as loop_bench
from fcritic.bench import peers as peers_bench
from fcritic.bench import reliability as reliability_bench
from fcritic.bench import update as update_bench
from fcritic.cli.parsing import parse
from fcritic.errors import UsageError, cannot_write, did_you_mean

BENCHES = {
    "peers": (peers_bench.PeersOptions, peers_bench.measure, peers_bench.report_text),
    "update": (update_bench.UpdateOptions, update_bench.measure, update_bench.report_text),
    "loop": (loop_bench.LoopOptions, loop_bench.measure, loop_bench.report_text),
    "reliability": (reliability_bench.ReliabilityOptions, reliability_bench.measure, reliability_bench.report_text),
}
"""Name -> options, measurement, report for a person."""


def bench(args: list[str]) -> None:
    """`fcritic bench NAME`; without a name, what there is."""
    if not args or args[0] in ("-h", "--help"):
        lines = [f"  {name:<12} {(options.__doc__ or '').strip()}" for name, (options, _, _) in BENCHES.items()]
        print("\n".join(["usage: fcritic bench NAME [OPTIONS]", "", *lines]))
        return
    name, rest = args[0], args[1:]
    if name not in BENCHES:
        known = ", ".join(BENCHES)
        raise UsageError(f"unknown bench '{name}'{did_you_mean(name, BENCHES) or f'; known are {known}'}")
    kind, measure, report_text = BENCHES[name]
    options = parse(kind, rest, f"bench {name}")
    report = measure(options, _quiet if options.json else _say)
    text = json.dumps(report, indent=2)
    if options.out:
        _write(Path(options.out), text)
    print(text if options.json else report_text(report))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_quiet: Callable[[str], Any] = lambda line: None


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise cannot_write("the report", path, error) from error
