"""The page of options, from the docstrings of the fields that they are."""

import ast
from collections.abc import Iterator
import dataclasses
import inspect
import itertools
import textwrap
from typing import Any

from fcritic.agents.base import AbstractAgent
from fcritic.agents.recipes import ALGORITHMS, RECIPES
from fcritic.config import TYPED, TrainConfig


def sections() -> Iterator[tuple[str, type, str]]:
    """Yields heading, dataclass, and the prefix of its options: the common ones, then those of each algorithm."""
    yield "Training", TrainConfig, ""
    yield "Every agent", AbstractAgent, ""
    kinds = [kind for algorithm in ALGORITHMS.values() for kind in reversed(algorithm.__mro__)]
    for kind in dict.fromkeys(kinds):
        if not dataclasses.is_dataclass(kind) or kind is AbstractAgent:
            continue
        names = [name for name, algorithm in ALGORITHMS.items() if issubclass(algorithm, kind)]
        heading = kind.__name__ if kind in ALGORITHMS.values() else " and ".join(names)
        yield heading, kind, ""
        for name, group in _groups(kind):
            yield f"{heading}: {name}", group, f"{name}."


def _groups(kind: type) -> Iterator[tuple[str, type]]:
    """Yields name and dataclass of each group of options that a dataclass declares itself."""
    for field in dataclasses.fields(kind):
        if field.name in inspect.get_annotations(kind) and dataclasses.is_dataclass(field.default):
            yield field.name, type(field.default)


def meanings(kind: type) -> dict[str, str]:
    """Returns the docstrings of the fields that a dataclass declares itself, by name."""
    (body,) = [node.body for node in ast.parse(textwrap.dedent(inspect.getsource(kind))).body]
    found = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[field.target.id] = " ".join(text.value.value.split())
    return found


def rows(kind: type, prefix: str) -> Iterator[tuple[str, str, str]]:
    """Yields option, default and meaning of each field that a dataclass declares itself."""
    known = meanings(kind)
    own = inspect.get_annotations(kind)
    for field in dataclasses.fields(kind):
        if field.name in own and field.name != "agent" and not dataclasses.is_dataclass(field.default):
            name = TYPED.get(field.name, field.name)
            yield f"--{prefix}{name}".replace("_", "-"), in_words(field.default), known[field.name]


def in_words(value: Any) -> str:
    """Returns a default as it is typed on a command line."""
    if value is dataclasses.MISSING:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return "none" if value is None else f"{value}"


def page() -> str:
    """Returns the page in Markdown."""
    parts = [
        "# Options",
        "Every option of `fcritic train`, from the docstrings of the fields in the sources. Defaults are those of "
        "the algorithm; the [recipes](#recipes) change some. On a CPU `fcritic train` alone is `make train`.",
    ]
    for heading, kind, prefix in sections():
        lines = ["| option | default | meaning |", "|---|---|---|"]
        for option, default, meaning in rows(kind, prefix):
            lines.append(f"| `{option}` | {default} | {escaped(meaning)} |")
        parts += [f"## {heading}", "\n".join(lines)]
    lines = ["| recipe | meaning | options that differ from its algorithm's defaults |", "|---|---|---|"]
    for name, (agent, meaning) in RECIPES.items():
        lines.append(f"| `{name}` | {escaped(meaning)} | {', '.join(changes(agent, ''))} |")
    return "\n\n".join([*parts, "## Recipes", "\n".join(lines)]) + "\n"


def changes(options: Any, prefix: str) -> Iterator[str]:
    """Yields the options that differ from the defaults of their dataclass."""
    default = type(options)()
    for name in (field.name for field in dataclasses.fields(options)):
        value = getattr(options, name)
        if value == getattr(default, name):
            continue
        if dataclasses.is_dataclass(value):
            yield from changes(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield f"`--{prefix}{'' if value else 'no-'}{name}`".replace("_", "-")
        else:
            yield f"`--{prefix}{name.replace('_', '-')} {in_words(value)}`"


def escaped(text: str) -> str:
    """Returns text that may stand in a cell."""
    return text.replace("|", "\\|").replace("<", "&lt;")
