"""The pages of docs/ that map the paper, their tables, and what the names in them mean."""

import ast
import contextlib
import importlib
from pathlib import Path
import re

DOCS = Path(__file__).parent.parent / "docs"
PAPER = (DOCS / "paper.md").read_text(encoding="utf-8")


def _defined() -> dict[str, list[str]]:
    """The full names of all classes and functions of package and studies, and of modules, by their last part."""
    root, found = DOCS.parent, {}
    for path in sorted([*(root / "fcritic").rglob("*.py"), *(root / "studies").rglob("*.py")]):
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for name in (each for each in ast.parse(path.read_text(encoding="utf-8")).body if hasattr(each, "name")):
            found.setdefault(name.name, []).append(f"{module}.{name.name}")
        found.setdefault(module.rpartition(".")[2], []).append(module)
    return found


DEFINED = _defined()
FILE = re.compile(r"\.(csv|html|json|jsonl|md|png|py|safetensors|toml|txt|yml)$")


def names_in(text: str) -> list[str]:
    """The dotted names in backticks: in full, or from a class, function or module on, like `FAC.tau`."""
    dotted = {name for name in re.findall(r"`([A-Za-z_]\w*(?:\.\w+)+)`", text) if not FILE.search(name)}
    return sorted(name for name in dotted if name.partition(".")[0] in DEFINED)


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading that begins so, without its head."""
    sections = [part for part in PAPER.split("\n## ")[1:] if part.startswith(heading)]
    assert len(sections) == 1, f"docs/paper.md has {len(sections)} sections that begin with {heading!r}"
    rows = [line.strip().strip("|") for line in sections[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.split("|")] for row in rows[2:]]


def resolve(name: str) -> object:
    """What a dotted name means: a module, or what is found in one attribute by attribute."""
    first, _, rest = name.partition(".")
    if first in ("fcritic", "studies"):
        return _found(name)
    found = {}
    for home in DEFINED[first]:
        with contextlib.suppress(AttributeError, AssertionError):
            found[home] = _found(f"{home}.{rest}".rstrip("."))
    assert found, f"{name} does not exist in {' or '.join(DEFINED[first])}"
    assert len({id(each) for each in found.values()}) == 1, f"{name} means more than one thing: {', '.join(found)}"
    return next(iter(found.values()))


def _found(name: str) -> object:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            fields = getattr(found, "__dataclass_fields__", {})
            found = fields[part] if part in fields and not hasattr(found, part) else getattr(found, part)
        return found
    raise AssertionError(f"{name} is not a module")
