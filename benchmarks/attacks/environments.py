"""Sick environments, here and in worker processes, and every mode in which Gymnasium resets what is over."""

from collections.abc import Callable
import os
import time
from unittest import mock

from gymnasium.vector import AutoresetMode, SyncVectorEnv
import numpy as np

from benchmarks.attacks.sick import WRONG, Short
from fcritic import envs
from fcritic.envs import VectorEnv
from fcritic.errors import EnvironmentFault

TASK = "benchmarks.attacks.sick:Walk-v0"
SICK = (1, 0)
"""Seed and environment that fall ill."""
SICK_STEP = 4
TIMEOUT = 0.5

ANYWHERE = ("raise", "hang", *WRONG)
ONLY_IN_PROCESSES = ("stuck", "die", "segfault")
"""In the training's own process these would end it."""

COPIES = 3


def check(count: int, say: Callable[[str], None]) -> dict:
    """Every sickness with `stop` and `skip`, here and in processes; then `count` comparisons of autoreset modes."""
    faults = _faults(say)
    modes = _modes(count)
    say(f"autoreset: {modes['same']} of {count} times the same transitions in all modes")
    passed = sum(each["ok"] for each in faults.values()) + modes["same"]
    slowest = max(each["seconds"] for each in faults.values())
    return {
        "passed": passed,
        "of": len(faults) + count,
        "slowest_replacement_seconds": slowest,
        "faults": faults,
        "autoreset": modes,
    }


def _faults(say: Callable[[str], None]) -> dict[str, dict]:
    results = {}
    for processes, kinds in ((0, ANYWHERE), (2, (*ANYWHERE, *ONLY_IN_PROCESSES))):
        place = f"{processes} processes" if processes else "own process"
        for what in kinds:
            results[f"{what}, {place}, stop"] = _stops(what, processes)
            results[f"{what}, {place}, skip"] = _skips(what, processes)
        say(f"{place}: {sum(each['ok'] for each in results.values())} of {len(results)} faults so far as promised")
    return results


def _stops(what: str, processes: int) -> dict:
    """The fault is named, with environment and step, in one line."""
    with _planned(what), _vector(processes, "stop") as vector:
        started, message = time.monotonic(), ""
        try:
            for act in _actions(2 * SICK_STEP):
                vector.step(act)
        except EnvironmentFault as fault:
            message = str(fault)
        seconds = time.monotonic() - started
    named = f"(seed index {SICK[0]}, environment {SICK[1]})" in message and f"at step {SICK_STEP - 1}" in message
    return {"ok": named and "\n" not in message, "says": message, "seconds": round(seconds, 2)}


def _skips(what: str, processes: int) -> dict:
    """It goes on; the healthy of other processes are untouched; one fault is told."""
    acts = _actions(3 * SICK_STEP)
    with _vector(processes, "stop") as vector:
        expected = [vector.step(act)[0] for act in acts]
    slowest, rows = 0.0, []
    with _planned(what), _vector(processes, "skip") as vector:
        for act in acts:
            started = time.monotonic()
            rows.append(vector.step(act)[0])
            slowest = max(slowest, time.monotonic() - started)
        faults = vector.take_faults()
    # The other seed's environments live in the other process, which nothing has happened to.
    same = all(
        np.array_equal(part[0], good[0])
        for row, whole in zip(rows, expected, strict=True)
        for part, good in zip(row, whole, strict=True)
    )
    told = [fault for fault in faults if fault[:2] == SICK]
    return {
        "ok": same and len(told) >= 1 and slowest < 5 + TIMEOUT,
        "faults": len(faults),
        "seconds": round(slowest, 2),
    }


def _planned(what: str) -> mock._patch_dict:
    seed = envs.copy_seeds([0, 1], 2, "train")[SICK[0]][SICK[1]]
    return mock.patch.dict(os.environ, {"FCRITIC_SICK": f"{seed},{SICK_STEP},{what}"})


class _vector:
    """Two seeds with two environments each, closed at the end."""

    def __init__(self, processes: int, on_fault: str):
        self._options = {
            "processes": processes,
            "on_fault": on_fault,
            "timeout": TIMEOUT if processes == 0 else 2.0,
        }

    def __enter__(self) -> VectorEnv:
        self._made = envs.make_vector(TASK, seeds=[0, 1], envs=2, **self._options)
        return self._made

    def __exit__(self, *_: object) -> None:
        self._made.close()


def _actions(steps: int, seed: int = 0, shape: tuple[int, ...] = (2, 2, 1)) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, *shape)).astype(np.float32)


def _modes(count: int) -> dict:
    """Random episodes of 1 to 5 steps, in every mode, beside single environments."""
    same = 0
    for number in range(count):
        kind = ("box", "dict")[number % 2]
        expected = _record(_singles(number, kind), number)
        found = []
        for mode in AutoresetMode:
            made = SyncVectorEnv([lambda kind=kind: Short(kind)] * COPIES, autoreset_mode=mode)
            found.append(_record(envs.from_gym_vector(made, seeds=[number]), number))
        same += all(len(each) == len(expected) and all(map(np.array_equal, each, expected)) for each in found)
    return {"same": same, "of": count, "modes": [mode.value for mode in AutoresetMode]}


def _singles(seed: int, kind: str) -> VectorEnv:
    numbers = envs.copy_seeds([seed], COPIES, "train")
    return VectorEnv([[envs.GymEnv(Short(kind), seed=number) for number in row] for row in numbers])


def _record(vector: VectorEnv, seed: int) -> list[np.ndarray]:
    rows = []
    for act in _actions(25, seed, (1, COPIES, 2)):
        rows += [*vector.step(act)[0], vector.obs, vector.fresh]
    vector.close()
    return rows
