"""Options from dataclasses; anything that cannot be parsed becomes one line."""

from collections.abc import Callable, Iterator
import contextlib
import contextvars
import dataclasses
from decimal import Decimal
import difflib
from functools import partial
import io
import itertools
import re
from typing import Any, TypeVar, get_args, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructTypeInfo

from fcritic.errors import TENSORBOARD, UsageError, option_hint

Options = TypeVar("Options")

_WHOLE = re.compile(r"[+-]?\d{1,9}(_\d{3})*(\.\d{0,9})?([eE][+]?\d{1,2})?")
_FRAME = re.compile(r"[\u2500-\u257f]|\x1b\[[0-9;]*m|^ *-+ *$")  # dashes where the terminal is not UTF-8
_REPHRASED = {
    r"Missing from (fcritic \S+): (\S+) .*": r"\2 is missing: \1 \2",
    r"Missing value for argument '(\S+)'\. Expected 1 values": r"\1 needs a value",
    r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)": r"\1 must be a whole number, not \2",
    r"Error parsing (\S+): no type matching INT\|\{(.+)\} .*\[(.*)\]": r"\1 must be a whole number or \2, not \3",
    r"Error parsing (\S+): no type matching .*INT.* from \[(.*)\]": r"\1 must be a whole number, not \2",
    r"Error parsing (\S+): no type matching .*FLOAT.* from \[(.*)\]": r"\1 must be a number, not \2",
    r"Error parsing (\S+): could not convert string to float: (.*)": r"\1 must be a number, not \2",
    r"Error parsing (\S+): Could not find valid parse for arguments: \[(.*)\]": r"\1 cannot be \2",
    r"invalid choice (.*) for argument '(\S+)'\. Expected one of \((.*)\)": r"\2 must be one of \3, not \1",
    r"Unrecognized options: (.*)": r"unexpected argument \1",
}
"""The parser's messages in our words; any other is passed on unchanged."""


def parse(kind: type[Options], args: list[str], command: str, default: Options | None = None) -> Options:
    """The options of a command; `--help` prints and leaves, a mistake raises `UsageError`."""
    if stray := [arg for arg in args if arg.startswith("--") and arg != "--help"]:
        known = option_names(kind if default is None else default)
        _require_known(stray, known, command)
    complaint = io.StringIO()
    found = _options(kind if default is None else default)
    args = _whole_numbers(
        args, {f"--{group}{name}" for group, name, _, hint in found if int in (hint, *get_args(hint))}
    )
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(kind, args=args, prog=f"fcritic {command}", default=default, registry=_PARAGRAPHS)
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
        line = _one_line(complaint.getvalue())
        hint = _with_its_option(line, option_names(kind if default is None else default))
        raise UsageError(line + (hint or f"; see fcritic {command} --help")) from None


_PARAGRAPHS = ConstructorRegistry()
"""Dataclasses as tyro reads them, but for their help, in which it keeps the line breaks of the source."""
_plain = contextvars.ContextVar("_plain", default=False)


@_PARAGRAPHS.struct_rule
def _in_paragraphs(info: StructTypeInfo) -> Any:
    if _plain.get() or not dataclasses.is_dataclass(info.type):
        return None
    token = _plain.set(True)
    try:
        found = ConstructorRegistry.get_struct_spec(info)
    finally:
        _plain.reset(token)
    if not isinstance(found, StructConstructorSpec):
        return found
    joined = (dataclasses.replace(each, helptext=partial(_joined, each.helptext)) for each in found.fields)
    return dataclasses.replace(found, fields=tuple(joined))


def _joined(text: str | Callable[[], str | None] | None) -> str | None:
    """The lines of each paragraph as one."""
    text = text() if callable(text) else text
    return text and "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text))


def option_names(options: object) -> set[str]:
    """Returns every option that a dataclass (or an instance of one) offers, as users type it."""
    names: set[str] = set()
    for group, name, value, _ in _options(options):
        names |= {f"--{group}{name}", f"--{group}no-{name}"} if isinstance(value, bool) else {f"--{group}{name}"}
    return names


def _options(options: object, group: str = "") -> Iterator[tuple[str, str, Any, Any]]:
    """Yields group, name, default and type of every option, both names as users type them."""
    hints = get_type_hints(options if isinstance(options, type) else type(options), include_extras=True)
    for field in dataclasses.fields(options):
        hint, value = hints[field.name], getattr(options, field.name, field.default)
        given = [getattr(extra, "name", None) for extra in get_args(hint)[1:]]
        name = next(filter(None, given), field.name).replace("_", "-")
        if dataclasses.is_dataclass(value):
            yield from _options(value, group if "" in given else f"{group}{name}.")
        else:
            yield group, name, value, hint


def _whole_numbers(args: list[str], options: set[str]) -> list[str]:
    """The same words, with 1e6 and 1_000_000 as 1000000 where an option wants a whole number."""
    found, option = [], ""
    for arg in args:
        name, equals, value = arg.partition("=") if arg.startswith("--") else (option, "", arg)
        name = name.replace("_", "-")
        if name in options and _WHOLE.fullmatch(value) and float(value).is_integer():
            value = str(int(Decimal(value)))
            arg = f"{name}={value}" if equals else value
        found.append(arg)
        option = arg.replace("_", "-") if arg.startswith("--") and not equals else ""
    return found


def _require_known(given: list[str], known: set[str], command: str) -> None:
    for arg in given:
        name = arg.split("=", 1)[0].replace("_", "-")
        if name not in known:
            names = {option[2:].replace("-", "_"): option for option in known}
            said = name[2:].replace("-", "_")
            nested = [each for each in names if each.endswith(f".{said}")]  # right but for its group
            hint = option_hint(nested[0] if nested else said, names)
            if close := re.fullmatch(r"(; did you mean )([\w.]+)\?", hint):
                hint = f"{close[1]}{names[close[2]]}?"
            hint = hint or f"; see fcritic {command} --help"
            raise UsageError(f"unknown option {arg.split('=', 1)[0]}{hint}")


def _with_its_option(line: str, known: set[str]) -> str:
    """For a recipe or a task that was given without saying what it is: how to say it."""
    if line.startswith("--log ") and line.endswith("not 'tensorboard'"):
        return TENSORBOARD
    found = re.fullmatch(r"unexpected argument (\S+)", line)
    if not found:
        return ""
    word = found[1]
    close = difflib.get_close_matches(word, _recipes(), n=1, cutoff=0.8) if "--recipe" in known else []
    if close:
        return f"; did you mean --recipe {close[0]}?"
    if "--task" in known and re.fullmatch(r"[a-z_]+-[a-z0-9_]+|\S+-v\d+", word):
        return f"; did you mean --task {word}?"
    return ""


def _recipes() -> list[str]:
    from fcritic.agents.recipes import RECIPES  # only where something was wrong: it imports JAX

    return list(RECIPES)


def _one_line(text: str) -> str:
    """What a framed message says between its title and its first rule, on one line."""
    lines = [_FRAME.sub("", line).strip() for line in text.splitlines()]
    title_dropped = itertools.dropwhile(lambda line: not line, lines[1:])
    complaint = " ".join(itertools.takewhile(bool, title_dropped)) or "the options cannot be read"
    complaint = complaint.rstrip(".: ")
    for theirs, ours in _REPHRASED.items():
        if match := re.fullmatch(theirs, complaint):
            complaint = match.expand(ours)
            break
    return complaint
