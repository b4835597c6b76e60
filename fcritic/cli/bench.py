"""`fcritic bench NAME`: runs a benchmark of the checkout, or a file that is shaped like one.

Benchmarks are not installed: they lie beside the package, or where the user says, and nowhere else.
"""

import importlib
import json
from pathlib import Path
import sys
from types import ModuleType

import fcritic
from fcritic.cli.parsing import parse
from fcritic.errors import UsageError, did_you_mean, writing

BESIDE = Path(fcritic.__file__).parent.parent
"""The folder that the package lies in; in a checkout it holds the other folders, too."""


def bench(args: list[str]) -> None:
    """`fcritic bench NAME`; without a name, what there is."""
    if not args or args[0] in ("-h", "--help"):
        print("\n".join(["usage: fcritic bench NAME|FILE.py [OPTIONS]", "", *_listed()]))
        return
    word, rest = args[0], args[1:]
    path = _file_named(word)
    if path.stem == "loop" and not {"-h", "--help"} & set(rest):  # it measures its own start, too
        # As `fcritic train` does it, before all that a training needs is imported.
        from fcritic.startup.backend import prepare, wake_device

        prepare()
        wake_device()
    module = module_of(path)
    for part in ("Options", "measure", "report_text"):
        if not hasattr(module, part):
            raise UsageError(f"{word} is not a benchmark: it has no {part}")
    options = parse(module.Options, rest, f"bench {word}")
    report = module.measure(options, (lambda line: None) if options.json else _say)
    text = json.dumps(report, indent=2)
    if options.out:
        with writing("the report", options.out):
            Path(options.out).parent.mkdir(parents=True, exist_ok=True)
            Path(options.out).write_text(f"{text}\n", encoding="utf-8")
    print(text if options.json else module.report_text(report))


def _listed() -> list[str]:
    try:
        modules = {name: module_of(path) for name, path in _known().items()}
    except UsageError as error:
        return [str(error)]
    return [f"  {name:<12} {(module.Options.__doc__ or '').strip()}" for name, module in modules.items()]


def _known() -> dict[str, Path]:
    """The file of each benchmark by its name, or an error where this is not a checkout."""
    folder = BESIDE / "benchmarks"
    if not ((BESIDE / "pyproject.toml").is_file() and (folder / "__init__.py").is_file()):
        raise UsageError(
            "benchmarks are not installed; they are in the folder benchmarks/ of a checkout of fcritic: name a "
            "file of it, such as path/to/benchmarks/NAME.py"
        )
    return {path.stem: path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"}


def _file_named(word: str) -> Path:
    """The file that a word of the command line means: a benchmark of the checkout, or a path to a file."""
    if word.endswith(".py"):
        path = Path(word).resolve()
        if not path.is_file():
            raise UsageError(f"{word} is not a file")
        return path
    known = _known()
    if word not in known:
        hint = did_you_mean(word, known) or f"; known are {', '.join(known)}"
        raise UsageError(f"unknown bench '{word}'{hint}")
    return known[word]


def module_of(path: Path) -> ModuleType:
    """The module of a file, imported from the folder that its outermost package lies in."""
    top, name = path.parent, path.stem
    while (top / "__init__.py").is_file():
        top, name = top.parent, f"{top.name}.{name}"
    if str(top) not in sys.path[:1]:
        sys.path.insert(0, str(top))
    module = importlib.import_module(name)
    if Path(module.__file__ or "").resolve() != path.resolve():
        raise UsageError(f"{path} cannot be loaded beside {module.__file__}, which has its name; rename it")
    return module


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
