"""Tasks that are your own Python code: ``module:factory``, ``path/to/file.py:factory`` or a callable.

A factory takes no arguments and returns a Gymnasium environment or an `AbstractEnv`. One that takes `num_envs`
returns a Gymnasium vector environment with so many sub-environments.
"""

from collections.abc import Callable
import functools
import inspect
import os
import re
import sys
from types import ModuleType
from typing import Any

from fcritic.envs.base import AbstractEnv
from fcritic.envs.code import (
    OF_FILE,
    Code,
    code_in_file,
    code_in_module,
    import_module,
    require_name,
    run_file,
    told,
)
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
        of_file = module.startswith(OF_FILE)
        return f"{os.path.relpath(sys.modules[module].__file__) if of_file else module}:{qualname}"
    name = f"{GIVEN}{qualname or type(task).__name__}"
    _given[name] = task
    return name


def code_of(task: str) -> Code | None:
    """The code that a task with a colon names; None for a callable that this program has given."""
    require_name(task)
    if task.startswith(GIVEN):
        return None
    place, _, name = task.rpartition(":")
    return code_in_file(place, name) if place.endswith(".py") else code_in_module(place, name)


def find_factory(task: str) -> Factory | None:
    """The callable that a task names, or None where it names something else, such as ``module:Name-v0``."""
    if task.startswith(GIVEN):
        if task not in _given:
            raise UsageError(
                f"the task {task} was a callable of the program that trained; give it again in Python, as task="
            )
        return _given[task]
    require_name(task)
    place, _, name = task.rpartition(":")
    if not place or not _NAME.fullmatch(name):  # ``module:Name-v0`` is Gymnasium's
        return None
    module = run_file(place) if place.endswith(".py") else import_module(place)
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

    place = task.rpartition(":")[0]
    if not place.endswith(".py") and name in gymnasium.registry:
        return None
    known = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
    raise UsageError(f"{place} has no {name}{did_you_mean(name, known)}")
