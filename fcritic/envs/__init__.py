"""Environments by name: DeepMind Control (``cheetah-run``), Gymnasium ids, own code, tasks with known values."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
import zlib

import numpy as np

from fcritic.code import Code, require_name, unnamed
from fcritic.disk import require_memory
from fcritic.envs import own
from fcritic.envs.arguments import paths_in, split, with_arguments
from fcritic.envs.base import AbstractEnv, EnvState, Step, Units
from fcritic.envs.dmc import INSTALL, DMCEnv, dmc_tasks, has_suite
from fcritic.envs.gym import GymEnv, code_of_registered, gym_tasks
from fcritic.envs.gym_vector import GymVectorGroup
from fcritic.envs.local import LocalGroup, Watch
from fcritic.envs.own import GIVEN, Task, build, call, find_factory, name_of, takes_many
from fcritic.envs.toy import FiniteEnv, ProbeEnv, TrapEnv, finite_tasks, is_finite_task, probe_tasks
from fcritic.envs.vector import Episode, Fault, OnFault, VectorEnv
from fcritic.envs.workers import WorkerGroup
from fcritic.errors import UsageError, did_you_mean
from fcritic.types import EnvSpec

if TYPE_CHECKING:
    import gymnasium

__all__ = [
    "AbstractEnv",
    "EnvState",
    "Episode",
    "Fault",
    "GymEnv",
    "ProbeEnv",
    "Step",
    "Task",
    "Units",
    "VectorEnv",
    "code_of",
    "copy_seeds",
    "from_gym_vector",
    "gym_tasks",
    "make",
    "make_vector",
    "name_of",
    "probe_tasks",
    "task_spec",
    "task_units",
]


MEMORY_OF_DMC = 4 * 2**20
"""Bytes that the model and the data of the smallest DeepMind Control task take."""


def make(task: str, *, seed: int, action_repeat: int = 1) -> AbstractEnv:
    """One environment of the named task."""
    require_name(task)
    named, (task, arguments) = task, split(task)
    if (factory := find_factory(task) if ":" in task else None) is not None:
        if takes_many(factory):
            raise UsageError(f"{task} builds vector environments; a single one is asked for here")
        return build(named, factory, seed, action_repeat, arguments)
    if _has_known_answers(task):
        if arguments:
            raise UsageError(f"{task} takes no arguments; leave out --task-args")
        if action_repeat != 1:
            raise UsageError(f"{task} has known values for action_repeat 1 only, not {action_repeat}")
        return _known_answers(task, seed)
    if _is_dmc(task):
        domain, _, name = task.partition("-")
        return DMCEnv(domain, name, seed=seed, action_repeat=action_repeat, arguments=arguments)
    if ":" in task or task in gym_tasks():
        return GymEnv(task, seed=seed, action_repeat=action_repeat, **arguments)
    if (file := unnamed(task, "factory")) is not None:
        raise file
    absent = (
        "" if has_suite() or _looks_like_gym(task) else f"; to install the DeepMind Control Suite run {INSTALL}"
    )
    hint = did_you_mean(task, [*dmc_tasks(), *probe_tasks(), *finite_tasks(), TrapEnv.name, *gym_tasks()])
    hint = hint or "; known are names like cheetah-run, probe-delay, deepsea-10, Pendulum-v1"
    raise UsageError(f"unknown task '{task}'{absent}{hint}")


def code_of(task: str) -> Code | None:
    """The Python code that a task would run, and the files that its arguments name; runs none of it.

    None for tasks of DeepMind Control, Gymnasium and this package, and for a callable that this program has given.
    Arguments may change what foreign code does, so they are a part of its name.
    """
    require_name(task)
    name, arguments = split(task)
    if ":" in name:
        code = own.code_of(name)
    else:
        code = None if _has_known_answers(name) or _is_dmc(name) else code_of_registered(name)
    files = paths_in(arguments)
    if code is None or not arguments:
        return Code(task, files) if files else code
    return code._replace(name=with_arguments(code.name, arguments), files=(*files, *code.files))


def _has_known_answers(task: str) -> bool:
    return task in probe_tasks() or task == TrapEnv.name or is_finite_task(task)


def _is_dmc(task: str) -> bool:
    """By the form of a name alone, so that neither library is imported for the other's tasks."""
    domain, _, name = task.partition("-")
    return bool(name) and not _looks_like_gym(task) and domain in {each.partition("-")[0] for each in dmc_tasks()}


def _known_answers(task: str, seed: int) -> AbstractEnv:
    if is_finite_task(task):
        return FiniteEnv(task, seed=seed)
    return TrapEnv(seed=seed) if task == TrapEnv.name else ProbeEnv(task.removeprefix("probe-"), seed=seed)


