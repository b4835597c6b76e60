"""Tasks that are one's own Python code: ``module:factory``, ``path/to/file.py:factory`` or a callable.

A factory takes no arguments and returns a Gymnasium environment or an `AbstractEnv`. One that takes `num_envs`
returns a Gymnasium vector environment with so many sub-environments.
"""

from collections.abc import Callable
import functools
import importlib
import importlib.util
import inspect
from pathlib import Path
import re
import sys
import traceback
from types import ModuleType
from typing import Any

from fcritic.envs.base import AbstractEnv
from fcritic.envs.gym import GymEnv
from fcritic.errors import UsageError, did_you_mean

Factory = Callable[..., Any]
Task = str | Factory

GIVEN = "given:"
"""Begins the name of a callable that no other program could find; it lives in this process alone."""

_given: dict[str, Factory] = {}
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def name_of(task: Task) -> str:
    """The name under which a task is recorded; a callable that cannot be imported is kept in mind for it."""
    if isinstance(task, str):
        return task
    if not callable(task):
        raise UsageError(f"a task is a name or a callable that builds an environment, not {task!r:.60}")
    module, qualname = getattr(task, "__module__", None), getattr(task, "__qualname__", None)
    if module and qualname and module != "__main__" and _found(sys.modules.get(module), qualname) is task:
        return f"{module}:{qualname}"
    name = f"{GIVEN}{qualname or type(task).__name__}"
    _given[name] = task
    return name


def file_of(task: str) -> Path | None:
    """The file of Python code that a task names, or None where it names none."""
    path, colon, _ = task.rpartition(":")
    return Path(path) if colon and path.endswith(".py") else None


def find_factory(task: str) -> Factory | None:
    """The callable that a task names, or None where it names something else, such as ``module:Name-v0``."""
    if task.startswith(GIVEN):
        if task not in _given:
            raise UsageError(
                f"the task {task} was a callable of the program that trained; give it again in Python, as task="
            )
        return _given[task]
    place, colon, name = task.rpartition(":")
    if not colon or not _NAME.fullmatch(name):
        return None
    if file_of(task) is not None:
        module = _run_file(Path(place).resolve())
    elif _NAME.fullmatch(place):
        module = _import(place)
    else:
        return None
    found = _found(module, name)
    if found is None:
        return _missing(task, module, name)
    if not callable(found):
        raise UsageError(
            f"{task} is a {type(found).__name__}; name a function or class that builds the environment"
        )
    return found


def takes_many(factory: Factory) -> bool:
    """Whether a factory builds vector environments."""
    try:
        return "num_envs" in inspect.signature(factory).parameters
    except (TypeError, ValueError):  # some built-in callables do not tell
        return False


def build(task: str, factory: Factory, seed: int, action_repeat: int) -> AbstractEnv:
    """One environment of a factory that builds single ones."""
    env = call(task, factory)
    if isinstance(env, AbstractEnv):
        if action_repeat != 1:
            raise UsageError(f"{task} repeats actions itself, if at all; leave --action-repeat at 1")
        env.reseed(seed)
        env.name = env.name or task
        return env
    _require_gym(task, env)
    wrapped = GymEnv(env, seed=seed, action_repeat=action_repeat)
    wrapped.name = task
    return wrapped


def call(task: str, factory: Factory, **arguments: int) -> Any:
    """What a factory returns; one that fails is told in a line."""
    try:
        return factory(**arguments)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{task} cannot build its environment: {told(error)}") from error


def told(error: BaseException) -> str:
    """An error and the line of code where it arose."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(last[0].filename).name}, line {last[0].lineno})" if last else ""
    return f"{type(error).__name__}: {' '.join(str(error).split()):.300}{where}"


def _require_gym(task: str, env: Any) -> None:
    import gymnasium

    if not isinstance(env, gymnasium.Env):
        kind = "a vector environment; let it take num_envs" if isinstance(env, gymnasium.vector.VectorEnv) else ""
        raise UsageError(
            f"{task} returned {kind or f'{env!r:.60}, which is no environment; return a gymnasium.Env'}"
        )


def _found(module: ModuleType | None, qualname: str) -> Any:
    return functools.reduce(lambda owner, name: getattr(owner, name, None), qualname.split("."), module)


def _missing(task: str, module: ModuleType, name: str) -> None:
    """None for what Gymnasium may know by this name; otherwise an error that names the closest."""
    import gymnasium

    if file_of(task) is None and name in gymnasium.registry:
        return None
    known = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
    raise UsageError(f"{task.rpartition(':')[0]} has no {name}{did_you_mean(name, known)}")


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            advice = "install it, set PYTHONPATH to its folder, or name the file: path/to/file.py:factory"
            raise UsageError(f"there is no module {name}; {advice}") from error
        raise UsageError(f"importing {name} failed: {told(error)}") from error
    except Exception as error:
        raise UsageError(f"importing {name} failed: {told(error)}") from error


@functools.cache
def _run_file(path: Path) -> ModuleType:
    """The module of a file, run once; it may import others that lie beside it."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}; a task in a file is named path/to/file.py:factory")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = f"fcritic_task_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UsageError(f"{path} failed: {told(error)}") from error
    return module
