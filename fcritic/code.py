"""Python code by its name, ``module:name`` or ``path/to/file.py:name``: finding it and running it.

It may be a task, an agent, a recipe or a study. Finding it runs none of it.
"""

import ast
import contextlib
import functools
import importlib
from importlib.machinery import ModuleSpec
import importlib.util
import os
from pathlib import Path
import pkgutil
import re
import sys
import sysconfig
import traceback
from types import ModuleType
from typing import Any, NamedTuple
import zlib

from fcritic.disk import open_plain
from fcritic.errors import UsageError, did_you_mean, listed

OF_FILE = "fcritic_code_"
"""Begins the names of modules that were files of code."""


class Code(NamedTuple):
    """A function, a class, a value or an environment's id in Python code."""

    name: str
    files: tuple[Path, ...]
    """What importing it would run, packages first; empty where that is no file."""
    flaw: str = ""
    """Why it cannot be used, for the user."""


MOST_BYTES = 2**20
"""Of a file that is looked through for names."""

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def require_name(name: str, what: str = "task") -> None:
    """Refuses what cannot be a name anywhere."""
    if "\0" in name or any("\ud800" <= sign <= "\udfff" for sign in name):
        raise UsageError(f"unknown {what} {name!r:.200}; a name is text without NUL")


def is_file(place: str) -> bool:
    """Whether the part of a name before its colon is a file; else it is a module."""
    return place.endswith(".py")


def code_named(named: str) -> Code:
    """Where it lies."""
    place, _, name = named.rpartition(":")
    return code_in_file(place, name) if is_file(place) else code_in_module(place, name)


def is_name(named: str) -> bool:
    """Whether it has the form of a name in Python, which ``module:Name-v0`` has not."""
    place, _, name = named.rpartition(":")
    return bool(place) and _NAME.fullmatch(name) is not None


def find(named: str) -> Any:
    """Returns what has this name, or None; runs the code."""
    if not is_name(named):
        return None
    place, _, name = named.rpartition(":")
    module = run_file(place) if is_file(place) else import_module(place)
    return held(module, name)


def located(named: str, folder: Path) -> str:
    """Returns the same name with the present path of its file, for a run that was moved together with its code.

    A relative path that leads nowhere from the working folder is tried from those above the run, nearest first.
    """
    found = re.fullmatch(r"(.+?\.py)(:.*)", named, re.DOTALL)
    if not found or os.path.isabs(found[1]) or os.path.isfile(found[1]):
        return named
    tried = (parent / found[1] for parent in Path(os.path.realpath(folder)).parents)
    place = next((path for path in tried if os.path.isfile(path)), None)
    return named if place is None else f"{os.path.realpath(place)}{found[2]}"


def held(module: ModuleType | None, qualname: str) -> Any:
    """What a module holds under a name with dots, None where it holds nothing."""
    return functools.reduce(lambda owner, name: getattr(owner, name, None), qualname.split("."), module)


def missing(named: str, kinds: tuple[type, ...] = ()) -> UsageError:
    """That a module or a file does not have what is named; names the closest callable or value of these kinds."""
    place, _, name = named.rpartition(":")
    module = run_file(place) if is_file(place) else import_module(place)
    fits = lambda value: callable(value) or isinstance(value, kinds)
    known = {each: value for each, value in vars(module).items() if fits(value) and not each.startswith("_")}
    own = [each for each, value in known.items() if getattr(value, "__module__", None) == module.__name__]
    return UsageError(f"{place} has no {name}{did_you_mean(name, known) or listed(own)}")


def unnamed(name: str, what: str) -> UsageError | None:
    """For a name that is that of a file alone: what is in it, by its text; runs none of it."""
    if not is_file(name):
        return None
    if not os.path.isfile(name):
        return UsageError(_no_file(Path(os.path.realpath(name))))
    known: list[str] = []
    with (
        contextlib.suppress(OSError, ValueError, SyntaxError, RecursionError, MemoryError),
        open_plain(os.path.realpath(name), MOST_BYTES) as file,
    ):
        body = ast.parse(file.readall()).body
        known = [each.name for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)]
        known = [each for each in known if not each.startswith("_")]
    likely = next((each for each in known if each.startswith("make")), [*known, "name"][0])
    return UsageError(f"{name} is a file; name the {what}: {name}:{likely}{listed(known)}")


def name_of(thing: Any) -> str | None:
    """The name by which another program finds a function or a class, None where it cannot."""
    module, qualname = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not (module and qualname) or module == "__main__" or held(sys.modules.get(module), qualname) is not thing:
        return None
    place = os.path.relpath(sys.modules[module].__file__ or "") if module.startswith(OF_FILE) else module
    return f"{place}:{qualname}"


