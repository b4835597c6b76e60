"""`fcritic bench NAME`: measurements on this machine."""

from collections.abc import Callable
from importlib import import_module
import json
from pathlib import Path
import sys
from typing import Any

from fcritic.cli.parsing import parse
from fcritic.errors import UsageError, cannot_write, did_you_mean

BENCHES = ("peers", "update", "loop", "reliability")
"""Each is a module of `fcritic.bench`, with options, a measurement and a report for a person."""


def bench(args: list[str]) -> None:
    """`fcritic bench NAME`; without a name, what there is."""
    if not args or args[0] in ("-h", "--help"):
        lines = [f"  {name:<12} {(_parts(name)[0].__doc__ or '').strip()}" for name in BENCHES]
        print("\n".join(["usage: fcritic bench NAME [OPTIONS]", "", *lines]))
        return
    name, rest = args[0], args[1:]
    if name not in BENCHES:
        known = ", ".join(BENCHES)
        raise UsageError(f"unknown bench '{name}'{did_you_mean(name, BENCHES) or f'; known are {known}'}")
    if name == "loop" and not {"-h", "--help"} & set(rest):  # it measures its own start, too
        _wake_device()
    kind, measure, report_text = _parts(name)
    options = parse(kind, rest, f"bench {name}")
    report = measure(options, _quiet if options.json else _say)
    text = json.dumps(report, indent=2)
    if options.out:
        _write(Path(options.out), text)
    print(text if options.json else report_text(report))


def _parts(name: str) -> tuple[type, Callable, Callable]:
    """Options, measurement and report. Other benches are not imported: the start of this one would take longer."""
    module = import_module(f"fcritic.bench.{name}")
    return getattr(module, f"{name.capitalize()}Options"), module.measure, module.report_text


def _wake_device() -> None:
    """As `fcritic train` does it, before all that a training needs is imported."""
    from fcritic.startup.backend import prepare, wake_device

    prepare()
    wake_device()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_quiet: Callable[[str], Any] = lambda line: None


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise cannot_write("the report", path, error) from error
