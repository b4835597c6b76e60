"""The pages of docs/ that map the paper, their tables, and what the names in them mean."""

import importlib
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
PAPER = (DOCS / "paper.md").read_text(encoding="utf-8")
DESIGN = (DOCS / "design.md").read_text(encoding="utf-8")
BASELINES = (DOCS / "baselines.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading that begins so, without its head."""
    sections = [part for part in PAPER.split("\n## ")[1:] if part.startswith(heading)]
    assert len(sections) == 1, f"docs/paper.md has {len(sections)} sections that begin with {heading!r}"
    rows = [line.strip().strip("|") for line in sections[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.split("|")] for row in rows[2:]]


def resolve(name: str) -> object:
    """What a dotted name means: a module, or what is found in one attribute by attribute."""
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
    raise AssertionError(f"{name} is no module")