def code_in_file(path: str, name: str) -> Code:
    """A function in a file."""
    file = Path(os.path.realpath(path))  # the path of a loop of links, where `Path.resolve` raises
    if not os.path.isfile(file):
        return Code(name, (), _no_file(file))
    return Code(name, (file,))


def code_in_module(module: str, name: str) -> Code:
    """What a module holds or registers."""
    first = module.partition(".")[0]
    if module == "__main__":
        return Code(name, (), "__main__ is the program itself; in Python, give the function as task=")
    if module in sys.modules and getattr(sys.modules[module], "__spec__", None) is None:
        return Code(name, ())  # made by this program, without a file
    if not all(part.isidentifier() for part in module.split(".")):
        return Code(name, (), f"{module!r:.60} is not a module that can be imported")
    try:
        specs = _specs(module)
    except (ImportError, ValueError, AttributeError, OSError) as error:  # of finders that others have put in
        return Code(name, (), f"the module {module} cannot be looked for: {told(error)}")
    if specs is None:
        return Code(name, (), _no_module(module))
    if _is_pythons_own(specs[0]):
        return Code(name, (), f"{first} is a part of Python, not an environment")
    return Code(name, tuple(Path(os.path.abspath(spec.origin)) for spec in specs if spec.has_location))


def import_module(name: str) -> ModuleType:
    """The module of this name, from Python's path or else from the working folder."""
    if flaw := code_in_module(name, "").flaw:
        raise UsageError(flaw)
    _reach_working_folder(name.partition(".")[0])
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise UsageError(f"importing {name} failed: {told(error)}") from error


def run_file(path: str) -> ModuleType:
    """The module of a file, run once until it changes; it may import others that lie beside it."""
    file = Path(os.path.realpath(path))
    if not os.path.isfile(file):
        raise UsageError(_no_file(file))
    return _run_file(file, file.stat().st_mtime_ns)


@functools.cache
def _run_file(path: Path, changed: int) -> ModuleType:
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = f"{OF_FILE}{path.stem}_{zlib.crc32(bytes(path)):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
    except UsageError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        raise UsageError(f"{path} failed: {told(error)}") from error
    return module


def told(error: BaseException) -> str:
    """An error and the line of code where it arose."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(last[0].filename).name}, line {last[0].lineno})" if last else ""
    return f"{type(error).__name__}: {' '.join(str(error).split()):.300}{where}"


def _specs(module: str) -> list[ModuleSpec] | None:
    """What would be imported for a module: the packages around it and itself; None where one is not there."""
    first, *rest = module.split(".")
    specs, full = [_first_spec(first)], first
    for part in rest:
        if specs[-1] is None:
            return None
        full = f"{full}.{part}"
        loaded = getattr(sys.modules.get(full), "__spec__", None)
        specs.append(loaded or _spec_in(list(specs[-1].submodule_search_locations or ()), full))
    return None if specs[-1] is None else specs


def _first_spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name) or _spec_in([os.getcwd()], name)
    except ValueError:  # a module that a program has made itself
        return None


def _spec_in(folders: list[str], name: str) -> ModuleSpec | None:
    """A module in one of these folders. Python's own search would import the package around it."""
    portions = []
    for folder in folders:
        importer = pkgutil.get_importer(folder)
        spec = None if importer is None else importer.find_spec(name)
        if spec is None:
            continue
        if spec.loader is not None:
            return spec
        portions += spec.submodule_search_locations or ()
    if not portions:
        return None
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = portions
    return spec


def _reach_working_folder(first: str) -> None:
    """Puts the working folder last on Python's path where it alone has a module."""
    if first not in sys.modules and importlib.util.find_spec(first) is None and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _is_pythons_own(spec: ModuleSpec) -> bool:
    if spec.origin in ("built-in", "frozen"):
        return True
    if not spec.has_location:
        return False
    file = Path(os.path.realpath(spec.origin))
    homes = {os.path.realpath(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")}
    installed = {"site-packages", "dist-packages"} & set(file.parts)  # they may lie inside
    return not installed and any(file.is_relative_to(home) for home in homes)


def _no_file(file: Path) -> str:
    return f"there is no file {file}; name it as path/to/file.py:name, from the folder you are in"


def _no_module(module: str) -> str:
    return (
        f"there is no module {module}; install it, set PYTHONPATH to its folder, "
        "or name the file: path/to/file.py:name"
    )
