"""Options from dataclasses; anything that cannot be parsed becomes one line."""

import contextlib
import dataclasses
import io
import re
from typing import TypeVar, get_args, get_type_hints

import tyro

from fcritic.errors import UsageError, did_you_mean

Options = TypeVar("Options")

_BOX = re.compile(r"[\u2500-\u257f]|\x1b\[[0-9;]*m")


def parse(kind: type[Options], args: list[str], command: str, default: Options | None = None) -> Options:
    """The options of a command; `--help` prints and leaves, a mistake raises `UsageError`."""
    if stray := [arg for arg in args if arg.startswith("--") and arg != "--help"]:
        known = option_names(kind if default is None else default)
        _require_known(stray, known, command)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(kind, args=args, prog=f"fcritic {command}", default=default)
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
        raise UsageError(_one_line(complaint.getvalue(), command)) from None


def option_names(options: object, prefix: str = "") -> set[str]:
    """Every option that a dataclass (or an instance of one) offers, as it is typed."""
    names: set[str] = set()
    hints = get_type_hints(options if isinstance(options, type) else type(options), include_extras=True)
    for field in dataclasses.fields(options):
        value = getattr(options, field.name, field.default)
        if dataclasses.is_dataclass(value):
            inlined = any(getattr(extra, "name", None) == "" for extra in get_args(hints[field.name])[1:])
            names |= option_names(value, prefix if inlined else f"{prefix}{field.name}.")
            continue
        name = field.name.replace("_", "-")
        names.add(f"--{prefix}{name}".replace("_", "-"))
        if isinstance(value, bool):
            names.add(f"--{prefix}no-{name}".replace("_", "-"))
    return names


def _require_known(given: list[str], known: set[str], command: str) -> None:
    for arg in given:
        name = arg.split("=", 1)[0].replace("_", "-")
        if name not in known:
            hint = did_you_mean(name, known) or f"; see fcritic {command} --help"
            raise UsageError(f"unknown option {arg.split('=', 1)[0]}{hint}")


def _one_line(text: str, command: str) -> str:
    """What a framed message says between its title and its first rule, on one line."""
    lines = [_BOX.sub("", line).strip() for line in text.splitlines()]
    body = lines[1 : lines.index("", 1)] if "" in lines[1:] else lines[1:]
    complaint = " ".join(body) or "the options cannot be read"
    if complaint.startswith("Unrecognized options: "):
        complaint = f"unexpected argument {complaint.removeprefix('Unrecognized options: ')}"
    return f"{complaint.rstrip('.: ')}; see fcritic {command} --help"