def make_vector(
    task: str,
    *,
    seeds: Sequence[int],
    envs: int,
    action_repeat: int = 1,
    salt: str = "train",
    processes: int = 0,
    timeout: float = 60.0,
    on_fault: OnFault = "stop",
) -> VectorEnv:
    """`envs` copies of the task for each seed, all independent.

    A copy's random numbers depend on its seed, its index and `salt` alone: evaluation (another salt) never
    sees the training episodes, and a seed is the same run whatever other seeds run beside it. Nor does it
    matter in how many worker `processes` (0: in this one) the copies run. `timeout` is in seconds, for one
    step or reset of one environment.
    """
    if not seeds or envs < 1:
        raise UsageError(f"at least one seed and one environment are needed, not {len(seeds)} and {envs}")
    if min(seeds) < 0:
        raise UsageError(f"seeds must not be negative, as {min(seeds)} is")
    if (vector := _own_vector(task, len(seeds) * envs, action_repeat, processes, on_fault)) is not None:
        return from_gym_vector(vector, seeds=seeds, salt=salt, timeout=timeout)
    if _is_dmc(split(task)[0]):
        require_memory(MEMORY_OF_DMC * len(seeds) * envs, f"{len(seeds) * envs:,} environments of {task}")
    if processes and task.startswith(GIVEN):
        raise UsageError(f"{task} cannot be sent to worker processes; put it into a module, or --env-processes 0")
    numbers = copy_seeds(seeds, envs, salt)
    flat = [number for row in numbers for number in row]
    if processes:
        group = WorkerGroup(task, seeds=flat, action_repeat=action_repeat, processes=processes, timeout=timeout)
    else:
        build = lambda seed: make(task, seed=seed, action_repeat=action_repeat)
        group = LocalGroup([build(seed) for seed in flat], build, Watch(timeout))
    return VectorEnv(group, numbers, on_fault)


def from_gym_vector(
    env: "gymnasium.vector.VectorEnv", *, seeds: Sequence[int], salt: str = "train", timeout: float = 60.0
) -> VectorEnv:
    """A Gymnasium vector environment as `VectorEnv`, in whichever mode it resets what is over.

    Its sub-environments are shared out among `seeds` in order. Faults stop; on resume all begin an episode.
    """
    if not seeds or env.num_envs % len(seeds):
        raise UsageError(f"{env.num_envs} sub-environments cannot be shared out among {len(seeds)} seeds")
    numbers = copy_seeds(seeds, env.num_envs // len(seeds), salt)
    group = GymVectorGroup(env, timeout)
    group.reseed(dict(enumerate(number for row in numbers for number in row)))
    return VectorEnv(group, numbers)


def copy_seeds(seeds: Sequence[int], envs: int, salt: str) -> list[list[int]]:
    """The seed of each copy, as `make_vector` uses them."""
    return [[_copy_seed(seed, copy, salt) for copy in range(envs)] for seed in seeds]


def task_spec(task: str) -> EnvSpec:
    """The sizes of a task's observations and actions; builds it once to find out."""
    return task_units(task)[0]


def task_units(task: str, action_repeat: int = 1) -> tuple[EnvSpec, Units]:
    """The sizes of a task, and the way between its own units and the networks'; builds it once to find out."""
    vector = _own_vector(task, 1)
    env = make(task, seed=0, action_repeat=action_repeat) if vector is None else GymVectorGroup(vector)
    env.close()
    return env.spec, env.units


def _own_vector(
    task: str, count: int, action_repeat: int = 1, processes: int = 0, on_fault: OnFault = "stop"
) -> "gymnasium.vector.VectorEnv | None":
    """Returns what a factory of vector environments builds, or None for any other task."""
    name, arguments = split(task)
    factory = find_factory(name) if ":" in name else None
    if factory is None or not takes_many(factory):
        return None
    if action_repeat != 1 or processes or on_fault == "skip":
        raise UsageError(
            f"{task} builds vector environments; leave out --action-repeat, --env-processes, --on-fault skip"
        )
    vector = call(task, factory, arguments, num_envs=count)
    if getattr(vector, "num_envs", None) != count:
        raise UsageError(f"{task} was asked for {count} sub-environments and returned {vector!r:.80}")
    return vector


def _copy_seed(seed: int, copy: int, salt: str) -> int:
    sequence = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(salt.encode()), copy))
    return int(sequence.generate_state(1)[0])


def _looks_like_gym(task: str) -> bool:
    """Whether a name has a version (``Pendulum-v1``), a namespace or a module, as only Gymnasium's have."""
    return "/" in task or ":" in task or task.rpartition("-v")[2].isdigit()
