"""Tasks that are your own Python code: ``module:factory``, ``path/to/file.py:factory`` or a callable.

A factory returns a Gymnasium environment or an `AbstractEnv`; it gets the arguments that the task's name has. One
that takes `num_envs` returns a Gymnasium vector environment with so many sub-environments.
"""

from collections.abc import Callable
import inspect
from typing import Any

from fcritic import code
from fcritic.code import Code, require_name, told
from fcritic.envs.arguments import Arguments, require_known
from fcritic.envs.base import AbstractEnv
from fcritic.envs.gym import GymEnv
from fcritic.errors import UsageError

Factory = Callable[..., Any]
Task = str | Factory

GIVEN = "given:"
"""Begins the name of a callable that no other program could find; it lives in this process alone."""

_given: dict[str, Factory] = {}


def name_of(task: Task) -> str:
    """The name under which a task is recorded; a callable that cannot be imported is kept in this process."""
    if isinstance(task, str):
        return task
    if not callable(task):
        raise UsageError(f"a task is a name or a callable that builds an environment, not {task!r:.60}")
    if (found := code.name_of(task)) is not None:
        return found
    name = f"{GIVEN}{getattr(task, '__qualname__', None) or type(task).__name__}"
    _given[name] = task
    return name


def code_of(task: str) -> Code | None:
    """The code that a task with a colon names; None for a callable that this program has given."""
    require_name(task)
    return None if task.startswith(GIVEN) else code.code_named(task)


def find_factory(task: str) -> Factory | None:
    """The callable that a task names, or None where it names something else, such as ``module:Name-v0``."""
    if task.startswith(GIVEN):
        if task not in _given:
            raise UsageError(
                f"the task {task} was a callable of the program that trained; give it again in Python, as task="
            )
        return _given[task]
    require_name(task)
    found = code.find(task)
    if found is None:
        return _perhaps_gymnasiums(task)
    if not callable(found):
        raise UsageError(
            f"{task} is a {type(found).__name__}; name a function or class that builds the environment"
        )
    return found


def takes_many(factory: Factory) -> bool:
    """Whether a factory builds vector environments."""
    try:
        return "num_envs" in inspect.signature(factory).parameters
    except (TypeError, ValueError):  # some built-in callables have no signature
        return False


def build(task: str, factory: Factory, seed: int, action_repeat: int, arguments: Arguments) -> AbstractEnv:
    """Returns one environment of a factory that builds single ones."""
    env = call(task, factory, arguments)
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


def call(task: str, factory: Factory, arguments: Arguments, **sizes: int) -> Any:
    """Returns what a factory builds; one that fails is a `UsageError`."""
    require_known(task.partition("?")[0], factory, arguments)
    try:
        return factory(**arguments, **sizes)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{task} cannot build its environment: {told(error)}") from error


def _require_gym(task: str, env: Any) -> None:
    import gymnasium

    if not isinstance(env, gymnasium.Env):
        kind = "a vector environment; let it take num_envs" if isinstance(env, gymnasium.vector.VectorEnv) else ""
        raise UsageError(
            f"{task} returned {kind or f'{env!r:.60}, which is not an environment; return a gymnasium.Env'}"
        )


def _perhaps_gymnasiums(task: str) -> None:
    """None for what Gymnasium may know by this name; otherwise an error that names the closest."""
    import gymnasium

    place, _, name = task.rpartition(":")
    if not code.is_name(task) or (not code.is_file(place) and name in gymnasium.registry):
        return
    raise code.missing(task)
