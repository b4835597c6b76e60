"""`fcritic bench NAME`: runs a benchmark of the checkout, or a file that is shaped like one."""

import json
from pathlib import Path
import sys
from typing import Any

from fcritic.cli.checkout import BESIDE, file_named, module_of, names_in
from fcritic.cli.parsing import parse
from fcritic.errors import UsageError, cannot_write

FOLDER = "benchmarks"


def bench(args: list[str]) -> None:
    """`fcritic bench NAME`; without a name, what there is."""
    if not args or args[0] in ("-h", "--help"):
        print("\n".join(["usage: fcritic bench NAME|FILE.py [OPTIONS]", "", *_listed()]))
        return
    word, rest = args[0], args[1:]
    path = file_named(word, FOLDER, "bench")
    if path.stem == "loop" and not {"-h", "--help"} & set(rest):  # it measures its own start, too
        _wake_device()
    module = module_of(path)
    for part in ("Options", "measure", "report_text"):
        if not hasattr(module, part):
            raise UsageError(f"{word} is not a benchmark: it has no {part}")
    options = parse(module.Options, rest, f"bench {word}")
    report = module.measure(options, _quiet if options.json else _say)
    text = json.dumps(report, indent=2)
    if options.out:
        _write(Path(options.out), text)
    print(text if options.json else module.report_text(report))


def _listed() -> list[str]:
    try:
        modules = {name: module_of(BESIDE / FOLDER / f"{name}.py") for name in names_in(FOLDER)}
    except UsageError as error:
        return [str(error)]
    return [f"  {name:<12} {(module.Options.__doc__ or '').strip()}" for name, module in modules.items()]


def _wake_device() -> None:
    """As `fcritic train` does it, before all that a training needs is imported."""
    from fcritic.startup.backend import prepare, wake_device

    prepare()
    wake_device()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _quiet(line: str) -> Any:
    pass


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise cannot_write("the report", path, error) from error
