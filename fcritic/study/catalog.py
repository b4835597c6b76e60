"""Where studies are found: by name in the folder `studies` beside the package, or in a file that the user names.

The folder is not installed with the package. It is looked for in these two places alone, never in the current
folder, whose code nobody has asked to run.
"""

import ast
import importlib
from pathlib import Path
import re
import sys
from types import ModuleType

import fcritic
from fcritic.code import run_file
from fcritic.errors import UsageError, did_you_mean
from fcritic.study.spec import Study

BESIDE = Path(fcritic.__file__).resolve().parents[1] / "studies"
"""The studies of this checkout, with their results."""

_HAS_STUDY = re.compile(r"^STUDY\b", re.MULTILINE)


def folder_of(named: str | None = None) -> Path:
    """The folder of studies that the user has named, or the one beside the package."""
    if named is not None and not Path(named).is_dir():
        raise UsageError(f"--studies {named} is not a folder; name the folder `studies` of a checkout")
    if named is None and not BESIDE.is_dir():
        raise UsageError(
            "the studies are not installed with the package; clone its repository and name the folder there with "
            "--studies, or give a file of your own: fcritic experiment run FILE.py"
        )
    return Path(named).resolve() if named is not None else BESIDE


def studies(folder: Path, group: str | None = None) -> dict[str, Path]:
    """The file of each study by its name, in the order of their groups; imports nothing."""
    files = sorted((folder / group if group else folder).rglob("*.py"))
    found = [file for file in files if _HAS_STUDY.search(file.read_text(encoding="utf-8"))]
    return {file.stem.replace("_", "-"): file for file in found}


def purpose(file: Path) -> str:
    """The first line of what a study's file says of itself."""
    lines = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").splitlines()
    return lines[0] if lines else ""


def group_of(file: Path, folder: Path) -> str:
    """The group of a study: the folder below `studies` that it lies in."""
    return file.relative_to(folder).parts[0]


def load(name: str, named: str | None = None, group: str | None = None) -> tuple[Study, Path]:
    """A study and its file, by its name or by that of a file of the user's own; refuses one that could not run."""
    place, _, own = name.rpartition(":") if re.search(r"\.py:\w+$", name) else (name, "", "STUDY")
    if place.endswith(".py"):
        file = Path(place).resolve()
        if not file.is_file():
            raise UsageError(f"there is no file {place}; name a Python file with a STUDY, or a study of this list")
        module = _module_in(file, BESIDE) if file.is_relative_to(BESIDE) else run_file(str(file))
    else:
        folder = folder_of(named)
        known = studies(folder, group)
        if name not in known:
            hint = did_you_mean(name, known) or f"; known are {', '.join(known)}"
            raise UsageError(f"unknown experiment '{name}'{hint}")
        file = known[name]
        module = _module_in(file, folder)
    study = getattr(module, own, None)
    if not isinstance(study, Study):
        raise UsageError(f"{place} has no {own}; end it with {own} = Comparison(...) from fcritic.study.comparison")
    study.require_sound()
    return study, file


def _module_in(file: Path, folder: Path) -> ModuleType:
    """The module of a file below the folder of studies, which they know as the package `studies`."""
    package = sys.modules.get("studies")
    if package is None or str(folder) not in package.__path__:
        for name in [name for name in sys.modules if name == "studies" or name.startswith("studies.")]:
            del sys.modules[name]
        package = sys.modules["studies"] = ModuleType("studies")
        package.__path__ = [str(folder)]
    parts = file.relative_to(folder).with_suffix("").parts
    return importlib.import_module(".".join(["studies", *parts]))
