"""Files of a checkout that are not installed: beside the package, or where the user says, and nowhere else."""

import importlib
from pathlib import Path
import sys
from types import ModuleType

import fcritic
from fcritic.errors import UsageError, did_you_mean

BESIDE = Path(fcritic.__file__).parent.parent
"""The folder that the package lies in; in a checkout it holds the other folders, too."""


def names_in(folder: str) -> list[str]:
    """The files of a folder of the checkout that can be named, or an error where this is not a checkout."""
    if not ((BESIDE / "pyproject.toml").is_file() and (BESIDE / folder / "__init__.py").is_file()):
        raise UsageError(
            f"{folder} are not installed; they are in the folder {folder}/ of a checkout of fcritic: name a file "
            f"of it, such as path/to/{folder}/NAME.py"
        )
    return sorted(path.stem for path in (BESIDE / folder).glob("*.py") if path.stem != "__init__")


def file_named(word: str, folder: str, kind: str) -> Path:
    """The file that a word of the command line means: a name in a folder of the checkout, or a path to a file."""
    if word.endswith(".py"):
        path = Path(word).resolve()
        if not path.is_file():
            raise UsageError(f"{word} is not a file")
        return path
    names = names_in(folder)
    if word not in names:
        known = ", ".join(names)
        raise UsageError(f"unknown {kind} '{word}'{did_you_mean(word, names) or f'; known are {known}'}")
    return BESIDE / folder / f"{word}.py"


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
