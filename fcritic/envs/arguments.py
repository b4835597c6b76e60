"""Arguments of a task, as a part of its name: ``Ant-v5?ctrl_cost_weight=0.1&xml_file=./ant.xml``.

So they are kept, compared and trusted wherever a name is. They go to ``gymnasium.make``, to the suite's
`task_kwargs` or to a factory of your own.
"""

from collections.abc import Callable, Iterable, Mapping
import inspect
import json
import math
from pathlib import Path
import re
from typing import Any
from urllib.parse import quote, unquote

from fcritic.errors import UsageError, did_you_mean

Arguments = dict[str, Any]
"""Numbers, words, True, False, None, and lists of these, by name."""

MOST, LONGEST, DEEPEST = 30, 300, 3
"""Arguments of a task, letters of one or entries of a list, and lists in lists."""

LARGEST = {int: 10**6, float: 1e12}
"""Larger numbers are mistakes: a simulator may loop that often and never return."""

OURS = ("render_mode", "disable_env_checker", "additional_wrappers", "random", "num_envs", "seed")
"""What fcritic itself gives to those who build environments."""

_BEGIN = re.compile(r"\?(?=[A-Za-z_]\w*=)")


def split(task: str) -> tuple[str, Arguments]:
    """A task's name without its arguments, and these."""
    found = _BEGIN.search(task)
    if found is None:
        return task, {}
    words = task[found.end() :].split("&")
    if len(task) > MOST * LONGEST:
        raise UsageError(
            f"{task[:40]!r} has arguments of {len(task):,} letters; at most {MOST * LONGEST:,} are read"
        )
    return task[: found.start()], of_words(unquote(word) for word in words)


def of_words(words: Iterable[str]) -> Arguments:
    """Arguments as they are typed, ``name=value``; a value that is not JSON is a word."""
    arguments: Arguments = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"--task-args takes name=value, not {word!r:.60}")
        if name in arguments:
            raise UsageError(f"--task-args has {name:.60} twice")
        arguments[name] = _value(text)
    _require_plain(arguments)
    return arguments


def with_arguments(task: str, given: Mapping[str, Any]) -> str:
    """The name of a task with these arguments beside its own, always in the same order."""
    name, arguments = split(task)
    arguments |= given
    _require_plain(arguments)
    told = "&".join(f"{each}={_quoted(_text(arguments[each]))}" for each in sorted(arguments))
    return f"{name}?{told}" if told else name


def paths_in(arguments: Arguments) -> tuple[Path, ...]:
    """The files that arguments name."""
    words = [word for word in _leaves(arguments.values()) if isinstance(word, str)]
    paths = [Path(word).expanduser() for word in words if word.startswith(("/", "./", "~/")) or _is_file(word)]
    return tuple(path.absolute() for path in paths if _is_file(path))


def require_known(task: str, build: Callable, arguments: Arguments) -> None:
    """Refuses arguments that a function does not take, by the closest that it does."""
    try:
        parameters = inspect.signature(build).parameters
    except (TypeError, ValueError):  # some built-in callables have no signature
        return
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    known = [name for name in parameters if name not in OURS and name not in ("self", "environment_kwargs")]
    for name in arguments:
        if name not in known:
            hint = did_you_mean(name, known) or (f"; it takes {', '.join(known)}" if known else "; it takes none")
            raise UsageError(f"{task} takes no argument {name}{hint}")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"True": True, "False": False, "None": None}.get(text, text)


def _text(value: Any) -> str:
    """The value as text; words that would be read as something else are in quotation marks."""
    if isinstance(value, str) and isinstance(_value(value), str) and _value(value) == value:
        return value
    return json.dumps(value, separators=(",", ":"))


def _quoted(text: str) -> str:
    return quote(text, safe="/~.,:;[]\"'+-_ ")


def _require_plain(arguments: Mapping[str, Any]) -> None:
    """Refuses names that are not identifiers, values that are not plain, and sizes out of range."""
    if len(arguments) > MOST:
        raise UsageError(f"a task takes at most {MOST} arguments, not {len(arguments)}")
    for name, value in arguments.items():
        shown = f"the task's argument {name!r:.40}"
        if not isinstance(name, str) or not name.isascii() or not name.isidentifier() or len(name) > 60:
            raise UsageError(f"{shown} is not a name; give --task-args name=value")
        if name in OURS or name.startswith("__"):
            raise UsageError(f"{shown} is set by fcritic itself; leave it out")
        for leaf in _leaves([value]):
            kind = type(leaf)
            if kind not in (bool, int, float, str, type(None)):
                raise UsageError(f"{shown} cannot be {leaf!r:.40}; give a number, a word or a list of them")
            if kind in LARGEST and not (math.isfinite(leaf) and abs(leaf) <= LARGEST[kind]):
                raise UsageError(f"{shown} must be a finite number of at most {LARGEST[kind]:g} in size")
            if kind is str and (len(leaf) > LONGEST or not leaf.isprintable() or ".." in Path(leaf).parts):
                raise UsageError(f"{shown} must be a word of at most {LONGEST} printable letters, without '..'")


def _leaves(values: Iterable[Any], depth: int = 0) -> list[Any]:
    found = []
    for count, value in enumerate(values):
        if depth > DEEPEST or count >= LONGEST:
            raise UsageError(f"a task's arguments are lists of at most {LONGEST} entries, {DEEPEST} deep")
        found += _leaves(value, depth + 1) if isinstance(value, list | tuple) else [value]
    return found


def _is_file(path: str | Path) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False
